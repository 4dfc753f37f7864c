/* Optimizer updates and sums of squares against plain loops in float64; any split gives the same
 * bits. */
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "math_test.h"

enum { n = 10007, steps = 20 };

static const bp_adamw rule = {.rate = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .epsilon = 1e-8,
                              .decay = 0.1,
                              .gradient_scale = 0.25,
                              .step = 1};

static void adamw_equals_plain_loops(void **state)
{
    float *w = randoms(n, 1), *m = floats(n), *v = floats(n);
    double *w2 = widened(w, n), *m2 = doubles(n), *v2 = doubles(n);

    (void)state;
    for (int64_t step = 1; step <= steps; step++) {
        float *g = randoms(n, 10 + step);
        bp_adamw at = rule;
        at.step = step;
        bp_adamw_update(w, m, v, g, n, &at);
        for (int i = 0; i < n; i++) {
            double gradient = (double)g[i] * rule.gradient_scale;
            m2[i] = rule.beta1 * m2[i] + (1 - rule.beta1) * gradient;
            v2[i] = rule.beta2 * v2[i] + (1 - rule.beta2) * gradient * gradient;
            double mean = m2[i] / (1 - pow(rule.beta1, (double)step)),
                   square = v2[i] / (1 - pow(rule.beta2, (double)step));
            w2[i] -= rule.rate * (mean / (sqrt(square) + rule.epsilon) + rule.decay * w2[i]);
        }
        bp_free(g);
    }
    /* A float32 rounding a step, of weights up to 4. */
    assert_near(w, w2, n, 2e-6);
    assert_near(m, m2, n, 1e-7);
    assert_near(v, v2, n, 1e-7);
    void *all[] = {w, m, v, w2, m2, v2};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

static const bp_torch_rule torch = {.rate = 0.01,
                                    .keep = 0.9,
                                    .momentum = 0.8,
                                    .epsilon = 1e-6,
                                    .decay = 0.1,
                                    .gradient_scale = 0.5};
enum { SGD, ADAGRAD, ADADELTA, RMSPROP, RMSPROP_MOMENTUM, RULES };

static bp_update_sums apply(int kind, const bp_updated *at)
{
    bp_updated one = *at;

    one.v = kind == ADADELTA || kind == RMSPROP_MOMENTUM ? at->v : NULL;
    return kind == SGD        ? bp_sgd_update(&one, &torch)
           : kind == ADAGRAD  ? bp_adagrad_update(&one, &torch)
           : kind == ADADELTA ? bp_adadelta_update(&one, &torch)
                              : bp_rmsprop_update(&one, &torch);
}

/* torch.optim's definitions, an element at a time. */
static void plainly(int kind, double *w, double *m, double *v, double gradient)
{
    double g = gradient * torch.gradient_scale + torch.decay * *w, keep = torch.keep;

    if (kind == SGD) {
        *m = torch.momentum * *m + g;
        *w -= torch.rate * *m;
    } else if (kind == ADAGRAD) {
        *m += g * g;
        *w -= torch.rate * g / (sqrt(*m) + torch.epsilon);
    } else if (kind == ADADELTA) {
        *m = keep * *m + (1 - keep) * g * g;
        double step = sqrt(*v + torch.epsilon) / sqrt(*m + torch.epsilon) * g;
        *v = keep * *v + (1 - keep) * step * step;
        *w -= torch.rate * step;
    } else {
        *m = keep * *m + (1 - keep) * g * g;
        double step = g / (sqrt(*m) + torch.epsilon);
        *v = torch.momentum * *v + step;
        *w -= torch.rate * (kind == RMSPROP ? step : *v);
    }
}

static void torch_rules_equal_plain_loops(void **state)
{
    (void)state;
    for (int kind = 0; kind < RULES; kind++) {
        float *w = randoms(n, 1), *m = floats(n), *v = floats(n);
        double *w2 = widened(w, n), *m2 = doubles(n), *v2 = doubles(n);

        for (int64_t step = 1; step <= steps; step++) {
            float *g = randoms(n, 10 + step);
            apply(kind, &(bp_updated){w, m, v, g, n});
            for (int i = 0; i < n; i++)
                plainly(kind, &w2[i], &m2[i], &v2[i], (double)g[i]);
            bp_free(g);
        }
        assert_near(w, w2, n, 5e-6);
        assert_near(m, m2, n, 5e-6);
        void *all[] = {w, m, v, w2, m2, v2};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            bp_free(all[j]);
    }
}

/* Shards of data ranks start anywhere: vector bodies, tails and alignment must not show. */
static void any_split_gives_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind <= RULES; kind++) { /* the last one is AdamW */
        float *g = randoms(n, 2), *w = randoms(n, 1), *m = randoms(n, 3), *v = randoms(n, 4);

        for (int i = 0; i < n; i++) {
            v[i] = fabsf(v[i]);
            m[i] = kind < RULES ? fabsf(m[i]) : m[i];
        }
        float *w2 = copied(w, n), *m2 = copied(m, n), *v2 = copied(v, n);
        if (kind == RULES)
            bp_adamw_update(w, m, v, g, n, &rule);
        else
            apply(kind, &(bp_updated){w, m, v, g, n});
        for (int i = 0, length = 1; i < n; i += length, length = length * 3 % 1009) {
            int count = length < n - i ? length : n - i;
            if (kind == RULES)
                bp_adamw_update(w2 + i, m2 + i, v2 + i, g + i, count, &rule);
            else
                apply(kind, &(bp_updated){w2 + i, m2 + i, v2 + i, g + i, count});
        }
        assert_same_bits(w, w2, n);
        assert_same_bits(m, m2, n);
        assert_same_bits(v, v2, n);
        void *all[] = {g, w, m, v, w2, m2, v2};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            bp_free(all[j]);
    }
}

