/* Attention against plain loops in float64, and its gradient against finite differences of those.
 */
#include "base/err.h"
#include "math/attention/attention.h"
#include "math/attention/relative.h"
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math/math.h"
#include "math_test.h"

/* The ways in which products are computed. */
enum { F32, BF16 };

static int ways(void)
{
    return bp_math_has_bf16() ? 2 : 1;
}

static bp_precision precision_of(int way)
{
    return way == F32 ? BP_F32 : BP_BF16;
}

typedef struct problem {
    int way;
    bp_attention_shape shape;
    bool cross;
    float *qkv, *out, *lse, *dout, *dqkv; /* cross: q, and after it [B][K][2][G][D]; else
                                             [B][T]: H heads of q, G of k and of v */
    float *dbias;                         /* [B][H] rows of bp_bias_floats; of a bias */
    void *scratch;
    bool rounded; /* out, before the backward pass */
} problem;

static int64_t out_floats(const bp_attention_shape *s)
{
    return s->B * s->T * s->H * s->D;
}

static int64_t keys_of(const bp_attention_shape *s)
{
    return s->K > 0 ? s->K : s->T;
}

/* Keys that query t of sequence b sees. */
static int64_t seen_by(const bp_attention_shape *s, int64_t b, int64_t t)
{
    int64_t keys = s->lengths ? s->lengths[b] : keys_of(s), end = t + 1 + s->window / 2;

    if (s->window > 0 && !s->causal)
        return end < keys ? end : keys;
    return s->causal && t + 1 < keys ? t + 1 : keys;
}

/* Key heads. */
static int64_t groups_of(const bp_attention_shape *s)
{
    return s->key_heads > 0 ? s->key_heads : s->H;
}

/* The one that head h reads. */
static int64_t group_of(const bp_attention_shape *s, int64_t h)
{
    return s->group > 0 ? (h + s->before) / s->group : h / (s->H / groups_of(s));
}

/* The first key that a query sees. */
static int64_t first_seen_by(const bp_attention_shape *s, int64_t t)
{
    int64_t before = s->causal ? s->window - 1 : s->window / 2;

    return s->window > 0 && t > before ? t - before : 0;
}

static int64_t in_floats(const bp_attention_shape *s)
{
    return s->B * (s->T * s->H + 2 * keys_of(s) * groups_of(s)) * s->D;
}

/* Where query, key and value vectors lie among the input's floats: those of one head. */
static int64_t query_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t t)
{
    int64_t width = s->H * s->D, keys = groups_of(s) * s->D;

    return (b * s->T + t) * (s->K > 0 ? width : width + 2 * keys) + h * s->D;
}

static int64_t key_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u)
{
    int64_t width = s->H * s->D, keys = groups_of(s) * s->D, at = group_of(s, h) * s->D;

    return s->K > 0 ? s->B * s->T * width + (b * s->K + u) * 2 * keys + at
                    : (b * s->T + u) * (width + 2 * keys) + width + at;
}

static int64_t value_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u)
{
    return key_at(s, b, h, u) + groups_of(s) * s->D;
}

static problem problem_of(int way, bp_attention_shape shape)
{
    int64_t n = out_floats(&shape), in = in_floats(&shape);
    problem p = {way,           shape,
                 shape.K > 0,   randoms(in, 1),
                 floats(n),     floats(shape.B * shape.H * shape.T),
                 randoms(n, 2), floats(in),
                 NULL,          NULL,
                 false};

    if (shape.bias)
        p.dbias = floats(shape.B * shape.H * bp_bias_floats(&shape));

    p.scratch = bp_alloc("test", (int64_t)bp_attention_scratch_bytes(precision_of(way), &shape), 1);
    assert_non_null(p.scratch);
    memset(
        p.scratch, 0xff,
        bp_attention_scratch_bytes(precision_of(way), &shape)); /* uninitialised: NaN everywhere */
    return p;
}

