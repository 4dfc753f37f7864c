/* HDF5, as all files of ours use it: one writer a file through the serial driver.
 *
 * What is taken care of here: no file locks (HDF5_USE_FILE_LOCKING=FALSE: Lustre without flock
 * refuses them), no plugins loaded on behalf of a file, no error stack printed but turned into one
 * message with errno's text, a 512-byte user block (user_block.h), format bounds 1.8 and no times,
 * so that equal content gives equal bytes; and a file being written is poisoned by its first
 * failure: later calls fail too, because HDF5 on a full disk goes on to report success (F3 of the
 * reliability study).
 *
 * Threads: the library may be built without thread safety, so every call here takes one
 * process-wide recursive lock. Any thread may call; code that calls HDF5 itself does so between
 * bp_h5_lock() and bp_h5_unlock(). One bp_h5 is used by one thread at a time.
 *
 * Datasets are contiguous, little-endian, and 1-D except for tables and checkpoints' pieces. Names
 * are paths ("labels/genre"); the groups on the way are made as needed. Local: no MPI.
 */
#ifndef BP_IO_H5_H5_H
#define BP_IO_H5_H5_H

#include "base/err.h"
#include "base/files/fs.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_h5 bp_h5;

typedef enum bp_h5_type {
    BP_H5_U8,
    BP_H5_U16,
    BP_H5_U32,
    BP_H5_U64,
    BP_H5_I64,
    BP_H5_F32,
    BP_H5_F64
} bp_h5_type;
size_t bp_h5_type_bytes(bp_h5_type type);

#define BP_H5_DIMS 4

/* ---- files ---- */

/** A new file (an old one is overwritten) that keeps 512 bytes for the user block.
 *  Errors: BP_ERR_CREATE no such folder, BP_ERR_DENIED, BP_ERR_IO (disk full). */
bp_err bp_h5_create(bp_h5 **out, const char *path);

/** The same at `real_path`, a temporary name; messages show `path`, which the user knows. */
bp_err bp_h5_create_as(bp_h5 **out, const char *real_path, const char *path);

/** Open for reading. Native files are hashed before (bp_user_block_verify); of a foreign
 * one, what is read is checked after (bp_h5_walk), in a process of its own (corpus_convert.c).
 * Errors: BP_ERR_FORMAT HDF5 can't make sense of it; BP_ERR_INPUT, BP_ERR_DENIED. */
bp_err bp_h5_open(bp_h5 **out, const char *path);

/** Open by descriptor (through /proc/self/fd), so that what was hashed is what is opened; `path` is
 * for messages. */
bp_err bp_h5_open_fd(bp_h5 **out, int fd, const char *path);

/** Close. A file that was written is then fsynced.
 *
 * Errors: BP_ERR_IO or what the first failure of this file was: the file is worthless then, unlink
 * it. *file is NULL afterwards in any case. */
bp_err bp_h5_close(bp_h5 **file);

/** Close without a verdict, after a failure elsewhere. NULL is accepted. */
void bp_h5_drop(bp_h5 **file);

const char *bp_h5_path(const bp_h5 *file);

void bp_h5_lock(void);
void bp_h5_unlock(void);

/** Turn the HDF5 call that just failed into an error, with errno's text where there is one; poisons
 * a written file. `name` is the dataset or attribute concerned, or NULL. */
bp_err bp_h5_fail(bp_h5 *file, const char *verb, const char *name);

/* ---- files that are there whole or not at all: a bp_draft, sealed ---- */

typedef struct bp_h5_draft {
    bp_h5 *file; /* to write to, between begin and commit */
    bp_draft place;
} bp_h5_draft;

/** A new file with its root attribute format_version.
 *
 * Owns:       what is in *draft until bp_h5_draft_end(), after an error too.
 * Errors:     those of bp_h5_create.
 */
bp_err bp_h5_draft_begin(bp_h5_draft *draft, const char *path, int version);
/** Close, seal with the user block {kind, version}, commit.
 *
 * Errors: BP_ERR_IO, BP_ERR_DENIED, those of bp_draft_commit. */
bp_err bp_h5_draft_commit(bp_h5_draft *draft, const char *kind, int version);
/** Free; without a commit before it the temporary file is removed. A draft of zeros is accepted. */
void bp_h5_draft_end(bp_h5_draft *draft);

/* ---- writing ---- */