static void square_sums_are_those_of_the_blocks(void **state)
{
    float *x = randoms(n, 1), *elsewhere = floats(n + 1);
    double sums[3], again[3];

    (void)state;
    bp_square_sums(sums, x, n);
    memcpy(elsewhere + 1, x, n * sizeof(float));
    bp_square_sums(again, elsewhere + 1, n);
    assert_same_bits(sums, again, 3);
    for (int block = 0; block < 3; block++) {
        double sum = 0;
        for (int i = block * BP_NORM_BLOCK; i < n && i < (block + 1) * BP_NORM_BLOCK; i++)
            sum += (double)x[i] * (double)x[i];
        assert_true(fabs(sums[block] - sum) <= 1e-12 * sum);
    }
    bp_free(x);
    bp_free(elsewhere);
}

/* Every bit of every element counts. */
static void bit_sum_is_that_of_plain_loops(void **state)
{
    enum { count = 1003 };
    float *x = randoms(count, 2);
    uint32_t plain = 0, bits;

    (void)state;
    for (int i = 0; i < count; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        plain += bits;
    }
    assert_int_equal(bp_bit_sum(x, count), plain);
    for (int bit = 0; bit < 32; bit++) {
        memcpy(&bits, &x[count - 1], sizeof bits);
        bits ^= UINT32_C(1) << bit;
        memcpy(&x[count - 1], &bits, sizeof bits);
        assert_int_not_equal(bp_bit_sum(x, count), plain);
        bits ^= UINT32_C(1) << bit;
        memcpy(&x[count - 1], &bits, sizeof bits);
    }
    bp_free(x);
}

static void check_sums(const uint32_t sums[BP_SUMS], const float *w, const float *m, const float *v)
{
    assert_int_equal(sums[BP_SUM_WEIGHT], bp_bit_sum(w, n));
    assert_int_equal(sums[BP_SUM_MOMENT], bp_bit_sum(m, n));
    assert_int_equal(sums[BP_SUM_SECOND], v ? bp_bit_sum(v, n) : 0);
}

/* An update tells the bits that it found and those that it left, with any threads. */
static void updates_tell_the_sums_of_bits(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        float *g = randoms(n, 2), *w = randoms(n, 1), *m = randoms(n, 3), *v = randoms(n, 4);
        for (int i = 0; i < n; i++)
            v[i] = fabsf(v[i]);
        float *w0 = copied(w, n), *m0 = copied(m, n), *v0 = copied(v, n);
        bp_math_set_threads(threads);
        bp_update_sums sums = bp_adamw_update(w, m, v, g, n, &rule);
        check_sums(sums.before, w0, m0, v0);
        check_sums(sums.after, w, m, v);
        for (int i = 0; i < n; i++)
            m0[i] = fabsf(m0[i]);
        for (int kind = 0; kind < RULES; kind++) {
            bool two = kind == ADADELTA || kind == RMSPROP_MOMENTUM;
            sums = apply(kind, &(bp_updated){w0, m0, v0, g, n});
            check_sums(sums.after, w0, m0, two ? v0 : NULL);
            sums = apply(kind, &(bp_updated){w0, m0, v0, g, n});
            assert_int_not_equal(sums.before[BP_SUM_WEIGHT], sums.after[BP_SUM_WEIGHT]);
            for (int i = 0; i < n; i++) { /* other rules keep squares there */
                m0[i] = fabsf(m0[i]);
                v0[i] = fabsf(v0[i]);
            }
        }
        void *all[] = {g, w, m, v, w0, m0, v0};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            bp_free(all[j]);
    }
    bp_math_set_threads(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_equals_plain_loops),
        cmocka_unit_test(torch_rules_equal_plain_loops),
        cmocka_unit_test(any_split_gives_the_same_bits),
        cmocka_unit_test(square_sums_are_those_of_the_blocks),
        cmocka_unit_test(updates_tell_the_sums_of_bits),
        cmocka_unit_test(bit_sum_is_that_of_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