static void problem_free(problem *p)
{
    void *all[] = {p->qkv, p->out, p->lse, p->dout, p->dqkv, p->dbias, p->scratch};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

/* The factor of the weight of (b, h, query t, key s), by the words of the documented place. */
static double dropout_factor(const bp_attention_shape *shape, int64_t b, int64_t h, int64_t t,
                             int64_t s)
{
    int64_t row = ((shape->slot_K > 0 ? shape->slot_K : keys_of(shape)) + 3) / 4 * 4,
            sequence = shape->first_sequence + b, head = shape->first_head + h,
            queries = shape->slot_T > 0 ? shape->slot_T : shape->T;
    int64_t place = ((sequence * shape->all_heads + head) * queries + t) * row + s;
    uint32_t words[4];

    if (shape->dropout == 0.0f)
        return 1;
    bp_rng_block(words, shape->key, (uint64_t)place / 4);
    return (double)words[place % 4] >= (double)shape->dropout * 4294967296.0
               ? 1 / (1 - (double)shape->dropout)
               : 0;
}

/* Where the bias of a query and a key lies. */
static int64_t bias_at(const bp_attention_shape *s, int64_t h, int64_t t, int64_t u)
{
    return h * bp_bias_floats(s) + t - u + keys_of(s) - 1;
}

/* The scaled product of a query and a key, and its capped value with the slope of that. */
static double score_of(const double *q, const double *k, const bp_attention_shape *s, double *slope)
{
    double dot = 0, cap = (double)s->cap;

    for (int64_t d = 0; d < s->D; d++)
        dot += q[d] * k[d];
    dot *= s->scale > 0 ? (double)s->scale : 1 / sqrt((double)s->D);
    *slope = cap > 0 ? 1 - tanh(dot / cap) * tanh(dot / cap) : 1;
    return cap > 0 ? cap * tanh(dot / cap) : dot;
}

/* One query's row: weights and log-sum-exp. */
static double twin_weights(double *weights, const double *qkv, const bp_attention_shape *s,
                           int64_t b, int64_t h, int64_t t, int64_t seen)
{
    int64_t first = first_seen_by(s, t);
    const double *q = qkv + query_at(s, b, h, t);
    double sum = 0;

    memset(weights, 0, (size_t)seen * sizeof *weights);
    for (int64_t u = first; u < seen; u++) {
        double slope, score = score_of(q, qkv + key_at(s, b, h, u), s, &slope);
        weights[u] = exp(score + (s->bias ? (double)s->bias[bias_at(s, h, t, u)] : 0));
        sum += weights[u];
    }
    for (int64_t u = first; u < seen; u++)
        weights[u] /= sum;
    return seen > first ? log(sum) : 0;
}

static void twin_forward(double *out, double *lse, const double *qkv, const bp_attention_shape *s)
{
    double *weights = doubles(keys_of(s));

    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t t = 0; t < s->T; t++) {
                int64_t seen = seen_by(s, b, t);
                double *row = out + ((b * s->T + t) * s->H + h) * s->D;
                lse[(b * s->H + h) * s->T + t] = twin_weights(weights, qkv, s, b, h, t, seen);
                for (int64_t d = 0; d < s->D; d++)
                    row[d] = 0;
                for (int64_t u = 0; u < seen; u++)
                    for (int64_t d = 0; d < s->D; d++)
                        row[d] += weights[u] * dropout_factor(s, b, h, t, u) *
                                  qkv[value_at(s, b, h, u) + d];
            }
    bp_free(weights);
}

