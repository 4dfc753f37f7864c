/* Inside the HDF5 wrappers. */
#pragma once

#include "io/h5/h5.h"

#include <hdf5.h>

struct bp_h5 {
    hid_t id;
    char *path;      /* the path for messages */
    char *real_path; /* its path while being written */
    bool writing;
    bp_err failed; /* of a written file: its first failure ... */
    char *failure; /* ... and the message */
};

/** A failure that was expected is not an error: keeps bp_h5_fail from reporting it for a later one.
 */
void bp_h5_forget(void);

/** BP_OK, or the first failure of a file being written again. */
bp_err bp_h5_sound(const bp_h5 *file);

/** Close any object except a file; an id below 0 (not opened) is accepted. */
void bp_h5_release(hid_t id);

/** Open a dataset for reading; below 0 after an error. */
bp_err bp_h5_open_dataset(bp_h5 *file, const char *name, hid_t *dataset);

/** Select values [first, first + count) of a data space of 1 or 2 dimensions, counted row-major;
 * with more dimensions, all values. False if these are not whole rows, or not all. */
bool bp_h5_select(hid_t space, hsize_t first, hsize_t count);

/** Values [first, first + count) of a dataset to memory, as selected by bp_h5_select. */
bool bp_h5_read_values(hid_t dataset, hid_t type, hsize_t first, hsize_t count, void *data);

/** The checks of bp_h5_walk on an open dataset, except for the number of dimensions. */
bp_err bp_h5_walk_dataset(bp_h5 *file, const char *name, hid_t dataset, const bp_h5_shape *shape);

/** Every chunk of a chunked dataset of known filters decodes to the size given by its shape, which
 * HDF5 1.10 does not check. Called by bp_h5_walk_dataset. */
bp_err bp_h5_walk_lengths(bp_h5 *file, const char *name, hid_t dataset, hid_t creation,
                          const bp_h5_shape *shape);

hid_t bp_h5_memory_type(bp_h5_type type); /* borrowed */
