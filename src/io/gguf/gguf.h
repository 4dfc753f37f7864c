/* GGUF files: keys with values, a list of tensors, and the tensors' bytes.
 *
 * Versions 2 and 3, little-endian; tensors of F32, F16, BF16 and Q8_0. Read as hostile: nothing is
 * allocated by a count before the file was found to have room for it. Tensors are read in parts.
 * Local: no MPI.
 * Source: ggml-org/ggml, docs/gguf.md.
 */
#ifndef BP_IO_GGUF_GGUF_H
#define BP_IO_GGUF_GGUF_H

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_GGUF_DIMS  4
#define BP_GGUF_BLOCK 32 /* values of a row that a block of Q8_0 holds */

/* As files number them. */
typedef enum bp_gguf_type {
    BP_GGUF_F32 = 0,
    BP_GGUF_F16 = 1,
    BP_GGUF_Q8_0 = 8,
    BP_GGUF_BF16 = 30
} bp_gguf_type;

/** An encoder's pooling_type. */
typedef enum bp_gguf_pooling {
    BP_GGUF_POOL_NONE,
    BP_GGUF_POOL_MEAN,
    BP_GGUF_POOL_FIRST,
    BP_GGUF_POOL_LAST,
    BP_GGUF_POOLS
} bp_gguf_pooling;

typedef struct bp_gguf_tensor {
    const char *name; /* borrowed from the file */
    bp_gguf_type type;
    int dims;
    int64_t shape[BP_GGUF_DIMS]; /* outermost first, as safetensors files have it */
    int64_t count, row;          /* values; values of a row */
    int64_t place, bytes;        /* in the file */
} bp_gguf_tensor;

typedef struct bp_gguf bp_gguf;

/** Does a file begin as GGUF files do? */
bool bp_gguf_is(const char *path);
/** Open and check all but the tensors' values: counts, strings, UTF-8, alignment, tensors side by
 * side within the file.
 *
 * Owns:   *out is the caller's, bp_gguf_close(); NULL on failure.
 * Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT what is wrong and at which byte; BP_ERR_IO,
 *         BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_gguf_open(bp_gguf **out, const char *path);
void bp_gguf_close(bp_gguf **file);
const char *bp_gguf_path(const bp_gguf *file);

/** The keys with their values: numbers (of float32 the same double), strings, booleans, lists.
 * Borrowed. */
const json_t *bp_gguf_keys(const bp_gguf *file);
/** Tensors in the order of their data. */
int64_t bp_gguf_count(const bp_gguf *file);
const bp_gguf_tensor *bp_gguf_at(const bp_gguf *file, int64_t k);
/** NULL: there is none. */
const bp_gguf_tensor *bp_gguf_find(const bp_gguf *file, const char *name);

/** out[count] = values from `first` on, exactly. Errors: BP_ERR_IO. */
bp_err bp_gguf_read(const bp_gguf *file, const bp_gguf_tensor *tensor, int64_t first, int64_t count,
                    float *out);

/* ---- writing ---- */

/** Bytes of `count` values of whole rows. */
int64_t bp_gguf_bytes(bp_gguf_type type, int64_t count);

typedef struct bp_gguf_writer bp_gguf_writer;

/** A file of version 3, in place of what is there, for tensors that follow in this order; of
 * each name, type, dims and shape are read. keys: an object as bp_gguf_keys gives; whole numbers
 * become u32 (in lists i32), others f32, and lists are of one kind.
 *
 * Owns:   *out is the caller's, bp_gguf_finish() or _drop(); NULL on failure. Names are borrowed
 *         until then.
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_gguf_create(bp_gguf_writer **out, const char *path, const json_t *keys,
                      const bp_gguf_tensor *tensors, int64_t count);
/** The next tensor's values, all of them. F16 and BF16: the nearest, of two equally near the even
 * one. Q8_0: d = largest magnitude / 127 of a block, q = the nearest to value / d, halves away from
 * zero.
 *
 * Errors: BP_ERR_IO; BP_ERR_FORMAT a value that is beyond the type's largest. */
bp_err bp_gguf_write(bp_gguf_writer *writer, const float *values);
/** fsync and close; always frees. Errors: BP_ERR_IO. */
bp_err bp_gguf_finish(bp_gguf_writer **writer);
/** Close without a promise: the file is thrown away. */
void bp_gguf_drop(bp_gguf_writer **writer);

#endif
