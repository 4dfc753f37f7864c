/* Inside the HDF5 wrappers. */
#ifndef BP_IO_H5_H5_PARTS_H
#define BP_IO_H5_H5_PARTS_H

#include "io/h5/h5.h"

#include <hdf5.h>

struct bp_h5 {
    hid_t id;
    char *path;      /* as messages show it */
    char *real_path; /* where it is while it is written */
    bool writing;
    bp_err failed; /* of a written file: its first failure ... */
    char *failure; /* ... and the message */
};

/** A failure that was expected is not an error: bp_h5_fail must not report it for a later one. */
void bp_h5_forget(void);

/** BP_OK, or the first failure of a file being written again. */
bp_err bp_h5_sound(const bp_h5 *file);

/** Close any object but a file; one below 0, that could not be had, is accepted. */
void bp_h5_release(hid_t id);

/** Open a dataset for reading; below 0 after an error. */
bp_err bp_h5_open_dataset(bp_h5 *file, const char *name, hid_t *dataset);

/** Select values [first, first + count) of a data space of 1 or 2 dimensions, counted row-major, of
 * more dimensions all; false where these are not whole rows, or not all. */
bool bp_h5_select(hid_t space, hsize_t first, hsize_t count);

/** Values [first, first + count) of a dataset to memory, as bp_h5_select has them. */
bool bp_h5_read_values(hid_t dataset, hid_t type, hsize_t first, hsize_t count, void *data);

/** What bp_h5_walk checks except for the number of dimensions, of a dataset that is open. */
bp_err bp_h5_walk_dataset(bp_h5 *file, const char *name, hid_t dataset, const bp_h5_shape *shape);

/** Every chunk of a chunked dataset of known filters holds, once they are undone, as many bytes as
 * its shape says: HDF5 1.10 does not ask. Called by bp_h5_walk_dataset. */
bp_err bp_h5_walk_lengths(bp_h5 *file, const char *name, hid_t dataset, hid_t creation,
                          const bp_h5_shape *shape);

hid_t bp_h5_memory_type(bp_h5_type type); /* borrowed */

#endif
