/* Attention of one head with bf16 products: operands are rounded and packed, sums and the softmax
 * stay float32.
 *
 * The left side of a product is bf16 in rows, the right side pairs of rows
 * (math/bf16/bf16_tiles.h). Keys and values are packed once per head. Queries are in panels of
 * BP_PANEL. A panel is multiplied with the keys of a block that one of its queries sees, in whole
 * blocks of 32.
 */
#include "math/attention/attention_priv.h"
#include "math/bf16/bf16_passes.h"
#include <math.h>
#include <string.h>

#define BLOCK  BP_BF16_BLOCK
#define PANEL  BP_PANEL
#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453
/* Keys of a block of the forward pass, and queries that share a pass over the keys: larger values
 * reload sums, keys and values less often. */
#define FAR   64
#define GROUP 128

/* Everything that a pass takes from its scratch. Dp is D in whole blocks, Tp is K in whole blocks
 * of FAR. */
typedef struct workspace {
    uint16_t *key_rows, *value_rows; /* [Tp][Dp] */
    uint16_t *transposed;            /* values [Tp / FAR][Dp][FAR], or keys [Tp / KEYS][Dp][KEYS] */
    float *dkeys, *dvalues;          /* [Tp][Dp] */
    uint32_t *queries, *douts;       /* by panel pairs [Dp / 2][PANEL]; queries scaled */
    uint32_t *query_rows, *dout_rows;     /* pairs [GROUP / 2][Dp] */
    float *sums;                          /* by panel [Dp][PANEL] */
    float *scores[2], *dweights[2];       /* [FAR][PANEL]; of the stages in turn */
    uint16_t *left_weights, *left_scores; /* [KEYS][GROUP] */
    bp_panel_bits *kept;                  /* [FAR] */
    float *top, *sum, *factor;            /* [GROUP]; lse and delta in the backward pass */
    int64_t floats;
} workspace;

/* The next `bytes` of the scratch; with NULL it only counts them. */
static void *take(float *scratch, int64_t *floats, int64_t bytes)
{
    float *here = scratch ? scratch + *floats : NULL;

    *floats += bp_round_up(bytes, 64) / 4;
    return here;
}

static workspace workspace_of(float *scratch, const bp_attention_shape *shape)
{
    int64_t D = bp_round_up(shape->D, BLOCK), T = bp_round_up(bp_key_positions(shape), FAR), n = 0;
    workspace space = {0};

    space.key_rows = take(scratch, &n, T * D * 2);
    space.value_rows = take(scratch, &n, T * D * 2);
    space.transposed = take(scratch, &n, T * D * 2);
    space.dkeys = take(scratch, &n, T * D * 4);
    space.dvalues = take(scratch, &n, T * D * 4);
    space.queries = take(scratch, &n, D * GROUP * 2);
    space.douts = take(scratch, &n, D * GROUP * 2);
    space.query_rows = take(scratch, &n, D * GROUP * 2);
    space.dout_rows = take(scratch, &n, D * GROUP * 2);
    space.sums = take(scratch, &n, D * GROUP * 4);
    for (int i = 0; i < 2; i++) {
        space.scores[i] = take(scratch, &n, FAR * PANEL * 4);
        space.dweights[i] = take(scratch, &n, KEYS * PANEL * 4);
    }
    space.left_weights = take(scratch, &n, KEYS * GROUP * 2);
    space.left_scores = take(scratch, &n, KEYS * GROUP * 2);
    space.kept = take(scratch, &n, FAR * (int64_t)sizeof(bp_panel_bits));
    space.top = take(scratch, &n, GROUP * 4);
    space.sum = take(scratch, &n, GROUP * 4);
    space.factor = take(scratch, &n, GROUP * 4);
    space.floats = n;
    return space;
}

int64_t bp_head_scratch_bf16(const bp_attention_shape *shape)
{
    return workspace_of(NULL, shape).floats;
}

