/* An attention and its plain loops in float64, for the tests of attention. */
#include "attention_problem.h"

int ways(void)
{
    return bp_math_has_bf16() ? 2 : 1;
}

static bp_precision precision_of(int way)
{
    return way == F32 ? BP_F32 : BP_BF16;
}

int64_t out_floats(const bp_attention_shape *s)
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

int64_t in_floats(const bp_attention_shape *s)
{
    return s->B * (s->T * s->H + 2 * keys_of(s) * groups_of(s)) * s->D;
}

/* Where query, key and value vectors lie among the input's floats: those of one head. */
static int64_t query_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t t)
{
    int64_t width = s->H * s->D, keys = groups_of(s) * s->D;

    return (b * s->T + t) * (s->K > 0 ? width : width + 2 * keys) + h * s->D;
}

int64_t key_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u)
{
    int64_t width = s->H * s->D, keys = groups_of(s) * s->D, at = group_of(s, h) * s->D;

    return s->K > 0 ? s->B * s->T * width + (b * s->K + u) * 2 * keys + at
                    : (b * s->T + u) * (width + 2 * keys) + width + at;
}

int64_t value_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u)
{
    return key_at(s, b, h, u) + groups_of(s) * s->D;
}

problem problem_of(int way, bp_attention_shape shape)
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

void problem_free(problem *p)
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

void twin_forward(double *out, double *lse, const double *qkv, const bp_attention_shape *s)
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

void round_all(float *x, int64_t n)
{
    bp_loops_best()->round_bf16(x, x, n);
}

void run(problem *p)
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

void check(bp_attention_shape shape)
{
    for (int way = F32; way < ways(); way++)
        check_way(way, shape);
}

bp_attention_shape shape_of(int64_t B, int64_t T, int64_t H, int64_t D, bool causal)
{
    return (bp_attention_shape){.B = B, .T = T, .H = H, .D = D, .causal = causal, .all_heads = H};
}