/* The gradient by the chain rule, row by row, with the whole row of weights at hand. */
static void twin_backward(double *dqkv, double *dbias, const double *qkv, const float *dout,
                          const bp_attention_shape *s)
{
    int64_t width = s->H * s->D;
    double *weights = doubles(keys_of(s)), *dweights = doubles(keys_of(s));

    for (int64_t i = 0; i < in_floats(s); i++)
        dqkv[i] = 0;
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t t = 0; t < s->T; t++) {
                int64_t seen = seen_by(s, b, t), query = query_at(s, b, h, t);
                const float *d_out = dout + (b * s->T + t) * width + h * s->D;
                double sum = 0;
                twin_weights(weights, qkv, s, b, h, t, seen);
                for (int64_t u = 0; u < seen; u++) {
                    int64_t value = value_at(s, b, h, u);
                    double factor = dropout_factor(s, b, h, t, u);
                    dweights[u] = 0;
                    for (int64_t d = 0; d < s->D; d++) {
                        dweights[u] += factor * (double)d_out[d] * qkv[value + d];
                        dqkv[value + d] += weights[u] * factor * (double)d_out[d];
                    }
                    sum += weights[u] * dweights[u];
                }
                for (int64_t u = 0; u < seen; u++) {
                    int64_t key = key_at(s, b, h, u);
                    double dscore = weights[u] * (dweights[u] - sum), slope;
                    if (dbias)
                        dbias[b * s->H * bp_bias_floats(s) + bias_at(s, h, t, u)] += dscore;
                    (void)score_of(qkv + query, qkv + key, s, &slope);
                    dscore *= slope * (s->scale > 0 ? (double)s->scale : 1 / sqrt((double)s->D));
                    for (int64_t d = 0; d < s->D; d++) {
                        dqkv[query + d] += dscore * qkv[key + d];
                        dqkv[key + d] += dscore * qkv[query + d];
                    }
                }
            }
    bp_free(weights);
    bp_free(dweights);
}

static bp_attention_input input_of(const problem *p)
{
    int64_t H = p->shape.H, D = p->shape.D, keys = groups_of(&p->shape);

    bp_operand rows = bp_operand_floats(p->qkv, p->shape.B * p->shape.T, (H + 2 * keys) * D);

    return p->cross   ? bp_attention_of_q_kv(p->qkv, p->qkv + p->shape.B * p->shape.T * H * D, H, D)
           : keys < H ? bp_attention_of_groups(&rows, H, keys, D)
                      : bp_attention_of_qkv(p->qkv, H, D);
}

/* Numbers that bf16 has: then only weights and scaled queries are rounded inside. */
static void round_all(float *x, int64_t n)
{
    bp_loops_best()->round_bf16(x, x, n);
}

static void run(problem *p)
{
    bp_gemm *gemm;

    assert_int_equal(bp_gemm_new_form(&gemm, precision_of(p->way), BP_BF16_NATIVE), BP_OK);
    assert_true((p->way == BF16) == (bp_gemm_bf16_tiles(gemm) != NULL));
    int64_t H = p->shape.H, D = p->shape.D, queries = p->shape.B * p->shape.T * H * D;
    int64_t keys = groups_of(&p->shape);
    bp_attention_input in = input_of(p);
    float *dkeys = p->dqkv + (p->cross ? queries : H * D);
    bp_attention_gradients to = {
        .dq = p->dqkv, .dk = dkeys, .dv = dkeys + keys * D, .dbias = p->dbias};
    bp_operand out = bp_operand_floats(p->out, p->shape.B * p->shape.T, H * D),
               dout = bp_operand_floats(p->dout, out.rows, H * D);
    bp_attention_forward(gemm, &out, p->lse, &in, &p->shape, p->scratch);
    if (p->rounded)
        round_all(p->out, out.rows * H * D);
    bp_attention_backward(gemm, &to, &dout, &out, p->lse, &in, &p->shape, p->scratch);
    bp_gemm_free(&gemm);
}

/* The matrix that is made for those who look at it. */
static void check_weights(const problem *p, const double *qkv)
{
    const bp_attention_shape *s = &p->shape;
    int64_t T = s->T, K = keys_of(s);
    bp_attention_input in = input_of(p);
    float *weights = floats(T * K);
    double *twin = doubles(T * K);

    for (int64_t i = 0; i < s->B * s->H; i++) {
        int64_t b = i / s->H, h = i % s->H;

        memset(twin, 0, (size_t)(T * K) * sizeof *twin);
        for (int64_t t = 0; t < T; t++)
            twin_weights(twin + t * K, qkv, s, b, h, t, seen_by(s, b, t));
        bp_attention_weights(weights, &in, p->lse, s, b, h);
        assert_near(weights, twin, T * K, 5e-6);
    }
    bp_free(weights);
    bp_free(twin);
}

