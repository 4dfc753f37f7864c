/* Attention of one head with bf16 products: operands are rounded and packed, sums and the softmax
 * stay float32.
 *
 * The left side of a product is bf16 in rows, the right side pairs of rows (bf16_tiles_priv.h).
 * Keys and values are packed once a head: in rows, and turned, by tiles of KEYS.
 */
#include "math/attention_priv.h"
#include <string.h>

/* All that a pass takes of its scratch. Dp is D in whole blocks, Tp is T in whole tiles. */
typedef struct workspace {
    uint16_t *key_rows, *value_rows;       /* [Tp][Dp] */
    uint16_t *turned_keys, *turned_values; /* [Tp / KEYS][Dp][KEYS] */
    float *dkeys, *dvalues;                /* [Tp][Dp] */
    uint32_t *queries, *douts;             /* pairs [Dp / 2][QUERIES]; queries scaled */
    uint32_t *query_rows, *dout_rows;      /* pairs [QUERIES / 2][Dp] */
    float *turned, *sums;                  /* [Dp][QUERIES] */
    float *scores, *dscores, *mask;        /* [KEYS][QUERIES] */
    uint16_t *left;                        /* [KEYS][QUERIES] */
    uint32_t *right;                       /* pairs [KEYS / 2][QUERIES] */
    float *max, *sum, *factor;             /* [QUERIES]; lse and delta in the backward pass */
    int64_t floats;
} workspace;

/* The next `bytes` of the scratch; at NULL only their number counts. */
static void *take(float *scratch, int64_t *floats, int64_t bytes)
{
    float *here = scratch ? scratch + *floats : NULL;

    *floats += bp_round_up(bytes, 64) / 4;
    return here;
}

static workspace workspace_of(float *scratch, const bp_attention_shape *shape)
{
    int64_t D = bp_round_up(shape->D, BP_BF16_BLOCK), T = bp_round_up(shape->T, KEYS), n = 0;
    workspace space = {0};

    space.key_rows = take(scratch, &n, T * D * 2);
    space.value_rows = take(scratch, &n, T * D * 2);
    space.turned_keys = take(scratch, &n, T * D * 2);
    space.turned_values = take(scratch, &n, T * D * 2);
    space.dkeys = take(scratch, &n, T * D * 4);
    space.dvalues = take(scratch, &n, T * D * 4);
    space.queries = take(scratch, &n, D * QUERIES * 2);
    space.douts = take(scratch, &n, D * QUERIES * 2);
    space.query_rows = take(scratch, &n, D * QUERIES * 2);
    space.dout_rows = take(scratch, &n, D * QUERIES * 2);
    space.turned = take(scratch, &n, D * QUERIES * 4);
    space.sums = take(scratch, &n, D * QUERIES * 4);
    space.scores = take(scratch, &n, KEYS * QUERIES * 4);
    space.dscores = take(scratch, &n, KEYS * QUERIES * 4);
    space.mask = take(scratch, &n, KEYS * QUERIES * 4);
    space.left = take(scratch, &n, KEYS * QUERIES * 2);
    space.right = take(scratch, &n, KEYS * QUERIES * 2);
    space.max = take(scratch, &n, QUERIES * 4);
    space.sum = take(scratch, &n, QUERIES * 4);
    space.factor = take(scratch, &n, QUERIES * 4);
    space.floats = n;
    return space;
}

int64_t bp_head_scratch_bf16(const bp_attention_shape *shape)
{
    return workspace_of(NULL, shape).floats;
}

static int64_t padded(const bp_head *one)
{
    return bp_round_up(one->shape->D, BP_BF16_BLOCK);
}

/* y[rows up to `all`][Dp] = x, rounded; the rest is 0. */
static void pack_rows(const bp_head *one, uint16_t *y, const float *x, int64_t rows, int64_t all)
{
    int64_t D = one->shape->D, width = padded(one);

    memset(y, 0, (size_t)(all * width) * sizeof *y);
    for (int64_t r = 0; r < rows; r++)
        one->loops->to_bf16(y + r * width, x + r * one->row, D);
}

/* y[Dp][KEYS] = x[rows][D] turned and rounded; `turned` is room for it. */
static void pack_turned(const bp_head *one, uint16_t *y, float *turned, const float *x,
                        int64_t rows)
{
    int64_t D = one->shape->D;

    one->loops->transpose_in(turned, x, rows, D, one->row, 1.0f);
    one->loops->to_bf16(y, turned, D * KEYS);
    memset(y + D * KEYS, 0, (size_t)((padded(one) - D) * KEYS) * sizeof *y);
}

/* Pairs of rows of x, of which there are `rows`; up to `all` the rest is 0. */
static void pack_pairs(const bp_head *one, uint32_t *y, const float *x, int64_t rows, int64_t all,
                       int64_t columns, int64_t x_row, int64_t y_row)
{
    for (int64_t r = 0; r < all; r += 2) {
        uint32_t *pairs = y + r / 2 * y_row;
        if (r < rows)
            one->loops->pair_bf16(pairs, x + r * x_row, r + 1 < rows ? x + (r + 1) * x_row : NULL,
                                  columns);
        else
            memset(pairs, 0, (size_t)columns * sizeof *y);
    }
}

