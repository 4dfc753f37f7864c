/* 1.5-entmax against the exact algorithm by sorting, and attention of it against plain loops in
 * float64 and finite differences. */
#include "base/err.h"
#include "math/attention/attention.h"
#include "math/kernels/entmax.h"
#include "math/math.h"
#include "math_test.h"

#include <stdlib.h>

enum { MOST = 4096 };

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* p[n] of z[n], z in `stride`s. Source: Peters et al. 2019, algorithm 2. */
static void sorted_entmax(double *p, const double *z, int64_t n)
{
    double x[MOST], sum = 0, squares = 0, tau = 0;

    for (int64_t i = 0; i < n; i++)
        x[i] = z[i] / 2;
    qsort(x, (size_t)n, sizeof *x, falling);
    for (int64_t k = 1; k <= n; k++) {
        sum += x[k - 1];
        squares += x[k - 1] * x[k - 1];
        double mean = sum / (double)k, spread = squares - (double)k * mean * mean;
        double one = mean - sqrt(fmax(0, (1 - spread) / (double)k));

        if (one > x[k - 1])
            break;
        tau = one;
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = pow(fmax(z[i] / 2 - tau, 0), 2);
}

static void thresholds_are_those_of_sorting(void **state)
{
    static const int64_t SIZES[] = {1, 2, 3, 17, 100, 4096};
    double z[MOST], p[MOST];

    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int spread = 0; spread < 4; spread++) {
            int64_t n = SIZES[s], support = 0;
            float *x = randoms(n, 10 * (int64_t)s + spread);

            for (int64_t i = 0; i < n; i++) {
                x[i] *= spread == 0 ? 0 : powf(10, (float)spread - 2);
                z[i] = (double)x[i];
            }
            sorted_entmax(p, z, n);
            double tau = bp_entmax_tau(x, n);
            for (int64_t i = 0; i < n; i++) {
                support += p[i] > 0;
                assert_true(fabs(pow(fmax(z[i] / 2 - tau, 0), 2) - p[i]) < 1e-10);
            }
            assert_true(spread != 0 || support == n);
            assert_true(spread != 3 || n < 17 || support < n);
            bp_free(x);
        }
}

static void a_score_that_is_no_number_gives_none(void **state)
{
    float x[5] = {1, 2, NAN, 0, 3};

    (void)state;
    assert_true(isnan(bp_entmax_tau(x, 5)));
}

typedef struct problem {
    bp_attention_shape shape;
    bp_gemm *gemm;
    float *qkv, *out, *lse, *dout, *dqkv;
    void *scratch;
    int64_t floats, outs;
} problem;

static void open_problem(problem *p, bp_attention_shape shape, bp_precision precision)
{
    int64_t rows = shape.B * shape.T;

    *p = (problem){.shape = shape, .outs = rows * shape.H * shape.D};
    p->shape.entmax = true;
    p->floats = rows * (shape.H + 2 * shape.key_heads) * shape.D;
    assert_int_equal(bp_gemm_new(&p->gemm, precision), BP_OK);
    p->qkv = randoms(p->floats, 1);
    for (int64_t i = 0; i < p->floats; i++)
        p->qkv[i] *= 2; /* some weights are 0 then */
    p->dout = randoms(p->outs, 2);
    p->out = floats(p->outs);
    p->lse = floats(shape.B * shape.H * shape.T);
    p->dqkv = floats(p->floats);
    p->scratch = bp_alloc("test", (int64_t)bp_attention_scratch_bytes(precision, &p->shape), 1);
}

static void close_problem(problem *p)
{
    bp_gemm_free(&p->gemm);
    bp_free(p->qkv);
    bp_free(p->dout);
    bp_free(p->out);
    bp_free(p->lse);
    bp_free(p->dqkv);
    bp_free(p->scratch);
}

static bp_attention_input input_of(const problem *p)
{
    const bp_attention_shape *s = &p->shape;
    bp_operand rows = bp_operand_floats(p->qkv, s->B * s->T, (s->H + 2 * s->key_heads) * s->D);

    return bp_attention_of_groups(&rows, s->H, s->key_heads, s->D);
}

/* The sum of dout times out. */
static double forward(problem *p)
{
    bp_attention_input in = input_of(p);
    double sum = 0;

    bp_operand out = bp_operand_floats(p->out, p->shape.B * p->shape.T, p->shape.H * p->shape.D);
    bp_attention_forward(p->gemm, &out, p->lse, &in, &p->shape, p->scratch);
    for (int64_t i = 0; i < p->outs; i++)
        sum += (double)p->dout[i] * (double)p->out[i];
    return sum;
}

