/* GGUF files: keys with values, a list of tensors, and the tensors' bytes.
 *
 * Versions 2 and 3, little-endian; tensors of F32, F16, BF16 and Q8_0. Read as hostile: counts are
 * checked against the file's size before allocation. Tensors are read in parts.
 * Local: no MPI.
 * Source: ggml-org/ggml, docs/gguf.md.
 */
#pragma once

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_GGUF_DIMS  4
#define BP_GGUF_BLOCK 32 /* values in a block of Q8_0 */

/* Numbered as in files. */
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
    int64_t shape[BP_GGUF_DIMS]; /* outermost first, as in safetensors files */
    int64_t count, row;          /* values; values of a row */
    int64_t place, bytes;        /* in the file */
} bp_gguf_tensor;

typedef struct bp_gguf bp_gguf;

/** Does a file begin like a GGUF file? */
bool bp_gguf_is(const char *path);
/** Open and check everything except the tensors' values: counts, strings, UTF-8, alignment,
 * adjacent tensors within the file.
 *
 * Owns:   *out is the caller's, bp_gguf_close(); NULL on failure.
 * Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT with the fault and its byte; BP_ERR_IO,
 *         BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_gguf_open(bp_gguf **out, const char *path);
void bp_gguf_close(bp_gguf **file);
const char *bp_gguf_path(const bp_gguf *file);

/** The keys with their values: numbers (a float32 as the same double), strings, booleans, lists.
 * Borrowed. */
const json_t *bp_gguf_keys(const bp_gguf *file);
/** Tensors in the order of their data. */
int64_t bp_gguf_count(const bp_gguf *file);
const bp_gguf_tensor *bp_gguf_at(const bp_gguf *file, int64_t k);
/** NULL if there is none. */
const bp_gguf_tensor *bp_gguf_find(const bp_gguf *file, const char *name);

/** out[count] = values from `first` on, exactly. Errors: BP_ERR_IO. */
bp_err bp_gguf_read(const bp_gguf *file, const bp_gguf_tensor *tensor, int64_t first, int64_t count,
                    float *out);

/* ---- writing ---- */

/** Bytes of `count` values, in whole rows. */
int64_t bp_gguf_bytes(bp_gguf_type type, int64_t count);

typedef struct bp_gguf_writer bp_gguf_writer;

/** Create a file of version 3, replacing an old one, for tensors written in this order; reads name,
 * type, dims and shape of each. keys: an object like that of bp_gguf_keys; integers become u32 (in
 * lists i32), other numbers f32, and lists have one type.
 *
 * Owns:   *out is the caller's, bp_gguf_finish() or _drop(); NULL on failure. Names are borrowed
 *         until then.
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_gguf_create(bp_gguf_writer **out, const char *path, const json_t *keys,
                      const bp_gguf_tensor *tensors, int64_t count);
/** Write all values of the next tensor. F16 and BF16: round to nearest, ties to even. Q8_0: d =
 * largest magnitude / 127 of a block, q = value / d rounded to nearest, halves away from zero.
 *
 * Errors: BP_ERR_IO; BP_ERR_FORMAT a value that is beyond the type's largest. */
bp_err bp_gguf_write(bp_gguf_writer *writer, const float *values);
/** fsync and close; always frees. Errors: BP_ERR_IO. */
bp_err bp_gguf_finish(bp_gguf_writer **writer);
/** Close without errors: the file will be discarded. */
void bp_gguf_drop(bp_gguf_writer **writer);
