/* HDF5 as used by all our files: one writer per file through the serial driver.
 *
 * These functions ensure: no file locks (HDF5_USE_FILE_LOCKING=FALSE: Lustre without flock refuses
 * them), no plugins loaded for a file, error stacks not printed but turned into one message with
 * errno's text, a 512-byte user block (user_block.h), format bounds 1.8 and no times, so that
 * equal content gives equal bytes; and a file being written is poisoned by its first failure:
 * later calls fail too, because HDF5 continues to report success on a full disk (F3 of the
 * reliability study).
 *
 * Threads: the library may be built without thread safety, so every call here takes one
 * process-wide recursive lock. Any thread may call; code that calls HDF5 itself does so between
 * bp_h5_lock() and bp_h5_unlock(). One bp_h5 is used by one thread at a time.
 *
 * Datasets are contiguous, little-endian, and 1-D except for tables and checkpoints' pieces. Names
 * are paths ("labels/genre"); the groups on the way are made as needed. Local: no MPI.
 */
#pragma once

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

/** A new file (overwrites an old one) with 512 bytes reserved for the user block. Errors:
 *  BP_ERR_CREATE no such folder, BP_ERR_DENIED, BP_ERR_IO (disk full). */
bp_err bp_h5_create(bp_h5 **out, const char *path);

/** The same at `real_path`, a temporary name; messages show `path`, which the user knows. */
bp_err bp_h5_create_as(bp_h5 **out, const char *real_path, const char *path);

/** Open for reading. Native files are hashed before (bp_user_block_verify); for a foreign one, data
 * to read is checked afterwards (bp_h5_walk), in a separate process (corpus_convert.c). Errors:
 * BP_ERR_FORMAT HDF5 can't make sense of it; BP_ERR_INPUT, BP_ERR_DENIED. */
bp_err bp_h5_open(bp_h5 **out, const char *path);
/** The same for a file of ours, of this kind and version: it is hashed first, so that HDF5 sees no
 * byte that was not. Errors: those of bp_user_block_verify and bp_user_block_expect too. */
bp_err bp_h5_open_kind(bp_h5 **out, const char *path, const char *kind, int version);

/** Open by descriptor (through /proc/self/fd), so that the opened file is the hashed one; `path` is
 * for messages. */
bp_err bp_h5_open_fd(bp_h5 **out, int fd, const char *path);

/** Close, and fsync a written file.
 *
 * Errors: BP_ERR_IO or the first failure of this file: the file is invalid then, unlink it. *file
 * is NULL afterwards in any case. */
bp_err bp_h5_close(bp_h5 **file);

/** Close without an error, after a failure elsewhere. NULL is accepted. */
void bp_h5_drop(bp_h5 **file);

const char *bp_h5_path(const bp_h5 *file);

void bp_h5_lock(void);
void bp_h5_unlock(void);

/** Turn the HDF5 call that just failed into an error, with errno's text if there is one; poisons a
 * written file. `name` is the dataset or attribute concerned, or NULL. */
bp_err bp_h5_fail(bp_h5 *file, const char *verb, const char *name);

/* ---- files that are complete or absent: a bp_draft, sealed ---- */

typedef struct bp_h5_draft {
    bp_h5 *file; /* to write to, between begin and commit */
    bp_draft place;
} bp_h5_draft;

/** A new file with its root attribute format_version.
 *
 * Owns:       contents of *draft until bp_h5_draft_end(), after an error too.
 * Errors:     those of bp_h5_create.
 */
bp_err bp_h5_draft_begin(bp_h5_draft *draft, const char *path, int version);
/** Close, seal with the user block {kind, version}, commit.
 *
 * Errors: BP_ERR_IO, BP_ERR_DENIED, those of bp_draft_commit. */
bp_err bp_h5_draft_commit(bp_h5_draft *draft, const char *kind, int version);
/** Free; without an earlier commit, remove the temporary file. A draft of zeros is accepted. */
void bp_h5_draft_end(bp_h5_draft *draft);

/* ---- writing ---- */