static void check_way(int way, bp_attention_shape shape)
{
    problem p = problem_of(way, shape);
    int64_t n = out_floats(&shape), all = in_floats(&shape);
    if (way == BF16) {
        round_all(p.qkv, all);
        round_all(p.dout, n);
    }
    double *qkv = widened(p.qkv, all), *out = doubles(n), *dqkv = doubles(all);
    int64_t biases = shape.bias ? shape.B * shape.H * bp_bias_floats(&shape) : 0;
    double *lse = doubles(shape.B * shape.H * shape.T), *dbias = biases ? doubles(biases) : NULL;

    run(&p);
    twin_forward(out, lse, qkv, &shape);
    twin_backward(dqkv, dbias, qkv, p.dout, &shape);
    /* Rounding of sums of up to T float32 numbers near 1; or of weights near 1 to the 8 bits of
     * bf16. */
    assert_near(p.out, out, n, way == F32 ? 5e-6 : 1.2e-2);
    assert_near(p.lse, lse, shape.B * shape.H * shape.T, way == F32 ? 5e-6 : 1e-2);
    /* Scores with a bias are not scaled, and their gradients are larger. */
    double far = way == F32 ? 3e-5 : biases ? 5e-2 : 2e-2;
    assert_near(p.dqkv, dqkv, all, far);
    if (biases)
        assert_near(p.dbias, dbias, biases, far);
    if (way == F32)
        check_weights(&p, qkv);
    bp_free(qkv);
    bp_free(out);
    bp_free(dqkv);
    bp_free(lse);
    bp_free(dbias);
    problem_free(&p);
}

static void check(bp_attention_shape shape)
{
    for (int way = F32; way < ways(); way++)
        check_way(way, shape);
}

static bp_attention_shape shape_of(int64_t B, int64_t T, int64_t H, int64_t D, bool causal)
{
    return (bp_attention_shape){.B = B, .T = T, .H = H, .D = D, .causal = causal, .all_heads = H};
}

static void causal_attention_equals_plain_loops(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},   {2, 1, 3, 16},  {1, 64, 1, 64},
                                        {2, 65, 2, 32}, {1, 63, 2, 20}, {1, 130, 3, 48},
                                        {3, 40, 2, 7},  {1, 257, 1, 80}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(shape_of(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], true));
}

static void full_attention_equals_plain_loops(void **state)
{
    (void)state;
    check(shape_of(2, 70, 2, 24, false));
    check(shape_of(1, 128, 1, 64, false));
}

/* A decoder's look at an encoder: other positions than the queries' own. */
static void attention_to_other_positions_equals_plain_loops(void **state)
{
    static const int64_t positions[][2] = {{5, 9},   {1, 200}, {200, 1},
                                           {70, 64}, {64, 70}, {130, 257}};
    bp_attention_shape shape = shape_of(2, 0, 2, 24, false);

    (void)state;
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        shape.T = positions[i][0];
        shape.K = positions[i][1];
        check(shape);
    }
}

/* Relative positions: what scores get by distance, and its gradient. */
static void scores_may_be_biased_by_distance(void **state)
{
    static const int32_t lengths[] = {70, 33};
    static const int64_t sizes[][2] = {{5, 0}, {64, 0}, {200, 0}, {70, 131}};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bp_attention_shape shape = shape_of(2, sizes[i][0], 3, 24, sizes[i][1] == 0);
        float *bias;

        shape.K = sizes[i][1];
        shape.scale = 0.3f;
        bias = randoms(3 * bp_bias_floats(&shape), 3);
        shape.bias = bias;
        check(shape);
        shape.causal = false;
        shape.lengths = shape.T > 33 && shape.T + shape.K > 70 ? lengths : NULL;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        bp_free(bias);
    }
}