static int64_t padded(const bp_head *one)
{
    return bp_round_up(one->shape->D, BLOCK);
}

/* Rows [first, first + most) of queries, or as many as there are. */
static bp_bf16_rows queries_of(const bp_head *one, int64_t first, int64_t most)
{
    return (bp_bf16_rows){bp_value_at(one->q, first * one->q_row, one->halves),
                          bp_min(most, one->shape->T - first), one->shape->D, one->q_row,
                          one->halves};
}

/* The same for outputs, or their gradients. */
static bp_bf16_rows outs_of(const bp_head *one, const void *out, int64_t first, int64_t most)
{
    return (bp_bf16_rows){bp_value_at(out, first * one->out_row, one->out_halves),
                          bp_min(most, one->shape->T - first), one->shape->D, one->out_row,
                          one->out_halves};
}

/* The same of keys or values. */
static bp_bf16_rows keys_of(const bp_head *one, const void *x, int64_t first, int64_t most)
{
    return (bp_bf16_rows){bp_value_at(x, first * one->kv_row, one->halves),
                          bp_min(most, one->keys - first), one->shape->D, one->kv_row, one->halves};
}

/* Keys of the block of `block` at k that some query of the panel at q sees; 0 or less if there are
 * no such keys. If queries see later keys, all panels of a tile use all keys of a block. */
static int64_t keys_seen(const bp_head *one, int64_t q, int64_t k, int64_t block)
{
    int64_t end = one->shape->causal ? bp_keys_seen(one, q, PANEL) : one->keys;

    return bp_min(block, end - k);
}

/* Keys and values of [first, last) as a pass reads them; first is a multiple of FAR or of KEYS. */
static void pack_keys(const bp_head *one, const workspace *space, int64_t first, int64_t last,
                      bool backward)
{
    const bp_bf16_passes *passes = one->tiles->passes;
    int64_t width = padded(one), block = backward ? KEYS : FAR;

    for (int64_t k = first; k < last; k += block) {
        bp_bf16_rows keys = keys_of(one, one->k, k, bp_min(block, last - k)),
                     values = keys_of(one, one->v, k, bp_min(block, last - k));
        passes->rows(space->key_rows + k * width, &keys, block);
        if (backward)
            passes->rows(space->value_rows + k * width, &values, block);
        passes->transposed_rows(space->transposed + k * width, backward ? &keys : &values, block);
    }
}

/* A panel against a block of keys, in a pipeline of three stages: products for its scores, vector
 * operations on the scores, products with their result. Each stage overlaps with other stages of
 * the previous and next panels. */
typedef struct visit {
    int64_t q, k, at,
        keys; /* the tile's first query; the panel's place in the tile; 0 keys: no panel */
    float *scores, *dweights; /* and then weights, or pairs of the scores' gradients */
    bool first;               /* of the panel: its sums begin */
} visit;

/* The last three, and how many there were. */
typedef struct pipeline {
    visit next, now, before;
    int64_t count;
} pipeline;

static void enter(pipeline *line, const workspace *space, const visit *next)
{
    line->before = line->now;
    line->now = line->next;
    line->next = *next;
    line->next.scores = space->scores[line->count % 2];
    line->next.dweights = space->dweights[line->count % 2];
    line->count++;
}

/* c[keys][PANEL] = rows[keys][Dp] pairs[Dp][PANEL] */
static bp_bf16_tile rows_product(const bp_head *one, float *c, const uint16_t *rows,
                                 const uint32_t *pairs, int64_t keys)
{
    return (bp_bf16_tile){.c = c,
                          .c_row = PANEL,
                          .a = rows,
                          .a_row = padded(one),
                          .a_streams = true,
                          .b = pairs,
                          .b_row = PANEL,
                          .M = bp_round_up(keys, BLOCK),
                          .N = PANEL,
                          .K = padded(one)};
}

