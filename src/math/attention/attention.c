/* Attention in tiles of BP_TILE_QUERIES queries by BP_TILE_KEYS keys: the division of work among
 * threads. (bf16 uses larger tiles: attention_bf16.c.)
 *
 * A tile of scores is [key][query]: queries are the vector lanes, so maxima and sums need no step
 * across lanes. A thread takes a run of query tiles of one (sequence, head) in the forward pass;
 * in the backward pass one (sequence, head), or, if there are few, a run of its queries or of its
 * keys. One thread sums each output in the order of tiles, so the division does not change bits.
 */
#include "math/attention/attention.h"
#include "base/err.h"
#include "base/numbers.h"
#include "base/trace.h"
#include "math/attention/attention_priv.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include <math.h>
#include <omp.h>
#include <string.h>

/* Gradients of one query head's keys and values, if several heads share them. */
static int64_t group_floats(const bp_attention_shape *shape)
{
    return bp_key_heads(shape) == shape->H
               ? 0
               : bp_round_up(2 * bp_key_positions(shape) * shape->D, 16);
}

/* Floats of one thread's scratch, in whole cache lines. */
static int64_t scratch_floats(bp_precision precision, const bp_attention_shape *shape)
{
    int64_t floats = shape->entmax ? bp_head_scratch_entmax(shape) : bp_head_scratch_f32(shape);

    if (shape->entmax)
        return floats + group_floats(shape);
    if (precision == BP_BF16)
        floats = bp_max(floats, bp_head_scratch_bf16(shape));
    return bp_round_up(floats, 16) + group_floats(shape);
}

/* The last tile's queries extend beyond T. */
int64_t bp_bias_floats(const bp_attention_shape *shape)
{
    return shape->T > 0 ? bp_round_up(shape->T, QUERIES) + bp_key_positions(shape) - 1 : 0;
}

size_t bp_attention_scratch_bytes(bp_precision precision, const bp_attention_shape *shape)
{
    return (size_t)bp_math_threads() * (size_t)scratch_floats(precision, shape) * sizeof(float);
}

bool bp_attention_takes_halves(const bp_gemm *gemm, const bp_attention_shape *shape)
{
    return bp_gemm_bf16_tiles(gemm) && !shape->entmax && !shape->apart &&
           bp_key_heads(shape) == shape->H;
}

static bp_head head_of(const bp_gemm *gemm, const bp_attention_input *in, const bp_operand *out,
                       const bp_attention_shape *shape, int64_t b, int64_t h)
{
    int64_t K = bp_key_positions(shape), keys = shape->lengths ? shape->lengths[b] : K;
    int64_t at = b * K * in->kv_row + (h + shape->before) / bp_group_heads(shape) * shape->D;
    bp_head one = {
        .shape = shape,
        .loops = bp_loops_best(),
        .tiles = shape->apart ? NULL : bp_gemm_bf16_tiles(gemm),
        .halves = in->halves,
        .out_halves = out->form == BP_OPERAND_BF16,
        .q = bp_value_at(in->q, b * shape->T * in->q_row + h * shape->D, in->halves),
        .k = bp_value_at(in->k, at, in->halves),
        .v = bp_value_at(in->v, at, in->halves),
        .q_row = in->q_row,
        .kv_row = in->kv_row,
        .out_row = out->stride,
        .keys = keys,
        .place_row = bp_round_up(shape->slot_K > 0 ? shape->slot_K : K, 4),
        .scale = shape->scale > 0 ? shape->scale : (float)(1.0 / sqrt((double)shape->D)),
        .bias = shape->bias ? shape->bias + h * bp_bias_floats(shape) : NULL,
    };

    BP_ASSERT(bp_attention_takes_halves(gemm, shape) || (!one.halves && !one.out_halves));
    BP_ASSERT(keys >= 0 && keys <= K && (!shape->causal || K == shape->T));
    BP_ASSERT(shape->window == 0 || (K == shape->T && !(shape->causal && shape->lengths)));
    BP_ASSERT(shape->cap == 0 || (!shape->entmax && !(one.tiles && shape->bias)));
    if (shape->apart) {
        one.position_keys = shape->apart->keys + h * shape->D;
        one.position_queries = shape->apart->queries + h * shape->D;
        one.position_row = shape->H * shape->D;
        BP_ASSERT(!shape->causal && !shape->entmax && shape->cap == 0 && K == shape->T &&
                  bp_key_heads(shape) == shape->H);
    }
    one.first_place = ((shape->first_sequence + b) * shape->all_heads + shape->first_head + h) *
                      (shape->slot_T > 0 ? shape->slot_T : shape->T) * one.place_row;
    if (shape->dropout > 0.0f)
        one.mask = bp_mask_of(shape->dropout, shape->key);
    return one;
}