/* Of T5's sizes: 32 buckets up to a distance of 128. */
static void distances_have_the_buckets_of_t5(void **state)
{
    static const int64_t both[][2] = {{0, 0},   {1, 1},   {7, 7},   {8, 8},    {11, 8},
                                      {12, 9},  {16, 10}, {90, 14}, {91, 15},  {500, 15},
                                      {-1, 17}, {-7, 23}, {-8, 24}, {-16, 26}, {-128, 31}},
                         one[][2] = {{0, 0},   {15, 15},  {16, 16},  {18, 16},  {19, 17},
                                     {32, 21}, {113, 31}, {112, 30}, {128, 31}, {-5, 0}};
    bp_relative by = {32, 128, true};

    (void)state;
    /* of keys so far before their query */
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        assert_int_equal(bp_relative_bucket(&by, -both[i][0]), both[i][1]);
    by.two_sided = false;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        assert_int_equal(bp_relative_bucket(&by, -one[i][0]), one[i][1]);
}

static void keys_after_a_length_are_not_seen(void **state)
{
    static const int32_t lengths[] = {1, 70, 33, 64, 0, 129};
    bp_attention_shape shape = shape_of(6, 130, 2, 16, false);

    (void)state;
    shape.lengths = lengths;
    check(shape);
    shape.causal = true;
    check(shape);
    shape.causal = false;
    shape.T = 7;
    shape.K = 131;
    check(shape);
    shape = shape_of(1, 300, 1, 16, false); /* few heads: the backward pass is cut in parts */
    shape.lengths = &lengths[1];
    check(shape);
}

static void only_the_last_keys_may_be_seen(void **state)
{
    static const int64_t windows[] = {1, 5, 63, 64, 65, 130, 199, 500};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, true);

        shape.window = windows[i];
        check(shape);
        shape.key_heads = 2;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(1, 300, 1, 16, true); /* in parts */
        shape.window = windows[i];
        check(shape);
    }
}

/* Of padding too, whose places may see none of the keys. */
static void keys_may_be_seen_on_both_sides(void **state)
{
    static const int64_t windows[] = {1, 2, 9, 64, 65, 130, 260, 500};
    static const int32_t lengths[] = {200, 41};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, false);

        shape.window = windows[i];
        check(shape);
        shape.lengths = lengths;
        check(shape);
        shape.key_heads = 2;
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(1, 300, 1, 16, false); /* in parts */
        shape.window = windows[i];
        check(shape);
        shape.lengths = &lengths[1];
        check(shape);
    }
}

static void heads_may_share_keys(void **state)
{
    static const int64_t heads[][2] = {{4, 2}, {6, 1}, {8, 4}};
    static const int32_t lengths[] = {70, 33};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        bp_attention_shape shape = shape_of(2, 70, heads[i][0], 24, true);

        shape.key_heads = heads[i][1];
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape.causal = false;
        shape.lengths = lengths;
        check(shape);
    }
}

/* Caps within the scores' size, so that their slopes are far from 1. */
static void scores_may_be_capped(void **state)
{
    static const int32_t lengths[] = {70, 33};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (int grouped = 0; grouped < 2; grouped++) {
        bp_attention_shape shape = shape_of(2, 200, 4, 24, true);

        shape.cap = 0.5f;
        shape.key_heads = grouped ? 2 : 0;
        check(shape);
        shape.window = 65;
        shape.scale = 0.4f;
        shape.cap = 2;
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
        shape = shape_of(2, 70, 2, 16, false);
        shape.cap = 0.25f;
        shape.lengths = lengths;
        check(shape);
    }
}