/* Keys and values of [first, last) as the passes read them; first is a multiple of KEYS. */
static void pack_keys(const bp_head *one, const workspace *space, int64_t first, int64_t last,
                      bool backward)
{
    int64_t width = padded(one), all = bp_round_up(last, KEYS) - first;
    const float *k = one->k + first * one->row, *v = one->v + first * one->row;

    pack_rows(one, space->key_rows + first * width, k, last - first, all);
    if (backward)
        pack_rows(one, space->value_rows + first * width, v, last - first, all);
    for (int64_t at = first; at < last; at += KEYS) {
        int64_t keys = bp_least(KEYS, last - at);
        if (backward)
            pack_turned(one, space->turned_keys + at * width, space->turned, one->k + at * one->row,
                        keys);
        else
            pack_turned(one, space->turned_values + at * width, space->turned,
                        one->v + at * one->row, keys);
    }
}

/* y (pairs [Dp / 2][QUERIES]) = x[rows][D] turned and scaled; `turned` is left holding it in
 * float32. */
static void pack_queries(const bp_head *one, uint32_t *y, float *turned, const float *x,
                         int64_t rows, int64_t x_row, float scale)
{
    one->loops->transpose_in(turned, x, rows, one->shape->D, x_row, scale);
    pack_pairs(one, y, turned, one->shape->D, padded(one), QUERIES, QUERIES, QUERIES);
}

/* c[KEYS][QUERIES] = rows[KEYS][Dp] pairs[Dp][QUERIES] */
static void multiply_rows(const bp_head *one, float *c, const uint16_t *rows, const uint32_t *pairs)
{
    one->tiles->product(&(bp_bf16_tile){.c = c,
                                        .c_row = QUERIES,
                                        .a = rows,
                                        .a_row = padded(one),
                                        .b = pairs,
                                        .b_row = QUERIES,
                                        .M = KEYS,
                                        .N = QUERIES,
                                        .K = padded(one)});
}

/* sums[Dp][QUERIES] += turned[Dp][KEYS] right[KEYS][QUERIES] */
static void add_turned(const bp_head *one, float *sums, const uint16_t *turned,
                       const uint32_t *right)
{
    one->tiles->product(&(bp_bf16_tile){.c = sums,
                                        .c_row = QUERIES,
                                        .a = turned,
                                        .a_row = KEYS,
                                        .b = right,
                                        .b_row = QUERIES,
                                        .M = padded(one),
                                        .N = QUERIES,
                                        .K = KEYS,
                                        .accumulate = true});
}

/* sums[KEYS][Dp] += left[KEYS][QUERIES] pairs[QUERIES][Dp] */
static void add_rows(const bp_head *one, float *sums, const uint16_t *left, const uint32_t *pairs)
{
    one->tiles->product(&(bp_bf16_tile){.c = sums,
                                        .c_row = padded(one),
                                        .a = left,
                                        .a_row = QUERIES,
                                        .b = pairs,
                                        .b_row = padded(one),
                                        .M = KEYS,
                                        .N = padded(one),
                                        .K = QUERIES,
                                        .accumulate = true});
}

static void forward_tile(const bp_head *one, const bp_head_results *results, const workspace *space,
                         int64_t q)
{
    const bp_loops *loops = one->loops;
    int64_t width = padded(one), rows = bp_least(QUERIES, one->shape->T - q),
            end = bp_keys_seen(one, q, rows);

    pack_queries(one, space->queries, space->turned, one->q + q * one->row, rows, one->row,
                 one->scale);
    memset(space->sums, 0, (size_t)(width * QUERIES) * sizeof(float));
    bp_head_start(space->max, space->sum);
    for (int64_t k = 0; k < end; k += KEYS) {
        int64_t keys = bp_least(KEYS, end - k);
        multiply_rows(one, space->scores, space->key_rows + k * width, space->queries);
        loops->tile_softmax(space->scores, space->max, space->sum, space->factor, keys,
                            bp_visible(one, q, k));
        loops->scale_columns(space->sums, space->factor, width);
        if (one->shape->dropout > 0.0f) {
            bp_head_mask(one, space->mask, q, k, keys);
            loops->multiply(space->scores, space->scores, space->mask, keys * QUERIES);
        }
        pack_pairs(one, space->right, space->scores, keys, KEYS, QUERIES, QUERIES, QUERIES);
        add_turned(one, space->sums, space->turned_values + k * width, space->right);
    }
    bp_head_finish(one, results, space->sums, space->max, space->sum, q, rows);
}

