/* A slice of a logical tensor: the part in a rank's memory, the intersection of slices, and the
 * division into contiguous parts. Layers, optimizers and checkpoints use it. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "base/files/hash.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_TENSOR_MAX_EXTENT ((int64_t)1 << 31) /* of one dimension */
#define BP_TENSOR_MAX_VOLUME ((int64_t)1 << 40) /* elements */
#define BP_TENSOR_DIMS       4
#define BP_TENSOR_NAME       121

/** A slice of a logical tensor (float32) that is contiguous, row-major, in this rank's memory.
 * An empty slice is fine. */
typedef struct bp_slice {
    char name[BP_TENSOR_NAME]; /* "h.3.attn.q.weight", "adamw.m/h.3.attn.q.weight"; [a-z0-9_./] */
    int dims;
    int64_t shape[BP_TENSOR_DIMS];  /* of the whole tensor */
    int64_t offset[BP_TENSOR_DIMS]; /* where the slice begins */
    int64_t extent[BP_TENSOR_DIMS];
    float *data; /* product of extent floats; borrowed */
} bp_slice;

/** Letters of [a-z0-9_.], in parts joined by '/', 1 to 120 in all; no part is empty, of only dots,
 * or "p0", "p1"... */
bool bp_tensor_name_is_valid(const char *name);

/** The product of dims extents; false where one is negative, or the product goes beyond
 * BP_TENSOR_MAX_VOLUME. */
bool bp_slice_volume(int dims, const int64_t *extent, int64_t *volume);
/** The same for checked extents. */
int64_t bp_checked_volume(int dims, const int64_t *extent);

/** Errors: BP_ERR_FORMAT: name, dims, shape, or a slice that leaves the tensor. A slice may be
 * empty.
 */
bp_err bp_slice_check(const bp_slice *slice);

/** "(300, 64)". */
void bp_shape_text(char *out, size_t out_bytes, int dims, const int64_t *shape);

/** The intersection of two slices of one tensor; false if it is empty. */
bool bp_slice_intersect(int dims, const int64_t *offset_a, const int64_t *extent_a,
                        const int64_t *offset_b, const int64_t *extent_b, int64_t *offset,
                        int64_t *extent);

/** Add the slice's elements, each under its place in the whole tensor; or `count` of them from the
 * first-th on, `values`. */
void bp_slice_digest(bp_digest *digest, const bp_slice *slice, const float *data);
void bp_slice_digest_part(bp_digest *digest, const bp_slice *slice, int64_t first,
                          const float *values, int64_t count);

/** True where all values are finite. */
bool bp_are_finite(const float *values, int64_t count);

/** Cut a slice into parts that are contiguous in its memory: part `k` has `count` floats from
 * `first` on and is the sub-slice (start, size), relative to the slice. False when there is no part
 * k. Parts are at most `limit` floats. */
typedef struct bp_part {
    int64_t first, count;
    int64_t start[BP_TENSOR_DIMS], size[BP_TENSOR_DIMS];
} bp_part;
bool bp_slice_part(bp_part *part, const bp_slice *slice, int64_t limit, int64_t k);
/** The part as a slice of the same tensor, without data. */
bp_slice bp_slice_of_part(const bp_slice *slice, const bp_part *part);