/* sums[Dp][PANEL] (+)= transposed[Dp][keys] pairs[keys][PANEL]; `row` keys are between rows. */
static bp_bf16_tile transposed_product(const bp_head *one, float *sums, const uint16_t *transposed,
                                       int64_t row, const float *pairs, const visit *panel)
{
    return (bp_bf16_tile){.c = sums,
                          .c_row = PANEL,
                          .a = transposed,
                          .a_row = row,
                          .a_streams = true,
                          .b = (const uint32_t *)(const void *)pairs,
                          .b_row = PANEL,
                          .M = padded(one),
                          .N = PANEL,
                          .K = bp_round_up(panel->keys, BLOCK),
                          .accumulate = !panel->first};
}

static const bp_panel_bits *mask_of(const bp_head *one, const workspace *space, const visit *panel)
{
    if (one->shape->dropout == 0.0f)
        return NULL;
    one->tiles->passes->mask(space->kept, &one->mask, panel->keys,
                             one->first_place + (panel->q + panel->at) * one->place_row + panel->k,
                             one->place_row);
    return space->kept;
}

/* Operations on the products of queries and keys before the softmax. */
static void finish_scores(const bp_head *one, const visit *panel)
{
    int64_t q = panel->q + panel->at;

    bp_head_cap(one, panel->scores, NULL, panel->keys * PANEL, (float)LOG2_E);
    bp_head_bias(one, panel->scores, PANEL, q, panel->k, panel->keys, (float)LOG2_E);
    bp_head_window(one, panel->scores, PANEL, q, panel->k, panel->keys);
}

static void weigh_panel(const bp_head *one, const workspace *space, const visit *panel)
{
    const bp_bf16_passes *passes = one->tiles->passes;
    int64_t at = panel->at;

    finish_scores(one, panel);
    bp_panel_softmax softmax = {.scores = panel->scores,
                                .weights = (uint32_t *)(void *)panel->scores,
                                .top = space->top + at,
                                .sum = space->sum + at,
                                .factor = space->factor + at,
                                .kept = mask_of(one, space, panel),
                                .keys = panel->keys,
                                .visible = bp_visible(one, panel->q + at, panel->k)};
    if (passes->softmax(&softmax) && !panel->first)
        passes->scale_panel(space->sums + at * padded(one), space->factor + at, padded(one));
}

/* Accumulates one panel, weighs the next, and computes the scores of the one after that. */
static void forward_step(const bp_head *one, const workspace *space, pipeline *line,
                         const visit *enters)
{
    int64_t width = padded(one);
    bp_bf16_tile products[2];
    int count = 0;

    enter(line, space, enters);
    const visit *before = &line->before, *next = &line->next;
    if (before->keys > 0)
        products[count++] =
            transposed_product(one, space->sums + before->at * width,
                               space->transposed + before->k * width, FAR, before->scores, before);
    if (next->keys > 0)
        products[count++] = rows_product(one, next->scores, space->key_rows + next->k * width,
                                         space->queries + next->at * width / 2, next->keys);
    one->tiles->products(products, count);
    if (line->now.keys > 0)
        weigh_panel(one, space, &line->now);
}

/* Write out and lse of the panel at q. */
static void finish_panel(const bp_head *one, const bp_head_results *results, const workspace *space,
                         int64_t q, int64_t at)
{
    bp_bf16_rows shape = outs_of(one, results->out, q + at, PANEL);
    float *factor = space->factor + at, kept = one->shape->dropout > 0.0f ? one->mask.scale : 1.0f;

    for (int64_t i = 0; i < PANEL; i++) {
        float sum = space->sum[at + i];
        bool nothing = bp_saw_nothing(space->top[at + i]);
        if (i < shape.rows)
            results->lse[q + at + i] =
                nothing ? 0.0f : space->top[at + i] * (float)LN_2 + logf(sum);
        factor[i] = nothing ? 0.0f : kept / sum;
    }
    one->tiles->passes->turn_back((void *)shape.x, one->out_row, space->sums + at * padded(one),
                                  factor, &shape, false);
}