/* A rank's heads out of more: their groups begin or end on other ranks. */
static void groups_may_be_cut(void **state)
{
    static const int64_t cuts[][4] = {/* heads, key heads, heads a group, before */
                                      {3, 2, 2, 0}, {3, 2, 2, 1}, {3, 2, 4, 3},
                                      {3, 1, 4, 1}, {2, 2, 3, 2}, {6, 3, 4, 3}};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        bp_attention_shape shape = shape_of(2, 70, cuts[i][0], 24, true);

        shape.key_heads = cuts[i][1];
        shape.group = cuts[i][2];
        shape.before = cuts[i][3];
        check(shape);
        shape.dropout = 0.25f;
        shape.key = &key;
        check(shape);
    }
}

/* Nothing that lies in padding changes a bit. */
static void padding_changes_no_bits(void **state)
{
    static const int32_t lengths[] = {37, 66};
    bp_attention_shape shape = shape_of(2, 90, 2, 16, false);

    (void)state;
    shape.lengths = lengths;
    for (int way = F32; way < ways(); way++) {
        problem p = problem_of(way, shape), other = problem_of(way, shape);

        for (int64_t b = 0; b < 2; b++)
            for (int64_t u = lengths[b]; u < 90; u++)
                for (int64_t h = 0; h < 2; h++)
                    for (int64_t d = 0; d < 16; d++)
                        other.qkv[key_at(&shape, b, h, u) + d] = 1e30F,
                                                            other.qkv[value_at(&shape, b, h, u) +
                                                                      d] = NAN;
        run(&p);
        run(&other);
        assert_same_bits(p.out, other.out, out_floats(&shape));
        assert_same_bits(p.dqkv, other.dqkv, in_floats(&shape));
        problem_free(&p);
        problem_free(&other);
    }
}

static void dropped_weights_are_those_of_the_documented_words(void **state)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);
    bp_attention_shape shape = shape_of(2, 75, 2, 16, true);

    (void)state;
    shape.dropout = 0.25f;
    shape.key = &key;
    shape.first_sequence = 5;
    shape.first_head = 1;
    shape.all_heads = 4;
    check(shape);
    shape.slot_T = 90; /* it is shortened */
    shape.slot_K = 93;
    check(shape);
    shape.T = 64;
    shape.causal = false;
    check(shape);
    shape.K = 90;
    check(shape);
}

/* The twin's own gradient, by central differences of the twin. */
static void check_differences(float cap)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(1, 9, 2, 5, true);

    shape.dropout = 0.3f;
    shape.key = &key;
    shape.cap = cap;
    problem p = problem_of(F32, shape);
    int64_t n = out_floats(&shape);
    double *qkv = widened(p.qkv, 3 * n), *out = doubles(n), *lse = doubles(18),
           *dqkv = doubles(3 * n);
    run(&p);
    for (int64_t i = 0; i < 3 * n; i++) {
        double kept = qkv[i], step = 1e-5, loss[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            qkv[i] = kept + (side ? step : -step);
            twin_forward(out, lse, qkv, &shape);
            for (int64_t j = 0; j < n; j++)
                loss[side] += out[j] * (double)p.dout[j];
        }
        qkv[i] = kept;
        dqkv[i] = (loss[1] - loss[0]) / (2 * step);
    }
    assert_near(p.dqkv, dqkv, 3 * n, 1e-5);
    bp_free(qkv);
    bp_free(out);
    bp_free(lse);
    bp_free(dqkv);
    problem_free(&p);
}

static void gradient_equals_finite_differences(void **state)
{
    (void)state;
    check_differences(0);
    check_differences(0.5f);
}

static void check_threads_do_not_change_bits(int way)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(2, 150, 3, 32, true);

    shape.dropout = 0.1f;
    shape.key = &key;
    bp_math_set_threads(13); /* more than heads: each is cut into parts */
    problem p = problem_of(way, shape);
    int64_t n = out_floats(&shape);
    run(&p);
    float *out = copied(p.out, n), *dqkv = copied(p.dqkv, 3 * n);
    for (int threads = 1; threads < 13; threads++) {
        bp_math_set_threads(threads);
        run(&p);
        assert_same_bits(p.out, out, n);
        assert_same_bits(p.dqkv, dqkv, 3 * n);
    }
    bp_math_set_threads(0);
    bp_free(out);
    bp_free(dqkv);
    problem_free(&p);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_threads_do_not_change_bits(way);
}