/* Rows [first, last) of one head are 0. */
static void clear_rows(void *x, bool halves, int64_t row, int64_t D, int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++)
        memset(bp_value_at(x, t * row, halves), 0,
               (size_t)D * (halves ? sizeof(uint16_t) : sizeof(float)));
}

void bp_head_mask(const bp_head *one, float *mask, int64_t q, int64_t k, int64_t keys)
{
    one->loops->tile_mask(mask, &one->mask, keys, one->first_place + q * one->place_row + k,
                          one->place_row);
}

void bp_head_start(float *max, float *sum)
{
    for (int i = 0; i < QUERIES; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
}

void bp_head_finish(const bp_head *one, const bp_head_results *results, float *sums,
                    const float *max, float *sum, int64_t q, int64_t rows)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        bool nothing = bp_saw_nothing(max[i]);
        if (i < rows)
            results->lse[q + i] = nothing ? 0.0f : max[i] + logf(sum[i]);
        sum[i] = nothing ? 0.0f : 1.0f / sum[i];
    }
    one->loops->scale_columns(sums, sum, one->shape->D);
    one->loops->transpose_out(bp_float_at(results->out, q * one->out_row), sums, rows,
                              one->shape->D, one->out_row);
}

void bp_head_store_gradients(const bp_head *one, const bp_head_results *results,
                             const bp_head_range *range, float *dkeys, const float *dvalues,
                             int64_t width)
{
    int64_t first = bp_range_first(range), last = bp_min(range->last_key * KEYS, one->keys);
    size_t bytes = (size_t)one->shape->D * sizeof(float);

    one->loops->scale(dkeys + first * width, one->scale, (last - first) * width);
    for (int64_t t = first; t < last; t++) {
        memcpy(bp_float_at(results->dk, t * results->dkv_row), dkeys + t * width, bytes);
        memcpy(bp_float_at(results->dv, t * results->dkv_row), dvalues + t * width, bytes);
    }
}

void bp_head_statistics(const bp_head *one, const bp_head_results *results, float *lse,
                        float *delta, float *workspace, const float *douts, int64_t q, int64_t rows)
{
    int64_t D = one->shape->D;

    memset(delta, 0, QUERIES * sizeof *delta);
    one->loops->transpose_in(workspace, bp_float_at(results->out, q * one->out_row), rows, D,
                             one->out_row, 1.0f);
    one->loops->multiply(workspace, workspace, douts, D * QUERIES);
    one->loops->column_sums(delta, workspace, D, QUERIES, QUERIES);
    for (int64_t i = 0; i < QUERIES; i++)
        lse[i] = i < rows ? results->lse[q + i] : 0.0f;
}

/* The number of parts for the query tiles of a head: several if there are too few heads for the
 * threads. */
static int64_t parts_of(int64_t heads, int64_t tiles)
{
    int64_t threads = omp_get_max_threads();

    return heads >= 4 * threads || heads % threads == 0 ? 1 : bp_min(tiles, 4 * threads);
}

/* First tile of a part: a causal tile's cost is proportional to its number, so the division goes
 * by the square. */
static int64_t part_start(int64_t tiles, int64_t parts, int64_t part, bool causal)
{
    double share = (double)part / (double)parts;

    return part == parts ? tiles : (int64_t)((double)tiles * (causal ? sqrt(share) : share));
}

/* Number of query-key products; each is a multiply-add per number of a head. */
static double attention_pairs(const bp_attention_shape *shape)
{
    double T = (double)shape->T, K = (double)bp_key_positions(shape),
           W = (double)bp_min(shape->window > 0 ? shape->window : shape->T, shape->T),
           pairs = shape->causal ? W * (W + 1) / 2 + (T - W) * W : T * (shape->window > 0 ? W : K);

    return (double)(shape->B * shape->H * shape->D) * pairs;
}

/* The rows of head h of sequence b. */
static void *head_rows(const bp_head *one, const bp_operand *out, int64_t b, int64_t h)
{
    const bp_attention_shape *shape = one->shape;

    return bp_value_at(out->data, b * shape->T * out->stride + h * shape->D, one->out_halves);
}

static void forward_head(const bp_head *one, const bp_head_results *results, int64_t first,
                         int64_t last, float *scratch)
{
    int64_t T = one->shape->T, end = bp_min(last * QUERIES, T);

    if (one->keys == 0) {
        clear_rows(results->out, one->out_halves, one->out_row, one->shape->D, first * QUERIES,
                   end);
        clear_rows(results->lse, false, 1, 1, first * QUERIES, end);
        return;
    }
    if (one->shape->entmax) {
        bp_head_forward_entmax(one, results, first * QUERIES, end, scratch);
        return;
    }
    (one->tiles ? bp_head_forward_bf16 : bp_head_forward_f32)(one, results, first, last, scratch);
}