static void forward_tile(const bp_head *one, const bp_head_results *results, const workspace *space,
                         int64_t q, int64_t rows)
{
    int64_t width = padded(one), end = bp_keys_seen(one, q, rows);
    pipeline line = {0};

    for (int64_t at = 0; at < rows; at += PANEL) {
        bp_bf16_rows queries = queries_of(one, q + at, PANEL);
        one->tiles->passes->transposed_pairs(space->queries + at * width / 2, &queries,
                                             (float)(LOG2_E * (double)one->scale));
    }
    for (int64_t i = 0; i < GROUP; i++) {
        space->top[i] = -INFINITY;
        space->sum[i] = 0.0f;
    }
    for (int64_t at = 0; at < rows; at += PANEL) {
        int64_t first = bp_first_seen(one, q + at, FAR);
        for (int64_t k = first; k < end && keys_seen(one, q + at, k, FAR) > 0; k += FAR)
            forward_step(one, space, &line,
                         &(visit){.q = q,
                                  .k = k,
                                  .at = at,
                                  .keys = keys_seen(one, q + at, k, FAR),
                                  .first = k == first});
    }
    forward_step(one, space, &line, &(visit){0});
    forward_step(one, space, &line, &(visit){0});
    for (int64_t at = 0; at < rows; at += PANEL)
        finish_panel(one, results, space, q, at);
}

void bp_head_forward_bf16(const bp_head *one, const bp_head_results *results, int64_t first,
                          int64_t last, float *scratch)
{
    workspace space = workspace_of(scratch, one->shape);
    int64_t T = one->shape->T, end = bp_min(last * QUERIES, T);

    if (first == last)
        return;
    one->tiles->begin();
    pack_keys(one, &space, 0, one->shape->causal ? bp_min(end, one->keys) : one->keys, false);
    for (int64_t q = first * QUERIES; q < end; q += GROUP)
        forward_tile(one, results, &space, q, bp_min(GROUP, end - q));
    one->tiles->end();
}

/* The whole forward pass of the queries of the tile at q. */
static void load_queries(const bp_head *one, const workspace *space, const bp_head_results *results,
                         int64_t q, int64_t rows)
{
    const bp_bf16_passes *passes = one->tiles->passes;
    int64_t width = padded(one);
    bp_bf16_rows queries = queries_of(one, q, rows), douts = outs_of(one, results->dout, q, rows);

    passes->row_pairs(space->query_rows, &queries, GROUP);
    passes->row_pairs(space->dout_rows, &douts, GROUP);
    for (int64_t at = 0; at < rows; at += PANEL) {
        bp_bf16_rows query = queries_of(one, q + at, PANEL),
                     dout = outs_of(one, results->dout, q + at, PANEL),
                     out = outs_of(one, results->out, q + at, PANEL);
        passes->transposed_pairs(space->queries + at * width / 2, &query,
                                 (float)(LOG2_E * (double)one->scale));
        passes->transposed_pairs(space->douts + at * width / 2, &dout, 1.0f);
        passes->row_products(space->sum + at, out.x, &dout);
    }
    for (int64_t i = 0; i < GROUP; i++)
        space->top[i] = i < rows ? results->lse[q + i] * (float)LOG2_E : 0.0f;
}

/* To the precision of the stored scores' gradients: rounded. */
static void add_bias_gradient(const bp_head *one, float *dbias, const workspace *space,
                              const visit *panel)
{
    int64_t q = panel->q + panel->at, rows = bp_min(PANEL, one->shape->T - q);

    for (int64_t j = 0; dbias && j < panel->keys; j++) {
        float dscores[PANEL];

        one->loops->from_bf16(dscores, space->left_scores + j * GROUP + panel->at, rows);
        one->loops->add(dbias + bp_bias_at(one, q, panel->k + j), dscores, rows);
    }
}