/* Sequence 1 alone, and head 1 alone on another rank, give the bits that they give among others. */
static void check_split_over_sequences_and_heads_does_not_change_bits(int way)
{
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = shape_of(2, 70, 2, 16, true), part = shape;

    shape.dropout = part.dropout = 0.2f;
    shape.key = part.key = &key;
    part.B = part.H = part.first_sequence = part.first_head = 1;
    problem whole = problem_of(way, shape), one = problem_of(way, part);
    for (int64_t t = 0; t < 70; t++) {
        for (int64_t j = 0; j < 3; j++)
            memcpy(one.qkv + (t * 3 + j) * 16, whole.qkv + (((70 + t) * 3 + j) * 2 + 1) * 16,
                   16 * sizeof(float));
        memcpy(one.dout + t * 16, whole.dout + ((70 + t) * 2 + 1) * 16, 16 * sizeof(float));
    }
    run(&whole);
    run(&one);
    for (int64_t t = 0; t < 70; t++) {
        assert_same_bits(one.out + t * 16, whole.out + ((70 + t) * 2 + 1) * 16, 16);
        for (int64_t j = 0; j < 3; j++)
            assert_same_bits(one.dqkv + (t * 3 + j) * 16,
                             whole.dqkv + (((70 + t) * 3 + j) * 2 + 1) * 16, 16);
    }
    problem_free(&whole);
    problem_free(&one);
}

static void split_over_sequences_and_heads_does_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_split_over_sequences_and_heads_does_not_change_bits(way);
}

/* Position t of a causal sequence has the same bits however long the sequence is: scoring may
 * shorten windows. */
static void check_later_positions_do_not_change_bits(int way)
{
    problem p = problem_of(way, shape_of(1, 200, 2, 32, true));

    run(&p);
    float *out = copied(p.out, 200 * 64);
    for (int64_t T = 1; T < 200; T += 33) {
        problem shorter = problem_of(way, shape_of(1, T, 2, 32, true));
        memcpy(shorter.qkv, p.qkv, (size_t)(T * 3 * 64) * sizeof(float));
        run(&shorter);
        assert_same_bits(shorter.out, out, T * 64);
        problem_free(&shorter);
    }
    bp_free(out);
    problem_free(&p);
}

/* The values of x in bf16, in rows with gaps. */
static bp_operand halves_of(const float *x, int64_t rows, int64_t columns)
{
    int64_t stride = (columns + 31) / 32 * 32 + 32;
    bp_operand to = {BP_OPERAND_BF16, rows, columns, stride,
                     bp_alloc("test", rows * stride, sizeof(uint16_t))};

    assert_non_null(to.data);
    bp_operand_fill(&to, x);
    return to;
}

static void assert_rounded(const bp_operand *halves, const float *x)
{
    bp_operand other = halves_of(x, halves->rows, halves->columns);

    assert_memory_equal(halves->data, other.data,
                        (size_t)(other.rows * other.stride) * sizeof(uint16_t));
    bp_free(other.data);
}

