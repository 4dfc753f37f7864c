/* Attention of new positions of sequences to the cached keys and values of all earlier positions:
 * one token per sequence, or a prompt.
 *
 * Bits: the result at a position of a head depends only on its sequence: not on the threads, on
 * other data in the call, on the sequence's place in the cache, or on the number of calls that
 * filled it. It differs from bp_attention_forward, which sums in another order.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_cached_shape {
    int64_t H, key_heads, D; /* on this rank */
    int64_t group, before;   /* head h reads key head (h + before) / group, as in attention.h; group
                                0: H / key_heads */
    int64_t window;          /* a position sees the last `window`, itself included; 0: all */
    bool entmax;             /* as in attention.h */
    float scale;             /* scale of scores; 0: 1/sqrt(D) */
    float cap;               /* as in attention.h */
    const float *bias; /* [H][capacity]: element capacity - 1 - n of a head is added to scores of
                          the position n before; may be NULL */
    int64_t slots, capacity; /* sequences in the cache, and positions of each */
    bool stored; /* keys and values are already in the cache: rows are only queries, [count][H][D],
                    and see all positions of their slot up to their own */
} bp_cached_shape;

/** Rows of a call: row r is position positions[r] of sequence slots[r]. Rows of a sequence are
 * consecutive and in order, and all positions before the first of them are cached. */
typedef struct bp_cached_rows {
    int64_t count;
    const int32_t *positions, *slots;
    const int32_t *cells; /* [slots][capacity]: the slot whose memory in the cache holds a
                             sequence's position; no two sequences write to one cell */
} bp_cached_rows;

/** Floats of a cache: [2][slots][key_heads][capacity][D], keys and then values. */
int64_t bp_cached_floats(const bp_cached_shape *shape);

/** out[count][H][D] of qkv[count]: queries of H heads, keys and values of key_heads. It first
 * writes keys and values to the cache. scratch: bp_cached_scratch_bytes. */
void bp_attention_cached(float *out, float *cache, const float *qkv, const bp_cached_rows *rows,
                         const bp_cached_shape *shape, void *scratch);
/** Bytes for the threads set now. */
size_t bp_cached_scratch_bytes(const bp_cached_shape *shape);