/* Weights and their gradients of the panel's part of a block of keys. */
static void weigh_gradients(const bp_head *one, const bp_head_results *results,
                            const workspace *space, const visit *panel)
{
    int64_t at = panel->at;

    finish_scores(one, panel);
    bp_panel_gradient gradient = {.scores = panel->scores,
                                  .dweights = panel->dweights,
                                  .lse = space->top + at,
                                  .delta = space->sum + at,
                                  .weights = space->left_weights + at,
                                  .dscores = space->left_scores + at,
                                  .pairs = (uint32_t *)(void *)panel->dweights,
                                  .kept = mask_of(one, space, panel),
                                  .kept_factor = one->mask.scale,
                                  .cap = one->shape->cap * (float)LOG2_E,
                                  .keys = panel->keys,
                                  .visible = bp_visible(one, panel->q + at, panel->k),
                                  .row = GROUP};
    one->tiles->passes->gradient(&gradient);
    add_bias_gradient(one, results->dbias, space, panel);
}

/* sums[keys][Dp] += left[keys][queries] pairs[queries][Dp] */
static bp_bf16_tile sum_product(const bp_head *one, float *sums, const uint16_t *left,
                                const uint32_t *pairs, int64_t keys, int64_t queries)
{
    return (bp_bf16_tile){.c = sums,
                          .c_row = padded(one),
                          .a = left,
                          .a_row = GROUP,
                          .b = pairs,
                          .b_row = padded(one),
                          .M = keys,
                          .N = padded(one),
                          .K = queries,
                          .accumulate = true};
}

/* Gradients of the keys and values of the block at k, from the panels that see them: all keys at
 * once, or BLOCK by BLOCK if some queries of the tile do not see them. */
static void add_key_gradients(const bp_head *one, const workspace *space, int64_t q, int64_t rows,
                              int64_t k)
{
    int64_t width = padded(one), last = bp_round_up(bp_min(k + KEYS, one->keys), BLOCK),
            unit = one->shape->causal && last - BLOCK > q ? BLOCK : last - k;
    bp_bf16_tile products[2 * KEYS / BLOCK];
    int count = 0;

    for (int64_t at = k; at < last; at += unit) {
        int64_t first = one->shape->causal && at > q ? at - q : 0,
                queries = bp_round_up(rows, PANEL) - first, left = (at - k) * GROUP + first;
        if (queries <= 0)
            break;
        products[count++] =
            sum_product(one, space->dvalues + at * width, space->left_weights + left,
                        space->dout_rows + first / 2 * width, unit, queries);
        products[count++] = sum_product(one, space->dkeys + at * width, space->left_scores + left,
                                        space->query_rows + first / 2 * width, unit, queries);
    }
    one->tiles->products(products, count);
}

/* Accumulates the queries' gradient of one panel, weighs the next, and computes the scores of the
 * one after that. Once all panels of a block are weighed, it accumulates the gradients of keys and
 * values. */
static void backward_step(const bp_head *one, const bp_head_results *results,
                          const workspace *space, const bp_head_range *range, pipeline *line,
                          const visit *enters, int64_t rows)
{
    int64_t width = padded(one);
    bp_bf16_tile products[3];
    int count = 0;

    enter(line, space, enters);
    const visit *before = &line->before, *now = &line->now, *next = &line->next;
    if (before->keys > 0 && range->of_queries)
        products[count++] = transposed_product(one, space->sums + before->at * width,
                                               space->transposed + before->k * width, KEYS,
                                               before->dweights, before);
    if (next->keys > 0) {
        products[count++] = rows_product(one, next->scores, space->key_rows + next->k * width,
                                         space->queries + next->at * width / 2, next->keys);
        products[count++] = rows_product(one, next->dweights, space->value_rows + next->k * width,
                                         space->douts + next->at * width / 2, next->keys);
    }
    one->tiles->products(products, count);
    if (now->keys == 0)
        return;
    weigh_gradients(one, results, space, now);
    if (range->of_keys && (next->keys == 0 || next->k != now->k))
        add_key_gradients(one, space, now->q, rows, now->k);
}