void bp_attention_forward(bp_gemm *gemm, const bp_operand *out, float *lse,
                          const bp_attention_input *in, const bp_attention_shape *shape,
                          void *scratch)
{
    int64_t heads = shape->B * shape->H, tiles = (shape->T + QUERIES - 1) / QUERIES;
    int64_t parts = shape->apart ? 1 : parts_of(heads, tiles),
            floats = scratch_floats(bp_gemm_precision(gemm), shape);

    BP_TRACE(BP_TRACE_ATTENTION_FORWARD, 4.0 * attention_pairs(shape), 0);
    BP_ASSERT(shape->dropout >= 0.0f && shape->dropout < 1.0f);
#pragma omp parallel for collapse(2) schedule(dynamic) if (heads * shape->T > 64)
    for (int64_t part = 0; part < parts; part++) {
        for (int64_t i = 0; i < heads; i++) {
            int64_t b = i / shape->H, h = i % shape->H;
            int64_t first = part_start(tiles, parts, part, shape->causal);
            int64_t last = part_start(tiles, parts, part + 1, shape->causal);
            bp_head one = head_of(gemm, in, out, shape, b, h);
            bp_head_results results = {.out = head_rows(&one, out, b, h),
                                       .lse = lse + i * shape->T};
            forward_head(&one, &results, first, last,
                         (float *)scratch + omp_get_thread_num() * floats);
        }
    }
}

/* A unit of the backward pass: a whole head; or, with several parts, a part of its queries, then a
 * part of its keys. */
static bp_head_range range_of(const bp_attention_shape *shape, int64_t parts, int64_t unit)
{
    int64_t part = unit / 2, tiles = (shape->T + QUERIES - 1) / QUERIES,
            key_tiles = (bp_key_positions(shape) + KEYS - 1) / KEYS;
    bool causal = shape->causal;
    bp_head_range range = {0, tiles, 0, key_tiles, true, true};

    if (parts == 1)
        return range;
    if (unit % 2 == 0) {
        range.of_keys = false;
        range.first_query = part_start(tiles, parts, part, causal);
        range.last_query = part_start(tiles, parts, part + 1, causal);
        range.last_key = causal ? range.last_query : key_tiles;
    } else { /* the first keys are seen by the most queries */
        range.of_queries = false;
        range.first_key = key_tiles - part_start(key_tiles, parts, parts - part, causal);
        range.last_key = key_tiles - part_start(key_tiles, parts, parts - part - 1, causal);
    }
    return range;
}

/* Parts of a head: a whole head costs 5 products of tiles, parts cost 7 in total, because scores
 * are computed twice. */
static int64_t backward_parts(int64_t heads, int64_t tiles)
{
    int64_t threads = omp_get_max_threads(), rounds = (heads + threads - 1) / threads;
    bool parted = tiles > 1 && 7.5 * (double)heads / (double)threads < 5.0 * (double)rounds;

    return parted ? bp_min(tiles, 2 * (threads + heads - 1) / heads) : 1;
}

/* A text of padding only. */
static void clear_positions(const bp_head *one, const bp_head_results *results)
{
    int64_t rows = one->shape->apart ? one->shape->apart->rows : 0;

    clear_rows(results->dposition_keys, false, one->position_row, one->shape->D, 0, rows);
    clear_rows(results->dposition_queries, false, one->position_row, one->shape->D, 0, rows);
}

static void backward_head(const bp_head *one, const bp_head_results *results,
                          const bp_head_range *range, float *scratch)
{
    int64_t K = bp_key_positions(one->shape), D = one->shape->D;
    int64_t first = bp_max(bp_range_first(range), one->keys),
            last = bp_min(range->last_key * KEYS, K);

    if (one->keys > 0 && one->shape->entmax)
        bp_head_backward_entmax(one, results, scratch);
    else if (one->keys > 0)
        (one->tiles ? bp_head_backward_bf16 : bp_head_backward_f32)(one, results, range, scratch);
    else if (range->of_queries)
        clear_rows(results->dq, one->halves, one->q_row, D, range->first_query * QUERIES,
                   bp_min(range->last_query * QUERIES, one->shape->T));
    if (one->keys == 0)
        clear_positions(one, results);
    if (range->of_keys) {
        clear_rows(results->dk, one->halves, results->dkv_row, D, first, last);
        clear_rows(results->dv, one->halves, results->dkv_row, D, first, last);
    }
}

