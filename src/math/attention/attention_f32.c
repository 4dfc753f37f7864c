/* Attention of one head in float32; keys and values are read where they are. */
#include "math/attention/attention_priv.h"
#include <string.h>

static int64_t padded(int64_t D)
{
    return bp_round_up(D, 16);
}

/* Where the scratch of disentangled scores begins. */
static int64_t apart_at(const bp_attention_shape *shape)
{
    int64_t D = padded(shape->D);

    return bp_round_up(3 * D * QUERIES + 2 * QUERIES * D +
                           (shape->cap > 0 ? 4 : 3) * KEYS * QUERIES + 5 * QUERIES +
                           2 * bp_key_positions(shape) * D,
                       16);
}

/* The forward pass takes less. */
int64_t bp_head_scratch_f32(const bp_attention_shape *shape)
{
    return apart_at(shape) + bp_apart_scratch(shape);
}

#define PANEL 32

/* Which tile: its first query and key, and how many keys of it there are. */
typedef struct place {
    int64_t q, k, keys;
} place;

/* The product of a tile of QUERIES columns; if they do not all see all keys (its rows, or its
 * summation index), it goes by panels with the seen keys. */
static void multiply(const bp_head *one, const bp_tile *whole, int64_t visible, bool over_keys)
{
    int64_t keys = over_keys ? whole->K : whole->M;

    if (keys <= visible + PANEL) {
        one->loops->tile_product(whole);
        return;
    }
    for (int64_t n = 0; n < QUERIES; n += PANEL) {
        bp_tile part = *whole;
        part.b += n;
        part.c += n;
        part.N = PANEL;
        *(over_keys ? &part.K : &part.M) = bp_min(keys, visible + n + PANEL);
        one->loops->tile_product(&part);
    }
}

/* tile[keys][QUERIES] = rows[keys] transposed[D][QUERIES]: for scores, the queries are already
 * scaled; for gradients of weights, the rows are values. */
static void multiply_rows(const bp_head *one, float *tile, const float *rows,
                          const float *transposed, const place *at)
{
    const bp_tile product = {.c = tile,
                             .c_row = QUERIES,
                             .a = rows + at->k * one->kv_row,
                             .a_row = one->kv_row,
                             .a_column = 1,
                             .b = transposed,
                             .b_row = QUERIES,
                             .M = at->keys,
                             .N = QUERIES,
                             .K = one->shape->D};

    multiply(one, &product, bp_visible(one, at->q, at->k), false);
}

/* sums[D][QUERIES] += rows[keys] transposed, times tile[keys][QUERIES] */
static void add_transposed(const bp_head *one, float *sums, const float *rows, const float *tile,
                           const place *at)
{
    const bp_tile product = {.c = sums,
                             .c_row = QUERIES,
                             .a = rows + at->k * one->kv_row,
                             .a_row = 1,
                             .a_column = one->kv_row,
                             .b = tile,
                             .b_row = QUERIES,
                             .M = one->shape->D,
                             .N = QUERIES,
                             .K = at->keys,
                             .accumulate = true};

    multiply(one, &product, bp_visible(one, at->q, at->k), true);
}

static void forward_tile(const bp_head *one, const bp_head_results *results, int64_t q,
                         float *scratch)
{
    float *apart = one->shape->apart ? scratch + apart_at(one->shape) : NULL;
    const bp_loops *loops = one->loops;
    int64_t D = one->shape->D, rows = bp_min(QUERIES, one->shape->T - q),
            end = bp_keys_seen(one, q, rows);
    float *queries = scratch, *sums = queries + D * QUERIES, *scores = sums + D * QUERIES;
    float *mask = scores + KEYS * QUERIES, *max = mask + KEYS * QUERIES, *sum = max + QUERIES,
          *factor = sum + QUERIES;

    loops->transpose_in(queries, bp_float_at(one->q, q * one->q_row), rows, D, one->q_row,
                        one->scale);
    if (apart)
        bp_apart_queries(one, apart, queries, false);
    memset(sums, 0, (size_t)(D * QUERIES) * sizeof *sums);
    bp_head_start(max, sum);
    for (int64_t k = bp_first_seen(one, q, KEYS); k < end; k += KEYS) {
        int64_t keys = bp_min(KEYS, end - k);
        const place at = {q, k, keys};
        multiply_rows(one, scores, one->k, queries, &at);
        bp_head_cap(one, scores, NULL, keys * QUERIES, 1);
        bp_head_bias(one, scores, QUERIES, q, k, keys, 1);
        if (apart)
            bp_apart_scores(one, apart, scores, q, k, keys);
        bp_head_window(one, scores, QUERIES, q, k, keys);
        loops->tile_softmax(scores, max, sum, factor, keys, bp_visible(one, q, k));
        loops->scale_columns(sums, factor, D);
        if (one->shape->dropout > 0.0f) {
            bp_head_mask(one, mask, q, k, keys);
            loops->multiply(scores, scores, mask, keys * QUERIES);
        }
        add_transposed(one, sums, one->v, scores, &at);
    }
    bp_head_finish(one, results, sums, max, sum, q, rows);
}

