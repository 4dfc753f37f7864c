/* Disentangled scores of a head in float32, and their gradients: products of queries with all
 * positions' keys, tile by tile, and of keys with all positions' queries, once. A score takes from
 * each product the element of its distance. */
#include "math/attention/attention_priv.h"

#include <string.h>

/* ---- scratch ---- */

typedef struct space {
    float *of_queries, *dof_queries; /* [R][QUERIES] of the tile's queries with positions' keys */
    float *of_keys, *dof_keys;       /* [K][Rp] of keys with positions' queries */
    float *transposed;               /* [D][QUERIES] */
    float *padded;                   /* rows [Dp] of keys, or of positions */
    float *dkeys, *dqueries;         /* [R][Dp] of positions */
    int64_t floats;
} space;

static int64_t rows_up(const bp_attention_shape *shape)
{
    return bp_round_up(shape->apart->rows, QUERIES);
}

static int64_t width_of(const bp_attention_shape *shape)
{
    return bp_round_up(shape->D, 16);
}

static float *take(float *scratch, int64_t *used, int64_t floats)
{
    float *here = scratch ? scratch + *used : NULL;

    *used += bp_round_up(floats, 16);
    return here;
}

static space space_of(float *scratch, const bp_attention_shape *shape)
{
    int64_t R = rows_up(shape), K = bp_key_positions(shape), D = width_of(shape), n = 0;
    space s = {0};

    s.of_queries = take(scratch, &n, R * QUERIES);
    s.dof_queries = take(scratch, &n, R * QUERIES);
    s.of_keys = take(scratch, &n, K * R);
    s.dof_keys = take(scratch, &n, K * R);
    s.transposed = take(scratch, &n, shape->D * QUERIES);
    s.padded = take(scratch, &n, (K > R ? K : R) * D);
    s.dkeys = take(scratch, &n, R * D);
    s.dqueries = take(scratch, &n, R * D);
    s.floats = n;
    return s;
}

int64_t bp_apart_scratch(const bp_attention_shape *shape)
{
    return shape->apart ? space_of(NULL, shape).floats : 0;
}

/* ---- forward ---- */

void bp_apart_begin(const bp_head *one, float *scratch, bool backward)
{
    const bp_attention_shape *shape = one->shape;
    space s = space_of(scratch, shape);
    int64_t R = rows_up(shape), rows = shape->apart->rows, D = shape->D;

    for (int64_t r = 0; r < rows; r += QUERIES) {
        one->loops->transpose_in(s.transposed, one->position_queries + r * one->position_row,
                                 bp_min(QUERIES, rows - r), D, one->position_row, one->scale);
        one->loops->tile_product(&(bp_tile){.c = s.of_keys + r,
                                            .c_row = R,
                                            .a = one->k,
                                            .a_row = one->kv_row,
                                            .a_column = 1,
                                            .b = s.transposed,
                                            .b_row = QUERIES,
                                            .M = one->keys,
                                            .N = QUERIES,
                                            .K = D});
    }
    if (!backward)
        return;
    memset(s.dof_keys, 0, (size_t)(one->keys * R) * sizeof(float));
    memset(s.dkeys, 0, (size_t)(R * width_of(shape)) * sizeof(float));
    memset(s.dqueries, 0, (size_t)(R * width_of(shape)) * sizeof(float));
}

void bp_apart_queries(const bp_head *one, float *scratch, const float *queries, bool backward)
{
    const bp_attention_shape *shape = one->shape;
    space s = space_of(scratch, shape);

    one->loops->tile_product(&(bp_tile){.c = s.of_queries,
                                        .c_row = QUERIES,
                                        .a = one->position_keys,
                                        .a_row = one->position_row,
                                        .a_column = 1,
                                        .b = queries,
                                        .b_row = QUERIES,
                                        .M = shape->apart->rows,
                                        .N = QUERIES,
                                        .K = shape->D});
    if (backward)
        memset(s.dof_queries, 0, (size_t)(rows_up(shape) * QUERIES) * sizeof(float));
}

