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

static void sgd_equals_plain_loops(void **state)
{
    const bp_sgd sgd = {.rate = 0.01, .momentum = 0.9, .decay = 0.1, .gradient_scale = 0.5};
    float *w = randoms(n, 1), *m = floats(n);
    double *w2 = widened(w, n), *m2 = doubles(n);

    (void)state;
    for (int64_t step = 1; step <= steps; step++) {
        float *g = randoms(n, 10 + step);
        bp_sgd_update(w, m, g, n, &sgd);
        for (int i = 0; i < n; i++) {
            m2[i] = sgd.momentum * m2[i] + (double)g[i] * sgd.gradient_scale;
            w2[i] -= sgd.rate * (m2[i] + sgd.decay * w2[i]);
        }
        bp_free(g);
    }
    assert_near(w, w2, n, 5e-6);
    assert_near(m, m2, n, 5e-6);
    void *all[] = {w, m, w2, m2};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

/* Shards of data ranks start anywhere: vector bodies, tails and alignment must not show. */
static void any_split_gives_the_same_bits(void **state)
{
    const bp_sgd sgd = {.rate = 0.01, .momentum = 0.9, .decay = 0.1, .gradient_scale = 0.5};
    float *g = randoms(n, 2), *w = randoms(n, 1), *m = randoms(n, 3), *v = randoms(n, 4);

    (void)state;
    for (int i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    float *w2 = copied(w, n), *m2 = copied(m, n), *v2 = copied(v, n), *w3 = copied(w, n),
          *m3 = copied(m, n);
    float *w4 = copied(w, n), *m4 = copied(m, n);
    bp_adamw_update(w, m, v, g, n, &rule);
    bp_sgd_update(w3, m3, g, n, &sgd);
    for (int i = 0, length = 1; i < n; i += length, length = length * 3 % 1009) {
        int count = length < n - i ? length : n - i;
        bp_adamw_update(w2 + i, m2 + i, v2 + i, g + i, count, &rule);
        bp_sgd_update(w4 + i, m4 + i, g + i, count, &sgd);
    }
    assert_same_bits(w, w2, n);
    assert_same_bits(m, m2, n);
    assert_same_bits(v, v2, n);
    assert_same_bits(w3, w4, n);
    assert_same_bits(m3, m4, n);
    void *all[] = {g, w, m, v, w2, m2, v2, w3, m3, w4, m4};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
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
    const bp_sgd sgd = {.rate = 0.01, .momentum = 0.9, .decay = 0.1, .gradient_scale = 0.5};

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
        sums = bp_sgd_update(w0, m0, g, n, &sgd);
        check_sums(sums.after, w0, m0, NULL);
        sums = bp_sgd_update(w0, m, g, n, &sgd);
        assert_int_not_equal(sums.before[BP_SUM_WEIGHT], sums.after[BP_SUM_WEIGHT]);
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
        cmocka_unit_test(sgd_equals_plain_loops),
        cmocka_unit_test(any_split_gives_the_same_bits),
        cmocka_unit_test(square_sums_are_those_of_the_blocks),
        cmocka_unit_test(updates_tell_the_sums_of_bits),
        cmocka_unit_test(bit_sum_is_that_of_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
