/* Relative positions: a bias of a score by the distance of a key from its query, learned per
 * bucket of distances and head, or fixed (ALiBi). Source: Raffel et al. 2020, T5, section 2.1,
 * following its program. */
#pragma once

#include "math/attention/attention.h"

typedef struct bp_relative {
    int64_t buckets;  /* if both sides count, half of them are for keys after the query */
    int64_t distance; /* keys at this distance and beyond share the last bucket */
    bool two_sided;   /* else keys after the query share bucket 0 with its own position */
} bp_relative;

/** The bucket of a key `offset` positions after its query, before it if negative. With N buckets
 * for a side, the first N/2 are for one distance each, the others for logarithmically growing runs
 * up to `distance`. */
int64_t bp_relative_bucket(const bp_relative *by, int64_t offset);

/** shape->bias for bp_attention_forward and backward: bias[H][bp_bias_floats] of table[buckets][H],
 * the heads of `shape`; and dtable += its gradient, from dbias[B][H][...]. Local. */
void bp_relative_fill(float *bias, const float *table, const bp_relative *by,
                      const bp_attention_shape *shape);
void bp_relative_gradient(float *dtable, const float *dbias, const bp_relative *by,
                          const bp_attention_shape *shape);
/** The bias of cached.h, [H][capacity], for positions before `end`. Local. */
void bp_relative_fill_cached(float *bias, const float *table, const bp_relative *by, int64_t H,
                             int64_t capacity, int64_t end);

/** For disentangled scores (attention.h), as in the program of He et al. 2023, "DeBERTaV3": maps
 * distances to 2 span rows, where span is `buckets`, or without buckets `distance`.
 */
typedef struct bp_distances {
    int64_t buckets;  /* 0: each distance has its own row */
    int64_t distance; /* distances from this one on share the last row */
} bp_distances;

/** The row of a query `offset` positions after its key, before it if negative. Distances up to half
 * of the buckets have one each, the others share logarithmically growing runs. */
int64_t bp_distance_row(const bp_distances *by, int64_t offset);
void bp_distance_rows(int32_t *row, const bp_distances *by, const bp_attention_shape *shape);

/** The same biases for ALiBi, where a score gets its head's slope times the key's offset, 0 after
 * the query: for the heads of `shape`, heads [first_head, first_head + H) of all. */
void bp_alibi_fill(float *bias, const bp_attention_shape *shape);
void bp_alibi_fill_cached(float *bias, int64_t first_head, int64_t heads, int64_t H,
                          int64_t capacity, int64_t end);