void bp_head_forward_f32(const bp_head *one, const bp_head_results *results, int64_t first,
                         int64_t last, float *scratch)
{
    if (one->shape->apart)
        bp_apart_begin(one, scratch + apart_at(one->shape), false);
    for (int64_t tile = first; tile < last; tile++)
        forward_tile(one, results, tile * QUERIES, scratch);
}

/* The backward pass's buffers for a head: tiles of the current queries, and sums for all keys. */
typedef struct workspace {
    float *queries, *douts;          /* [D][QUERIES], transposed; queries scaled */
    float *dqueries;                 /* [D][QUERIES] */
    float *query_rows, *dout_rows;   /* [QUERIES][Dp] */
    float *weights, *dscores, *mask; /* [KEYS][QUERIES] */
    float *delta, *lse;              /* [QUERIES] */
    float *dkeys, *dvalues;          /* [K][Dp] */
    float *slopes;                   /* [KEYS][QUERIES] of capped scores */
    float *apart;                    /* of disentangled scores; may be NULL */
} workspace;

static workspace workspace_of(float *scratch, const bp_attention_shape *shape)
{
    int64_t D = padded(shape->D);
    workspace space = {.queries = scratch};

    space.douts = space.queries + D * QUERIES;
    space.dqueries = space.douts + D * QUERIES;
    space.query_rows = space.dqueries + D * QUERIES;
    space.dout_rows = space.query_rows + QUERIES * D;
    space.weights = space.dout_rows + QUERIES * D;
    space.dscores = space.weights + KEYS * QUERIES;
    space.mask = space.dscores + KEYS * QUERIES;
    space.delta = space.mask + KEYS * QUERIES;
    space.lse = space.delta + QUERIES;
    space.dkeys = space.lse + QUERIES;
    space.dvalues = space.dkeys + bp_key_positions(shape) * D;
    space.slopes = space.dvalues + bp_key_positions(shape) * D;
    space.apart = shape->apart ? scratch + apart_at(shape) : NULL;
    return space;
}

/* Rows of D floats into rows padded with zeros; rows up to QUERIES are zero. */
static void pad_rows(float *y, const float *x, int64_t rows, int64_t D, int64_t x_row)
{
    int64_t width = padded(D);

    memset(y, 0, (size_t)(QUERIES * width) * sizeof *y);
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * width, x + r * x_row, (size_t)D * sizeof *y);
}

static void load_queries(const bp_head *one, const workspace *space, const bp_head_results *results,
                         int64_t q, int64_t rows)
{
    int64_t D = one->shape->D;
    const float *dout = bp_float_at(results->dout, q * one->out_row);

    one->loops->transpose_in(space->queries, bp_float_at(one->q, q * one->q_row), rows, D,
                             one->q_row, one->scale);
    one->loops->transpose_in(space->douts, dout, rows, D, one->out_row, 1.0f);
    pad_rows(space->query_rows, bp_float_at(one->q, q * one->q_row), rows, D, one->q_row);
    pad_rows(space->dout_rows, dout, rows, D, one->out_row);
    bp_head_statistics(one, results, space->lse, space->delta, space->dqueries, space->douts, q,
                       rows);
    memset(space->dqueries, 0, (size_t)(D * QUERIES) * sizeof(float));
    if (space->apart)
        bp_apart_queries(one, space->apart, space->queries, true);
}

/* sums[keys][Dp] += tile[keys][QUERIES] rows[QUERIES][Dp]: if not all queries see all keys, it
 * goes by blocks of keys, each starting at the first panel that sees it. */