static void check_halves(bp_attention_shape shape)
{
    problem p = problem_of(BF16, shape);
    int64_t rows = shape.B * shape.T, width = shape.H * shape.D;
    bp_gemm *gemm;

    round_all(p.qkv, in_floats(&shape));
    round_all(p.dout, out_floats(&shape));
    p.rounded = true;
    run(&p);
    bp_operand qkv = halves_of(p.qkv, rows, 3 * width), dqkv = halves_of(p.qkv, rows, 3 * width),
               out = halves_of(p.dout, rows, width), dout = halves_of(p.dout, rows, width);
    float *lse = floats(shape.B * shape.H * shape.T);
    bp_attention_input in = bp_attention_of_groups(&qkv, shape.H, shape.H, shape.D),
                       as = bp_attention_of_groups(&dqkv, shape.H, shape.H, shape.D);
    bp_attention_gradients to = bp_attention_gradients_as(&as);
    assert_int_equal(bp_gemm_new_form(&gemm, BP_BF16, BP_BF16_NATIVE), BP_OK);
    assert_true(bp_attention_takes_halves(gemm, &shape));
    bp_attention_forward(gemm, &out, lse, &in, &shape, p.scratch);
    bp_attention_backward(gemm, &to, &dout, &out, lse, &in, &shape, p.scratch);
    assert_rounded(&out, p.out);
    assert_rounded(&dqkv, p.dqkv);
    assert_memory_equal(lse, p.lse, (size_t)(shape.B * shape.H * shape.T) * sizeof *lse);
    void *all[] = {qkv.data, dqkv.data, out.data, dout.data, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
    bp_gemm_free(&gemm);
    problem_free(&p);
}

/* What is given and left in bf16 is what float32 rows give, rounded. */
static void rows_may_be_halves(void **state)
{
    static const int32_t lengths[] = {70, 0};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 3, 5);
    bp_attention_shape shape = shape_of(2, 130, 3, 64, true);

    (void)state;
    if (ways() == 1)
        skip();
    check_halves(shape);
    check_halves(shape_of(1, 257, 2, 20, true));
    check_halves(shape_of(2, 33, 1, 80, false));
    shape.dropout = 0.25f;
    shape.key = &key;
    check_halves(shape);
    shape.cap = 0.5f;
    check_halves(shape);
    shape.cap = 0;
    shape.causal = false;
    shape.lengths = lengths;
    check_halves(shape);
}

static void later_positions_do_not_change_bits(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_later_positions_do_not_change_bits(way);
}

static void check_large_scores_do_not_overflow(int way)
{
    problem p = problem_of(way, shape_of(1, 100, 1, 16, true));

    for (int64_t i = 0; i < 3 * 100 * 16; i++)
        p.qkv[i] *= 60;
    run(&p);
    for (int64_t i = 0; i < 100 * 16; i++)
        assert_true(isfinite(p.out[i]));
    for (int64_t i = 0; i < 3 * 100 * 16; i++)
        assert_true(isfinite(p.dqkv[i]));
    problem_free(&p);
}

static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_large_scores_do_not_overflow(way);
}

static void check_nan_reaches_the_positions_that_see_it(int way)
{
    problem p = problem_of(way, shape_of(1, 130, 1, 16, true));

    p.qkv[(70 * 3 + 1) * 16 + 2] = NAN; /* a key */
    run(&p);
    for (int64_t t = 0; t < 130; t++)
        assert_int_equal(isnan(p.out[t * 16]), t >= 70);
    problem_free(&p);
}

static void nan_reaches_the_positions_that_see_it(void **state)
{
    (void)state;
    for (int way = F32; way < ways(); way++)
        check_nan_reaches_the_positions_that_see_it(way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_may_be_halves),
        cmocka_unit_test(causal_attention_equals_plain_loops),
        cmocka_unit_test(full_attention_equals_plain_loops),
        cmocka_unit_test(attention_to_other_positions_equals_plain_loops),
        cmocka_unit_test(scores_may_be_biased_by_distance),
        cmocka_unit_test(distances_have_the_buckets_of_t5),
        cmocka_unit_test(keys_after_a_length_are_not_seen),
        cmocka_unit_test(keys_may_be_seen_on_both_sides),
        cmocka_unit_test(heads_may_share_keys),
        cmocka_unit_test(groups_may_be_cut),
        cmocka_unit_test(scores_may_be_capped),
        cmocka_unit_test(only_the_last_keys_may_be_seen),
        cmocka_unit_test(padding_changes_no_bits),
        cmocka_unit_test(dropped_weights_are_those_of_the_documented_words),
        cmocka_unit_test(gradient_equals_finite_differences),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(split_over_sequences_and_heads_does_not_change_bits),
        cmocka_unit_test(later_positions_do_not_change_bits),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(nan_reaches_the_positions_that_see_it),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