/** A whole dataset. */
bp_err bp_h5_write(bp_h5 *file, const char *name, bp_h5_type type, const void *data, int64_t count);
/** A dataset of `count` values to be filled by bp_h5_write_slab; allocates its space at once. */
bp_err bp_h5_make(bp_h5 *file, const char *name, bp_h5_type type, int64_t count);
/** The same of 1 to BP_H5_DIMS dimensions. bp_h5_write_slab fills those of one dimension, or of two
 * for tables: `first` and `count` are values counted row-major, in whole rows. address: set to the
 * offset of the values in the file, including the user block; NULL if not needed. */
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

/** Attributes of `object` ("/" or an existing dataset or group). */
bp_err bp_h5_put_int(bp_h5 *file, const char *object, const char *name, int64_t value);
bp_err bp_h5_put_text(bp_h5 *file, const char *object, const char *name, const char *value);

/** An empty group (groups above a dataset are created automatically). */
bp_err bp_h5_make_group(bp_h5 *file, const char *name);

/** Default advice for an invalid file. */
#define BP_H5_REMEDY "write the file again"

/* ---- reading: BP_ERR_FORMAT if something is missing or of another kind, with name and file ----
 */

bool bp_h5_has(bp_h5 *file, const char *name); /* a dataset or group, reached only by hard links */
/** The same, with an error if a soft or external link is on the path: BP_ERR_FORMAT. */
bp_err bp_h5_find(bp_h5 *file, const char *name, bool *found);
bool bp_h5_is_group(bp_h5 *file, const char *name);
/** Names in a group, sorted; empty if there is no such group. Free with bp_names_free(). */
bp_err bp_h5_names(bp_h5 *file, const char *group, char ***names, int64_t *count);

typedef struct bp_h5_shape {
    int dims;        /* 1, or 2 for a grid */
    int64_t count;   /* values in all; strings count as one */
    int64_t columns; /* of a grid; else 1 */
    bool is_text;    /* fixed-length strings, `width` bytes each */
    bool is_real;    /* floating point; else integers */
    bool is_signed;
    size_t width;   /* bytes of a value as stored */
    int64_t offset; /* offset of a contiguous dataset in the file (including the user block); -1 if
                       chunked or empty */
} bp_h5_shape;
bp_err bp_h5_shape_of(bp_h5 *file, const char *name, bp_h5_shape *shape);
/** data[count] = values from `first` on, converted to `type`; in a grid counted row-major, in whole
 * rows. */
bp_err bp_h5_read(bp_h5 *file, const char *name, bp_h5_type type, int64_t first, void *data,
                  int64_t count);
/** count * shape.width bytes, zero-padded. */
bp_err bp_h5_read_text(bp_h5 *file, const char *name, size_t width, int64_t first, char *data,
                       int64_t count);

/** All of a foreign dataset of reals, of exactly these sizes (1 to BP_H5_DIMS), as data[product of
 * extent]; with the checks of bp_h5_walk, except for the dimensions. Errors: BP_ERR_FORMAT. */
bp_err bp_h5_read_array(bp_h5 *file, const char *name, int dims, const int64_t *extent,
                        float *data);

bool bp_h5_has_attribute(bp_h5 *file, const char *object, const char *name);
bp_err bp_h5_get_int(bp_h5 *file, const char *object, const char *name, int64_t *value);
/** Fixed- or variable-length string; BP_ERR_FORMAT if longer than out_bytes - 1. */
bp_err bp_h5_get_text(bp_h5 *file, const char *object, const char *name, char *out,
                      size_t out_bytes);

/** Refuse unsafe datasets of a foreign file: reached by soft or external links, in external files,
 * virtual, or not 1-D; types other than integers (at most 8 bytes), reals and fixed-length text;
 * filters other than gzip, shuffle, Fletcher32, lzf and zstd; chunks beyond 256 MiB, chunks whose
 * size does not match the shape, or more values than are stored in the file (missing chunks too).
 * Errors: BP_ERR_FORMAT with the reason. */
bp_err bp_h5_walk(bp_h5 *file, const char *name);