void bp_head_forward_bf16(const bp_head *one, const bp_head_results *results, int64_t first,
                          int64_t last, float *scratch)
{
    workspace space = workspace_of(scratch, one->shape);
    int64_t T = one->shape->T;

    if (first == last)
        return;
    one->tiles->begin();
    pack_keys(one, &space, 0, one->shape->causal ? bp_least(last * QUERIES, T) : T, false);
    for (int64_t tile = first; tile < last; tile++)
        forward_tile(one, results, &space, tile * QUERIES);
    one->tiles->end();
}

static void load_queries(const bp_head *one, const workspace *space, const bp_head_results *results,
                         int64_t q, int64_t rows)
{
    int64_t D = one->shape->D, width = padded(one);
    const float *query = one->q + q * one->row, *dout = results->dout + q * one->out_row;

    pack_queries(one, space->queries, space->turned, query, rows, one->row, one->scale);
    pack_queries(one, space->douts, space->turned, dout, rows, one->out_row, 1.0f);
    bp_head_statistics(one, results, space->max, space->sum, space->sums, space->turned, q, rows);
    memset(space->query_rows, 0, (size_t)(QUERIES / 2 * width) * sizeof(uint32_t));
    memset(space->dout_rows, 0, (size_t)(QUERIES / 2 * width) * sizeof(uint32_t));
    pack_pairs(one, space->query_rows, query, rows, rows, D, one->row, width);
    pack_pairs(one, space->dout_rows, dout, rows, rows, D, one->out_row, width);
    memset(space->sums, 0, (size_t)(width * QUERIES) * sizeof(float));
}

/* The left side [KEYS][QUERIES] of a product from a tile of which `keys` rows count. */
static void pack_left(const bp_head *one, uint16_t *left, const float *tile, int64_t keys)
{
    one->loops->to_bf16(left, tile, keys * QUERIES);
    memset(left + keys * QUERIES, 0, (size_t)((KEYS - keys) * QUERIES) * sizeof *left);
}

static void backward_tile(const bp_head *one, const workspace *space, const bp_head_range *range,
                          int64_t q, int64_t k, int64_t keys)
{
    const bp_loops *loops = one->loops;
    int64_t width = padded(one);
    const float *lse = space->max, *delta = space->sum, *dropped = space->scores;

    multiply_rows(one, space->scores, space->key_rows + k * width, space->queries);
    loops->tile_weights(space->scores, lse, keys, bp_visible(one, q, k));
    multiply_rows(one, space->dscores, space->value_rows + k * width, space->douts);
    if (one->shape->dropout > 0.0f) {
        bp_head_mask(one, space->mask, q, k, keys);
        loops->multiply(space->dscores, space->dscores, space->mask, keys * QUERIES);
        loops->multiply(space->mask, space->mask, space->scores, keys * QUERIES);
        dropped = space->mask;
    }
    if (range->of_keys) {
        pack_left(one, space->left, dropped, keys);
        add_rows(one, space->dvalues + k * width, space->left, space->dout_rows);
    }
    loops->tile_score_gradient(space->dscores, space->scores, delta, keys);
    if (range->of_keys) {
        pack_left(one, space->left, space->dscores, keys);
        add_rows(one, space->dkeys + k * width, space->left, space->query_rows);
    }
    if (!range->of_queries)
        return;
    pack_pairs(one, space->right, space->dscores, keys, KEYS, QUERIES, QUERIES, QUERIES);
    add_turned(one, space->sums, space->turned_keys + k * width, space->right);
}

void bp_head_backward_bf16(const bp_head *one, const bp_head_results *results,
                           const bp_head_range *range, float *scratch)
{
    workspace space = workspace_of(scratch, one->shape);
    int64_t D = one->shape->D, T = one->shape->T, width = padded(one),
            first = bp_range_first(range);

    one->tiles->begin();
    pack_keys(one, &space, first, bp_least(range->last_key * KEYS, T), true);
    if (range->of_keys) {
        memset(space.dkeys, 0, (size_t)(bp_round_up(T, KEYS) * width) * sizeof(float));
        memset(space.dvalues, 0, (size_t)(bp_round_up(T, KEYS) * width) * sizeof(float));
    }
    for (int64_t q = range->first_query * QUERIES; q < bp_least(range->last_query * QUERIES, T);
         q += QUERIES) {
        int64_t rows = bp_least(QUERIES, T - q), end = bp_range_last(one, range, q, rows);
        if (first >= end)
            continue;
        load_queries(one, &space, results, q, rows);
        for (int64_t k = first; k < end; k += KEYS)
            backward_tile(one, &space, range, q, k, bp_least(KEYS, end - k));
        if (!range->of_queries)
            continue;
        one->loops->scale(space.sums, one->scale, D * QUERIES);
        one->loops->transpose_out(results->dq + q * one->row, space.sums, rows, D, one->row);
    }
    one->tiles->end();
    if (range->of_keys)
        bp_head_store_gradients(one, results, range, space.dkeys, space.dvalues, width);
}
