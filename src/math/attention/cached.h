/* Attention of new positions of sequences to the keys and values of all positions before them,
 * which are cached: one token a sequence, or a prompt.
 *
 * Bits: those of a position of a head depend only on its sequence: neither on the threads, nor on
 * what else is in the call, nor on where the cache has the sequence's positions, nor on how many
 * calls brought them. They are not those of bp_attention_forward, which sums in another order.
 */
#ifndef BP_MATH_ATTENTION_CACHED_H
#define BP_MATH_ATTENTION_CACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_cached_shape {
    int64_t H, key_heads, D; /* on this rank */
    int64_t group, before;   /* head h reads key head (h + before) / group, as in attention.h; group
                                0: H / key_heads */
    int64_t window;          /* a position sees the last `window`, itself included; 0: all */
    bool entmax;             /* as in attention.h */
    float scale;             /* of scores; 0: 1/sqrt(D) */
    float cap;               /* as in attention.h */
    const float *bias; /* [H][capacity]: element capacity - 1 - n of a head's is added to scores of
                          the position n before; NULL: nothing */
    int64_t slots, capacity; /* of the cache: sequences, and positions of each */
    bool stored; /* keys and values are in the cache already: rows are only queries, [count][H][D],
                    and see all positions of their slot up to their own */
} bp_cached_shape;

/** Rows of a call: row r is position positions[r] of sequence slots[r]. Rows of a sequence follow
 * one another in order, and all positions before the first of them are cached. */
typedef struct bp_cached_rows {
    int64_t count;
    const int32_t *positions, *slots;
    const int32_t *cells; /* [slots][capacity]: whose memory in the cache has a sequence's position;
                             no two sequences write to one cell */
} bp_cached_rows;

/** Floats of a cache: [2][slots][key_heads][capacity][D], keys and then values. */
int64_t bp_cached_floats(const bp_cached_shape *shape);

/** out[count][H][D] of qkv[count]: queries of H heads, keys and values of key_heads. Keys and
 * values go into the cache first. scratch: bp_cached_scratch_bytes. */
void bp_attention_cached(float *out, float *cache, const float *qkv, const bp_cached_rows *rows,
                         const bp_cached_shape *shape, void *scratch);
/** Bytes for the threads set now. */
size_t bp_cached_scratch_bytes(const bp_cached_shape *shape);

#endif