static void add_rows(const bp_head *one, float *sums, const float *tile, const float *rows,
                     const place *at)
{
    int64_t width = padded(one->shape->D), visible = bp_visible(one, at->q, at->k);
    int64_t block = at->keys <= visible + PANEL ? KEYS : PANEL;

    for (int64_t key = 0; key < at->keys; key += block) {
        int64_t first = key > visible ? key - visible : 0;
        one->loops->tile_product(&(bp_tile){.c = sums + key * width,
                                            .c_row = width,
                                            .a = tile + key * QUERIES + first,
                                            .a_row = QUERIES,
                                            .a_column = 1,
                                            .b = rows + first * width,
                                            .b_row = width,
                                            .M = bp_min(block, at->keys - key),
                                            .N = width,
                                            .K = QUERIES - first,
                                            .accumulate = true});
    }
}

static void backward_tile(const bp_head *one, const bp_head_results *results,
                          const workspace *space, const bp_head_range *range, const place *at)
{
    const bp_loops *loops = one->loops;
    int64_t width = padded(one->shape->D);
    const float *dropped = space->weights;
    int64_t q = at->q, k = at->k, keys = at->keys;

    multiply_rows(one, space->weights, one->k, space->queries, at);
    bp_head_cap(one, space->weights, space->slopes, keys * QUERIES, 1);
    bp_head_bias(one, space->weights, QUERIES, q, k, keys, 1);
    if (space->apart)
        bp_apart_scores(one, space->apart, space->weights, q, k, keys);
    bp_head_window(one, space->weights, QUERIES, q, k, keys);
    loops->tile_weights(space->weights, space->lse, keys, bp_visible(one, q, k));
    multiply_rows(one, space->dscores, one->v, space->douts, at);
    if (one->shape->dropout > 0.0f) {
        bp_head_mask(one, space->mask, q, k, keys);
        loops->multiply(space->dscores, space->dscores, space->mask, keys * QUERIES);
        loops->multiply(space->mask, space->mask, space->weights, keys * QUERIES);
        dropped = space->mask;
    }
    if (range->of_keys)
        add_rows(one, space->dvalues + k * width, dropped, space->dout_rows, at);
    loops->tile_score_gradient(space->dscores, space->weights, space->delta, keys);
    if (space->apart)
        bp_apart_score_gradients(one, space->apart, space->dscores, q, k, keys);
    bp_head_bias_gradient(one, results->dbias, space->dscores, QUERIES, q, k, keys);
    if (one->shape->cap > 0)
        loops->multiply(space->dscores, space->dscores, space->slopes, keys * QUERIES);
    if (range->of_keys)
        add_rows(one, space->dkeys + k * width, space->dscores, space->query_rows, at);
    if (range->of_queries)
        add_transposed(one, space->dqueries, one->k, space->dscores, at);
}

void bp_head_backward_f32(const bp_head *one, const bp_head_results *results,
                          const bp_head_range *range, float *scratch)
{
    workspace space = workspace_of(scratch, one->shape);
    int64_t D = one->shape->D, T = one->shape->T, width = padded(D), first = bp_range_first(range);

    if (space.apart)
        bp_apart_begin(one, space.apart, true);
    if (range->of_keys)
        memset(space.dkeys, 0, (size_t)(2 * bp_key_positions(one->shape) * width) * sizeof(float));
    for (int64_t q = range->first_query * QUERIES; q < bp_min(range->last_query * QUERIES, T);
         q += QUERIES) {
        int64_t rows = bp_min(QUERIES, T - q), end = bp_range_last(one, range, q, rows);
        if (first >= end)
            continue;
        load_queries(one, &space, results, q, rows);
        int64_t seen = bp_first_seen(one, q, KEYS);
        for (int64_t k = seen > first ? seen : first; k < end; k += KEYS)
            backward_tile(one, results, &space, range, &(place){q, k, bp_min(KEYS, end - k)});
        if (space.apart)
            bp_apart_end_queries(one, space.apart, space.dqueries, space.query_rows);
        if (!range->of_queries)
            continue;
        one->loops->scale(space.dqueries, one->scale, D * QUERIES);
        one->loops->transpose_out(bp_float_at(results->dq, q * one->q_row), space.dqueries, rows, D,
                                  one->q_row);
    }
    if (space.apart)
        bp_apart_end(one, results, space.apart, space.dkeys);
    if (range->of_keys)
        bp_head_store_gradients(one, results, range, space.dkeys, space.dvalues, width);
}