void bp_apart_scores(const bp_head *one, float *scratch, float *scores, int64_t q, int64_t k,
                     int64_t keys)
{
    space s = space_of(scratch, one->shape);
    int64_t R = rows_up(one->shape);

    for (int64_t j = 0; j < keys; j++) {
        const int32_t *row = one->shape->apart->row + bp_bias_at(one, q, k + j);
        const float *of_key = s.of_keys + (k + j) * R;

        for (int64_t i = 0; i < QUERIES; i++)
            scores[j * QUERIES + i] += s.of_queries[row[i] * QUERIES + i] + of_key[row[i]];
    }
}

/* ---- backward ---- */

void bp_apart_score_gradients(const bp_head *one, float *scratch, const float *dscores, int64_t q,
                              int64_t k, int64_t keys)
{
    space s = space_of(scratch, one->shape);
    int64_t R = rows_up(one->shape), rows = bp_min(QUERIES, one->shape->T - q);

    for (int64_t j = 0; j < keys; j++) {
        const int32_t *row = one->shape->apart->row + bp_bias_at(one, q, k + j);
        float *dof_key = s.dof_keys + (k + j) * R;

        for (int64_t i = 0; i < rows; i++) {
            s.dof_queries[row[i] * QUERIES + i] += dscores[j * QUERIES + i];
            dof_key[row[i]] += dscores[j * QUERIES + i];
        }
    }
}

void bp_apart_end_queries(const bp_head *one, float *scratch, float *dqueries,
                          const float *query_rows)
{
    const bp_attention_shape *shape = one->shape;
    space s = space_of(scratch, shape);
    int64_t D = width_of(shape);

    one->loops->tile_product(&(bp_tile){.c = dqueries,
                                        .c_row = QUERIES,
                                        .a = one->position_keys,
                                        .a_row = 1,
                                        .a_column = one->position_row,
                                        .b = s.dof_queries,
                                        .b_row = QUERIES,
                                        .M = shape->D,
                                        .N = QUERIES,
                                        .K = shape->apart->rows,
                                        .accumulate = true});
    one->loops->tile_product(&(bp_tile){.c = s.dkeys,
                                        .c_row = D,
                                        .a = s.dof_queries,
                                        .a_row = QUERIES,
                                        .a_column = 1,
                                        .b = query_rows,
                                        .b_row = D,
                                        .M = shape->apart->rows,
                                        .N = D,
                                        .K = QUERIES,
                                        .accumulate = true});
}

/* Rows of D floats, `row` apart, into rows of width_of. */
static const float *pad(const bp_head *one, float *to, const float *x, int64_t rows, int64_t row)
{
    int64_t D = one->shape->D, width = width_of(one->shape);

    memset(to, 0, (size_t)(rows * width) * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * width, x + r * row, (size_t)D * sizeof *to);
    return to;
}

static void store(const bp_head *one, float *to, float *sums)
{
    int64_t D = one->shape->D, width = width_of(one->shape), rows = one->shape->apart->rows;

    one->loops->scale(sums, one->scale, rows * width);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * one->position_row, sums + r * width, (size_t)D * sizeof *to);
}

void bp_apart_end(const bp_head *one, const bp_head_results *results, float *scratch, float *dkeys)
{
    const bp_attention_shape *shape = one->shape;
    space s = space_of(scratch, shape);
    int64_t R = rows_up(shape), rows = shape->apart->rows, D = width_of(shape);

    one->loops->tile_product(
        &(bp_tile){.c = dkeys,
                   .c_row = D,
                   .a = s.dof_keys,
                   .a_row = R,
                   .a_column = 1,
                   .b = pad(one, s.padded, one->position_queries, rows, one->position_row),
                   .b_row = D,
                   .M = one->keys,
                   .N = D,
                   .K = rows,
                   .accumulate = true});
    one->loops->tile_product(&(bp_tile){.c = s.dqueries,
                                        .c_row = D,
                                        .a = s.dof_keys,
                                        .a_row = 1,
                                        .a_column = R,
                                        .b = pad(one, s.padded, one->k, one->keys, one->kv_row),
                                        .b_row = D,
                                        .M = rows,
                                        .N = D,
                                        .K = one->keys,
                                        .accumulate = true});
    store(one, results->dposition_keys, s.dkeys);
    store(one, results->dposition_queries, s.dqueries);
}