/** A whole dataset. */
bp_err bp_h5_write(bp_h5 *file, const char *name, bp_h5_type type, const void *data, int64_t count);
/** A dataset of `count` values that bp_h5_write_slab fills; its space is allocated at once. */
bp_err bp_h5_make(bp_h5 *file, const char *name, bp_h5_type type, int64_t count);
/** The same of 1 to BP_H5_DIMS dimensions. bp_h5_write_slab fills those of one or, for what is a
 * table by nature, of two: `first` and `count` are values counted row-major, whole rows of them.
 * address: set to the place of the values in the file, the user block counted; NULL: nobody asks.
 */
bp_err bp_h5_make_array(bp_h5 *file, const char *name, bp_h5_type type, int dims,
                        const int64_t *extent, int64_t *address);
bp_err bp_h5_write_slab(bp_h5 *file, const char *name, bp_h5_type type, int64_t first,
                        const void *data, int64_t count);

/** Strings as fixed-length UTF-8, padded with zeros. `width` bytes each, side by side in `data`. */
bp_err bp_h5_make_text(bp_h5 *file, const char *name, size_t width, int64_t count);
bp_err bp_h5_write_text_slab(bp_h5 *file, const char *name, size_t width, int64_t first,
                             const char *data, int64_t count);
/** A whole dataset of C strings; the width is the longest's. */
bp_err bp_h5_write_texts(bp_h5 *file, const char *name, const char *const *texts, int64_t count);

/** Attributes of `object` ("/" or a dataset or group that is there). */
bp_err bp_h5_put_int(bp_h5 *file, const char *object, const char *name, int64_t value);
bp_err bp_h5_put_text(bp_h5 *file, const char *object, const char *name, const char *value);

/** An empty group (groups above a dataset come by themselves). */
bp_err bp_h5_make_group(bp_h5 *file, const char *name);

/** What to do about a file that is wrong in itself, where no message says better. */
#define BP_H5_REMEDY "write the file again"

/* ---- reading: BP_ERR_FORMAT where something is missing or of another kind, with name and file
 * ---- */

bool bp_h5_has(bp_h5 *file, const char *name); /* a dataset or group, reached only by hard links */
/** The same, and an error where a soft or external link is in the way: BP_ERR_FORMAT. */
bp_err bp_h5_find(bp_h5 *file, const char *name, bool *found);
bool bp_h5_is_group(bp_h5 *file, const char *name);
/** Names in a group, sorted; none if there is no such group. Free with bp_names_free(). */
bp_err bp_h5_names(bp_h5 *file, const char *group, char ***names, int64_t *count);

typedef struct bp_h5_shape {
    int dims;        /* 1, or 2 for a grid */
    int64_t count;   /* values in all; strings count as one */
    int64_t columns; /* of a grid; 1 else */
    bool is_text;    /* fixed-length strings, `width` bytes each */
    bool is_real;    /* floating point; else integers */
    bool is_signed;
    size_t width;   /* bytes of a value as stored */
    int64_t offset; /* where a contiguous dataset is in the file (user block counted); -1: chunked
                       or empty */
} bp_h5_shape;
bp_err bp_h5_shape_of(bp_h5 *file, const char *name, bp_h5_shape *shape);
/** data[count] = values from `first` on, converted to `type`; of a grid counted row-major, whole
 * rows. */
bp_err bp_h5_read(bp_h5 *file, const char *name, bp_h5_type type, int64_t first, void *data,
                  int64_t count);
/** count * shape.width bytes, zero-padded. */
bp_err bp_h5_read_text(bp_h5 *file, const char *name, size_t width, int64_t first, char *data,
                       int64_t count);

/** All of a foreign dataset of reals, of exactly these sizes (1 to BP_H5_DIMS), as data[product of
 * extent]; refused is what bp_h5_walk refuses, except for the dimensions. Errors: BP_ERR_FORMAT. */
bp_err bp_h5_read_array(bp_h5 *file, const char *name, int dims, const int64_t *extent,
                        float *data);

bool bp_h5_has_attribute(bp_h5 *file, const char *object, const char *name);
bp_err bp_h5_get_int(bp_h5 *file, const char *object, const char *name, int64_t *value);
/** Fixed- or variable-length string; longer than out_bytes - 1 is BP_ERR_FORMAT. */
bp_err bp_h5_get_text(bp_h5 *file, const char *object, const char *name, char *out,
                      size_t out_bytes);

/** Refuse what a dataset of a foreign file must not be: behind soft or external links, in external
 * files, virtual, not 1-D, neither integers (of 8 bytes at most), reals nor fixed-length text,
 * filters other than gzip, shuffle, Fletcher32, lzf and zstd, chunks beyond 256 MiB, chunks that
 * hold other numbers of bytes than the shape says, or larger than what is stored in the file.
 * Errors: BP_ERR_FORMAT says which. */
bp_err bp_h5_walk(bp_h5 *file, const char *name);

#endif
