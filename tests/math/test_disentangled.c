/* Disentangled attention against plain loops in float64, and its gradients against central
 * differences of those. */
#include "base/err.h"
#include "math/attention/relative.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "math_test.h"

enum { B = 2, H = 2, D = 20, R = 12, C = H * D, BUCKETS = 6, DISTANCE = 32 };

static const bp_distances BY = {BUCKETS, DISTANCE};

/* All that a score is made of. */
typedef struct parts {
    double *qkv, *keys, *queries; /* [B][T][3][H][D], [R][H][D] */
} parts;

static double score_of(const parts *p, const bp_attention_shape *s, int64_t b, int64_t h, int64_t t,
                       int64_t u)
{
    const double *q = p->qkv + (b * s->T + t) * 3 * C + h * D,
                 *k = p->qkv + (b * s->T + u) * 3 * C + C + h * D;
    int64_t row = bp_distance_row(&BY, t - u) * C + h * D;
    double sum = 0;

    for (int64_t d = 0; d < D; d++)
        sum += q[d] * k[d] + q[d] * p->keys[row + d] + k[d] * p->queries[row + d];
    return sum / sqrt(3.0 * D);
}

/* out[B][T][C]; returns its sum, each number times its share of `dout`. */
static double twin(double *out, const parts *p, const bp_attention_shape *s, const float *dout)
{
    double *weights = doubles(s->T), loss = 0;

    memset(out, 0, (size_t)(B * s->T * C) * sizeof *out);
    for (int64_t i = 0; i < B * H * s->T; i++) {
        int64_t b = i / (H * s->T), h = i / s->T % H, t = i % s->T;
        double *row = out + (b * s->T + t) * C + h * D, sum = 0;

        for (int64_t u = 0; u < s->lengths[b]; u++)
            sum += weights[u] = exp(score_of(p, s, b, h, t, u));
        for (int64_t u = 0; u < s->lengths[b]; u++)
            for (int64_t d = 0; d < D; d++)
                row[d] += weights[u] / sum * p->qkv[(b * s->T + u) * 3 * C + 2 * C + h * D + d];
        for (int64_t d = 0; d < D; d++)
            loss += row[d] * (double)dout[(b * s->T + t) * C + h * D + d];
    }
    bp_free(weights);
    return loss;
}

/* Every `step`-th number of x has the slope that the gradient says; of the tables, of both texts.
 */
static void check_slopes(double *x, int64_t n, int64_t step, const float *gradient, int64_t copies,
                         const parts *p, const bp_attention_shape *s, const float *dout)
{
    double *out = doubles(B * s->T * C);

    for (int64_t i = 0; i < n; i += step) {
        double kept = x[i], said = 0, loss[2];

        for (int side = 0; side < 2; side++) {
            x[i] = kept + (side ? 1e-5 : -1e-5);
            loss[side] = twin(out, p, s, dout);
        }
        x[i] = kept;
        for (int64_t c = 0; c < copies; c++)
            said += (double)gradient[c * n + i];
        assert_true(fabs(said - (loss[1] - loss[0]) / 2e-5) < 1e-4 * (1 + fabs(said)));
    }
    bp_free(out);
}