static void store_query_gradients(const bp_head *one, const bp_head_results *results,
                                  const workspace *space, int64_t q, int64_t rows)
{
    for (int64_t i = 0; i < PANEL; i++)
        space->factor[i] = one->scale;
    for (int64_t at = 0; at < rows; at += PANEL) {
        bp_bf16_rows shape = queries_of(one, q + at, PANEL);
        void *dq = bp_value_at(results->dq, (q + at) * one->q_row, one->halves);
        one->tiles->passes->turn_back(dq, one->q_row, space->sums + at * padded(one), space->factor,
                                      &shape, true);
    }
}

/* Gradients of the queries of the tile at q against the keys [first, end). */
static void backward_tile(const bp_head *one, const bp_head_results *results,
                          const workspace *space, const bp_head_range *range, int64_t q,
                          int64_t rows)
{
    int64_t first = bp_range_first(range), end = bp_range_last(one, range, q, rows),
            seen = bp_first_seen(one, q, KEYS);
    pipeline line = {0};

    if (first >= end)
        return;
    load_queries(one, space, results, q, rows);
    first = seen > first ? seen : first;
    for (int64_t k = first; k < end; k += KEYS)
        for (int64_t at = 0; at < rows; at += PANEL) {
            int64_t keys = keys_seen(one, q + at, k, KEYS);
            if (keys > 0)
                backward_step(one, results, space, range, &line,
                              &(visit){.q = q, .k = k, .at = at, .keys = keys, .first = k == first},
                              rows);
        }
    for (int i = 0; i < 2; i++)
        backward_step(one, results, space, range, &line, &(visit){0}, rows);
    if (range->of_queries)
        store_query_gradients(one, results, space, q, rows);
}

/* Write dk and dv of the range. */
static void store_gradients(const bp_head *one, const bp_head_results *results,
                            const bp_head_range *range, const workspace *space)
{
    int64_t first = bp_range_first(range), last = bp_min(range->last_key * KEYS, one->keys),
            width = padded(one);
    float kept = one->shape->dropout > 0.0f ? one->mask.scale : 1.0f;
    bp_bf16_rows shape = keys_of(one, one->k, first, last - first);

    void *dk = bp_value_at(results->dk, first * results->dkv_row, one->halves),
         *dv = bp_value_at(results->dv, first * results->dkv_row, one->halves);
    one->tiles->passes->scaled_rows(dk, results->dkv_row, space->dkeys + first * width, one->scale,
                                    &shape);
    one->tiles->passes->scaled_rows(dv, results->dkv_row, space->dvalues + first * width, kept,
                                    &shape);
}

void bp_head_backward_bf16(const bp_head *one, const bp_head_results *results,
                           const bp_head_range *range, float *scratch)
{
    workspace space = workspace_of(scratch, one->shape);
    int64_t T = one->shape->T, width = padded(one), first = bp_range_first(range),
            last = bp_min(range->last_key * KEYS, one->keys),
            end = bp_min(range->last_query * QUERIES, T);
    size_t bytes = (size_t)((bp_round_up(last, KEYS) - first) * width) * sizeof(float);

    if (first >= last)
        return;
    one->tiles->begin();
    pack_keys(one, &space, first, last, true);
    if (range->of_keys) {
        memset(space.dkeys + first * width, 0, bytes);
        memset(space.dvalues + first * width, 0, bytes);
    }
    for (int64_t q = range->first_query * QUERIES; q < end; q += GROUP)
        backward_tile(one, results, &space, range, q, bp_min(GROUP, end - q));
    one->tiles->end();
    if (range->of_keys)
        store_gradients(one, results, range, &space);
}