static void backward(problem *p)
{
    bp_attention_input in = input_of(p);
    const bp_attention_shape *s = &p->shape;
    bp_attention_gradients to = {
        .dq = p->dqkv, .dk = p->dqkv + s->H * s->D, .dv = p->dqkv + (s->H + s->key_heads) * s->D};

    bp_operand out = bp_operand_floats(p->out, s->B * s->T, s->H * s->D),
               dout = bp_operand_floats(p->dout, out.rows, s->H * s->D);
    bp_attention_backward(p->gemm, &to, &dout, &out, p->lse, &in, s, p->scratch);
}

static bool sees(const bp_attention_shape *s, int64_t b, int64_t t, int64_t k)
{
    return (!s->lengths || k < s->lengths[b]) && (!s->causal || k <= t) &&
           (s->window == 0 || t - k < s->window);
}

/* One row of out against plain loops, and its weights; returns how many weights are 0 of keys that
 * are seen. */
static int64_t check_row(const problem *p, int64_t b, int64_t h, int64_t t)
{
    const bp_attention_shape *s = &p->shape;
    bp_attention_input in = input_of(p);
    int64_t D = s->D, n = 0, zeros = 0, at[MOST] = {0}, key_head = h / (s->H / s->key_heads);
    double z[MOST] = {0}, w[MOST] = {0};
    float *weights = floats(s->T * s->T);

    for (int64_t k = 0; k < s->T; k++)
        if (sees(s, b, t, k)) {
            z[n] = 0;
            for (int64_t d = 0; d < D; d++)
                z[n] +=
                    (double)((const float *)in.q)[(b * s->T + t) * in.q_row + h * D + d] *
                    (double)((const float *)in.k)[(b * s->T + k) * in.kv_row + key_head * D + d];
            z[n] /= sqrt((double)D);
            at[n++] = k;
        }
    sorted_entmax(w, z, n);
    bp_attention_weights(weights, &in, p->lse, s, b, h);
    for (int64_t i = 0; i < n; i++) {
        zeros += w[i] == 0;
        assert_true(fabs((double)weights[t * s->T + at[i]] - w[i]) < 1e-5);
    }
    for (int64_t d = 0; d < D; d++) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += w[i] *
                   (double)((const float *)in.v)[(b * s->T + at[i]) * in.kv_row + key_head * D + d];
        assert_true(fabs(sum - (double)p->out[((b * s->T + t) * s->H + h) * D + d]) < 2e-5);
    }
    bp_free(weights);
    return zeros;
}

static void check_forward(problem *p)
{
    const bp_attention_shape *s = &p->shape;
    int64_t zeros = 0;

    forward(p);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t t = 0; t < s->T; t++)
                zeros += check_row(p, b, h, t);
    assert_true(zeros > 0);
}

/* Along the gradient itself, and its numbers for keys and values that nobody sees are 0. */
static void check_gradient(problem *p)
{
    double squares = 0, sides[2], step;
    float *qkv = copied(p->qkv, p->floats);

    forward(p);
    backward(p);
    for (int64_t i = 0; i < p->floats; i++)
        squares += (double)p->dqkv[i] * (double)p->dqkv[i];
    step = 5e-3 / sqrt(squares);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < p->floats; i++)
            p->qkv[i] = qkv[i] + (float)((side ? step : -step) * (double)p->dqkv[i]);
        sides[side] = forward(p);
    }
    assert_true(fabs((sides[1] - sides[0]) / (2 * step) / squares - 1) < 2e-3);
    bp_free(qkv);
}

static void attention_is_that_of_plain_loops(void **state)
{
    static const int32_t LENGTHS[] = {70, 5};
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, 9);
    const bp_attention_shape shapes[] = {
        {.B = 2, .T = 70, .H = 2, .D = 8, .key_heads = 2, .causal = true, .all_heads = 2},
        {.B = 2, .T = 70, .H = 2, .D = 8, .key_heads = 2, .lengths = LENGTHS, .all_heads = 2},
        {.B = 1, .T = 33, .H = 4, .D = 16, .key_heads = 2, .causal = true, .all_heads = 4},
        {.B = 1,
         .T = 33,
         .H = 2,
         .D = 8,
         .key_heads = 2,
         .causal = true,
         .window = 7,
         .all_heads = 2},
    };
    int ways = bp_math_has_bf16() ? 2 : 1;

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int way = 0; way < ways; way++) {
            bp_attention_shape dropped = shapes[s];
            problem p;

            open_problem(&p, shapes[s], way ? BP_BF16 : BP_F32);
            check_forward(&p);
            check_gradient(&p);
            close_problem(&p);
            dropped.dropout = 0.3F;
            dropped.key = &key;
            open_problem(&p, dropped, way ? BP_BF16 : BP_F32);
            check_gradient(&p);
            close_problem(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds_are_those_of_sorting),
        cmocka_unit_test(a_score_that_is_no_number_gives_none),
        cmocka_unit_test(attention_is_that_of_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
