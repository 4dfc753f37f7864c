/* safetensors files: 8 bytes of length, a JSON header, and the tensors' bytes without a gap.
 *
 * Read as hostile: a file that does not match the format exactly is refused before any of its data
 * is used. Memory is bounded by the header; tensors are read and written in parts. Local: no MPI.
 * Source: github.com/huggingface/safetensors, "Format"; its limit of 100 MB for the header.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_SAFETENSORS_DIMS       8
#define BP_SAFETENSORS_MAX_HEADER ((int64_t)100 << 20)

typedef struct bp_safetensor {
    const char *name;  /* borrowed from the file */
    const char *dtype; /* "F32" */
    int dims;          /* 0: a single value */
    int64_t shape[BP_SAFETENSORS_DIMS];
    int64_t count;        /* elements */
    int64_t first, bytes; /* its place in the data */
} bp_safetensor;

typedef struct bp_safetensors bp_safetensors;

/** Open and check the header: at most 100 MiB of it; offsets without gap, overlap or remainder;
 * elements x size == bytes (checked multiplication); names unique.
 *
 * Owns:   *out is the caller's, bp_safetensors_close(); NULL on failure.
 * Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT with the fault and its place; BP_ERR_IO,
 *         BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_safetensors_open(bp_safetensors **out, const char *path);
void bp_safetensors_close(bp_safetensors **file);

/** Tensors in the order of their data. */
int64_t bp_safetensors_count(const bp_safetensors *file);
const bp_safetensor *bp_safetensors_at(const bp_safetensors *file, int64_t k);
/** NULL if there is none. */
const bp_safetensor *bp_safetensors_find(const bp_safetensors *file, const char *name);
const char *bp_safetensors_path(const bp_safetensors *file);
/** Give every tensor another name: `rename` overwrites the old one, and must not lengthen it.
 * Returns whether names are still unique. */
bool bp_safetensors_rename(bp_safetensors *file, void (*rename)(char *name));

/** out[count] = elements from `first` on, as float32: F32, F16, BF16 exactly, F64 rounded.
 *
 * Errors: BP_ERR_FORMAT a dtype that is not a float, or a value that is not finite (named);
 *         BP_ERR_IO. */
bp_err bp_safetensors_read(bp_safetensors *file, const bp_safetensor *tensor, int64_t first,
                           int64_t count, float *out);

/** Tensors of another form of file. `read`: as bp_safetensors_read, for `tensor` with its original
 * `first`; `close`: frees the context. */
typedef struct bp_safetensors_source {
    bp_err (*read)(void *context, const bp_safetensor *tensor, int64_t first, int64_t count,
                   float *out);
    void (*close)(void *context);
    void *context;
} bp_safetensors_source;
/** Treat them like a file of this form. Reads name, dtype "F32", dims, shape, count and first of
 * each. Names are copied; they are unique. Owns: takes the context; bp_safetensors_close(). */
bp_safetensors *bp_safetensors_of(const char *path, const bp_safetensor *tensors, int64_t count,
                                  bp_safetensors_source source);

/* ---- writing: the tensors' places first, then their values in the same order ---- */

typedef struct bp_safetensors_writer bp_safetensors_writer;

/** Bytes of an element of "F32", "BF16" and so on; 0 if there is no such type. */
int64_t bp_safetensors_element_bytes(const char *dtype);

/** A new file (refused if it exists) of F32, F16 or BF16 tensors; reads name, dtype (NULL: F32),
 * dims and shape.
 *
 * metadata: "format" of __metadata__ (readers expect "pt"); NULL if none.
 * Owns:     *out is the caller's, bp_safetensors_finish() or _drop(); NULL on failure. Names are
 *           borrowed until then.
 * Errors:   BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM; BP_ERR_SOFTWARE invalid names
 *           or shapes.
 */
bp_err bp_safetensors_create(bp_safetensors_writer **out, const char *path,
                             const bp_safetensor *tensors, int64_t count, const char *metadata);
/** Write the next `count` values, of one tensor or several: 16-bit types round to nearest, ties to
 * even.
 *
 * Errors: BP_ERR_IO; BP_ERR_FORMAT a value that is beyond the type's largest one (its tensor is
 *         named); BP_ERR_SOFTWARE more than was announced. */
bp_err bp_safetensors_write(bp_safetensors_writer *writer, const float *values, int64_t count);
/** fsync and close; always frees.
 *
 * Errors: BP_ERR_IO; BP_ERR_SOFTWARE fewer values than announced. */
bp_err bp_safetensors_finish(bp_safetensors_writer **writer);
/** Close without errors: the file will be discarded. */
void bp_safetensors_drop(bp_safetensors_writer **writer);