/* dk and dv += those of one more query head. */
static void add_group(const bp_head *one, const bp_head_results *sum, const bp_head_results *more)
{
    int64_t K = bp_key_positions(one->shape), D = one->shape->D;

    for (int64_t t = 0; t < K; t++) {
        one->loops->add(bp_float_at(sum->dk, t * sum->dkv_row),
                        bp_float_at(more->dk, t * more->dkv_row), D);
        one->loops->add(bp_float_at(sum->dv, t * sum->dkv_row),
                        bp_float_at(more->dv, t * more->dkv_row), D);
    }
}

typedef struct backward_call {
    const bp_gemm *gemm;
    const bp_attention_gradients *to;
    const bp_operand *dout, *out;
    const float *lse;
    const bp_attention_input *in;
    const bp_attention_shape *shape;
    int64_t parts, floats; /* of scratch */
} backward_call;

/* A unit of the query heads that share key head `kv` of sequence b, in their order. */
static void backward_group(const backward_call *call, int64_t b, int64_t kv, int64_t unit,
                           float *scratch)
{
    const bp_attention_shape *shape = call->shape;
    const bp_attention_input *in = call->in;
    int64_t first = bp_group_first(shape, kv), end = bp_group_first(shape, kv + 1),
            K = bp_key_positions(shape), D = shape->D, of_keys = b * K * in->kv_row + kv * D;
    float *more = scratch + call->floats - group_floats(shape);
    bp_head_range range = range_of(shape, call->parts, unit);
    bp_head_results sum = {.dk = bp_value_at(call->to->dk, of_keys, in->halves),
                           .dv = bp_value_at(call->to->dv, of_keys, in->halves),
                           .dkv_row = in->kv_row};

    for (int64_t h = first; h < end; h++) {
        int64_t query = b * shape->T * in->q_row + h * D;
        bp_head one = head_of(call->gemm, in, call->out, shape, b, h);
        bp_head_results results = {.out = head_rows(&one, call->out, b, h),
                                   .lse = (float *)call->lse + (b * shape->H + h) * shape->T,
                                   .dout = head_rows(&one, call->dout, b, h),
                                   .dq = bp_value_at(call->to->dq, query, in->halves),
                                   .dk = sum.dk,
                                   .dv = sum.dv,
                                   .dkv_row = sum.dkv_row};

        if (call->to->dbias) {
            int64_t floats = bp_bias_floats(shape);

            results.dbias = call->to->dbias + (b * shape->H + h) * floats;
            memset(results.dbias, 0, (size_t)floats * sizeof(float));
        }
        if (shape->apart) {
            int64_t at = b * shape->apart->rows * shape->H * D + h * D;

            results.dposition_keys = call->to->dposition_keys + at;
            results.dposition_queries = call->to->dposition_queries + at;
        }
        if (h > first) {
            results.dk = more;
            results.dv = more + K * D;
            results.dkv_row = D;
        }
        backward_head(&one, &results, &range, scratch);
        if (h > first)
            add_group(&one, &sum, &results);
    }
}

void bp_attention_backward(bp_gemm *gemm, const bp_attention_gradients *to, const bp_operand *dout,
                           const bp_operand *out, const float *lse, const bp_attention_input *in,
                           const bp_attention_shape *shape, void *scratch)
{
    int64_t heads = shape->B * bp_key_heads(shape), K = bp_key_positions(shape);
    int64_t tiles = (bp_min(shape->T, K) + QUERIES - 1) / QUERIES;
    /* heads of a group are added one by one, whole, as are gradients of a head's biases */
    bool whole = bp_key_heads(shape) < shape->H || shape->entmax || shape->bias || shape->apart;
    backward_call call = {gemm,
                          to,
                          dout,
                          out,
                          lse,
                          in,
                          shape,
                          whole ? 1 : backward_parts(heads, tiles),
                          scratch_floats(bp_gemm_precision(gemm), shape)};
    int64_t units = call.parts == 1 ? 1 : 2 * call.parts;

    BP_TRACE(BP_TRACE_ATTENTION_BACKWARD, 10.0 * attention_pairs(shape), 0);
    BP_ASSERT(shape->dropout >= 0.0f && shape->dropout < 1.0f);
    BP_ASSERT(dout->form == out->form && dout->stride == out->stride);
    BP_ASSERT(bp_group_first(shape, bp_key_heads(shape)) == shape->H &&
              bp_group_first(shape, bp_key_heads(shape) - 1) < shape->H);
#pragma omp parallel for collapse(2) schedule(dynamic) if (heads * shape->T > 64)
    for (int64_t i = 0; i < heads; i++)
        for (int64_t unit = 0; unit < units; unit++)
            backward_group(&call, i / bp_key_heads(shape), i % bp_key_heads(shape), unit,
                           (float *)scratch + omp_get_thread_num() * call.floats);
}
