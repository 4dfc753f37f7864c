/* Disentangled attention: a score is the product of a query and a key, and of each of them with the
 * other as it is projected from their distance. Source: He et al. 2021, "DeBERTa", section 3.1;
 * distances in buckets as in the program of He et al. 2023, "DeBERTaV3". */
#ifndef BP_MATH_ATTENTION_DISENTANGLED_H
#define BP_MATH_ATTENTION_DISENTANGLED_H

#include "math/attention/attention.h"

/** Of query q and key k, r = row[q - k + K - 1]: the score is scale (q k + q keys[r] +
 * queries[r] k). */
typedef struct bp_disentangled {
    int64_t rows;                /* R */
    const int32_t *row;          /* [bp_bias_floats], each below R */
    const float *keys, *queries; /* [R][H D], of the heads on this rank */
} bp_disentangled;

/** How distances become rows: 2 span of them, span being `buckets`, or without buckets `distance`.
 */
typedef struct bp_distances {
    int64_t buckets;  /* 0: each distance has its own row */
    int64_t distance; /* from which on all have the last one */
} bp_distances;

/** The row of a query `offset` places after its key, before it if negative. Distances up to half of
 * the buckets have one each, the others share logarithmically growing runs. */
int64_t bp_distance_row(const bp_distances *by, int64_t offset);
void bp_distance_rows(int32_t *row, const bp_distances *by, const bp_attention_shape *shape);

#endif