static void check(int64_t T, bp_precision precision, const int32_t *lengths)
{
    int64_t n = B * T * C;
    float *qkv = randoms(3 * n, 1), *keys = randoms(R * C, 2), *queries = randoms(R * C, 3),
          *dout = randoms(n, 4), *out = floats(n), *lse = floats(B * H * T), *dqkv = floats(3 * n),
          *dkeys = floats(B * R * C), *dqueries = floats(B * R * C), *weights = floats(T * T);
    bp_attention_shape s = {
        .B = B, .T = T, .H = H, .D = D, .lengths = lengths, .scale = 1 / sqrtf(3.0F * D)};
    int32_t *row = bp_alloc("test", bp_bias_floats(&s), sizeof *row);
    bp_disentangled apart = {R, row, keys, queries};
    bp_attention_input in = bp_attention_of_qkv(qkv, H, D);
    bp_attention_gradients to = {.dq = dqkv,
                                 .dk = dqkv + C,
                                 .dv = dqkv + 2 * C,
                                 .dposition_keys = dkeys,
                                 .dposition_queries = dqueries};
    bp_operand o = bp_operand_floats(out, B * T, C), d = bp_operand_floats(dout, B * T, C);
    bp_gemm *gemm;

    s.apart = &apart;
    bp_distance_rows(row, &BY, &s);
    assert_int_equal(bp_gemm_new(&gemm, precision), BP_OK);
    assert_false(bp_attention_takes_halves(gemm, &s));
    void *scratch = bp_alloc("test", (int64_t)bp_attention_scratch_bytes(precision, &s), 1);
    memset(scratch, 0xff, bp_attention_scratch_bytes(precision, &s));
    bp_attention_forward(gemm, &o, lse, &in, &s, scratch);
    bp_attention_backward(gemm, &to, &d, &o, lse, &in, &s, scratch);
    parts p = {widened(qkv, 3 * n), widened(keys, R * C), widened(queries, R * C)};
    double *expected = doubles(n);
    (void)twin(expected, &p, &s, dout);
    assert_near(out, expected, n, 1e-5);
    check_slopes(p.qkv, 3 * n, 3 * n / 37, dqkv, 1, &p, &s, dout);
    check_slopes(p.keys, R * C, 13, dkeys, B, &p, &s, dout);
    check_slopes(p.queries, R * C, 13, dqueries, B, &p, &s, dout);
    bp_attention_weights(weights, &in, lse, &s, 1, 1);
    for (int64_t t = 0; t < T; t += 7)
        for (int64_t u = 0; u < lengths[1]; u++)
            assert_true(fabs((double)weights[t * T + u] -
                             exp(score_of(&p, &s, 1, 1, t, u) - (double)lse[3 * T + t])) < 1e-5);
    void *all[] = {qkv,      keys, queries, dout,    out,   lse,    dqkv,      dkeys,
                   dqueries, row,  scratch, weights, p.qkv, p.keys, p.queries, expected};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
    bp_gemm_free(&gemm);
}

static void scores_go_by_content_and_distance(void **state)
{
    static const int32_t lengths[][B] = {{9, 4}, {70, 33}};

    (void)state;
    for (int k = 0; k < 2; k++)
        for (int way = 0; way < (bp_math_has_bf16() ? 2 : 1); way++)
            check(lengths[k][0], way ? BP_BF16 : BP_F32, lengths[k]);
}

/* Computed by hand: with a half of 3, ceil(ln(n / 3) / ln(31 / 3) 2) + 3 beyond it. */
static void distances_share_rows(void **state)
{
    static const int64_t far[][2] = {{0, 0}, {1, 1}, {3, 3}, {4, 4}, {9, 4}, {10, 5}, {31, 5}};
    const bp_distances each = {0, 10};

    (void)state;
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
        assert_int_equal(bp_distance_row(&BY, far[k][0]), BUCKETS + far[k][1]);
        assert_int_equal(bp_distance_row(&BY, -far[k][0]), BUCKETS - far[k][1]);
    }
    assert_int_equal(bp_distance_row(&BY, 10000), 2 * BUCKETS - 1);
    assert_int_equal(bp_distance_row(&BY, -10000), 0);
    assert_int_equal(bp_distance_row(&each, 9), 19);
    assert_int_equal(bp_distance_row(&each, 10), 19);
    assert_int_equal(bp_distance_row(&each, -9), 1);
    assert_int_equal(bp_distance_row(&each, -10), 0);
    assert_int_equal(bp_distance_row(&each, -11), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(scores_go_by_content_and_distance),
                                              cmocka_unit_test(distances_share_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
