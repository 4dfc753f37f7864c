/* The inner loops of every instruction set that this CPU has: accurate, and the same bits. */
#include "base/err.h"
#include "math/loops/loops.h"
#include "math_test.h"

static void exp_is_accurate(void **state)
{
    (void)state;
    for (int set = 0; bp_loops_at(set); set++) {
        const bp_loops *loops = bp_loops_at(set);
        /* x log2 e is rounded, and so is log2 e: half a unit of the product's last place is 2^-18
         * at the far end. */
        for (float x = -86.5f; x <= 0.0f; x += 0.000137f) {
            float y;
            loops->exp_scale(&y, &x, 1, 0.0f, 1.0f);
            double exact = exp((double)x);
            if (!(fabs((double)y - exact) <= (2.5e-7 - 8e-8 * (double)x) * exact))
                fail_msg("%s: exp(%.9g) is %.9g", loops->name, (double)x, (double)y);
        }
        float ends[] = {-INFINITY, -88.0f, -1e30f, 0.0f, NAN};
        loops->exp_scale(ends, ends, 5, 0.0f, 1.0f);
        assert_true(ends[0] == 0 && ends[1] == 0 && ends[2] == 0 && ends[3] == 1);
        assert_true(isnan(ends[4]));
    }
}

static float *layerwise(const bp_loops *loops, float *end, const float *x, const float *a,
                        int64_t n)
{
    bp_update_constants constants = {0.01f, 0.9f, 0.1f,  0.95f, 0.05f,
                                     2.0f,  3.0f, 1e-8f, 0.1f,  0.5f};
    double wide[4];

    loops->lamb_moments(end, end + n, x, n, &constants);
    loops->lamb_squares(wide, x, end, end + n, n, &constants);
    memcpy(end + 2 * n, x, (size_t)n * sizeof *x);
    loops->lamb_apply(end + 2 * n, end, end + n, n, &constants);
    end += 3 * n;
    wide[2] = loops->factor_sum((double *)(void *)end, x, n, 0.5f, 1e-3f);
    assert_true(loops->factor_sum(NULL, x, n, 0.5f, 1e-3f) == wide[2]);
    loops->factor_columns((double *)(void *)end, x, n, 0.5f, 1e-3f);
    wide[3] = loops->factor_squares(x, a, n, 0.3f);
    end += 2 * n;
    loops->factor_apply(end, x, a, n, 0.3f, 0.9f);
    end += n;
    memcpy(end, wide, sizeof wide);
    return end + 8;
}

/* What fuses products with sums where the instruction set can. */
static int64_t run_fused(const bp_loops *loops, float *out, const float *x, const float *a,
                         int64_t n)
{
    float *end = out;
    double sum;

    memset(out, 0, (size_t)(24 * n) * sizeof *out);
    loops->gelu_forward(end, x, n);
    loops->gelu_backward(end + n, end + 2 * n, a, x, n);
    loops->gelu_exact_forward(end + 3 * n, x, n);
    loops->gelu_exact_backward(end + 4 * n, end + 5 * n, a, x, n);
    loops->silu_forward(end + 6 * n, x, n);
    loops->silu_backward(end + 7 * n, end + 8 * n, a, x, n);
    end += 9 * n;
    loops->swiglu_forward(end, x, a, n);
    loops->swiglu_backward(end + n, end + 2 * n, end + 3 * n, a, x, a, n);
    end += 4 * n;
    loops->geglu_forward(end, x, a, n);
    loops->geglu_backward(end + n, end + 2 * n, end + 3 * n, a, x, a, n);
    end += 4 * n;
    loops->geglu_exact_forward(end, x, a, n);
    loops->geglu_exact_backward(end + n, end + 2 * n, end + 3 * n, a, x, a, n);
    end += 4 * n;
    loops->exp_scale(end, x, n, 0.5f, 0.7f);
    end += n;
    loops->softmax_statistics(end, &sum, x, n);
    end[1] = (float)sum;
    return end + 2 - out;
}

/* Everything else but the products of tiles, one result after the other. */
static int64_t run_all(const bp_loops *loops, float *out, const float *x, const float *a, int64_t n)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    bp_mask mask = bp_mask_of(0.4f, &key);
    bp_update_constants constants = {0.01f, 0.9f, 0.1f,  0.95f, 0.05f,
                                     2.0f,  3.0f, 1e-8f, 0.1f,  0.5f};
    float *end = out;

    memset(out, 0, (size_t)(43 * n) * sizeof *out);
    loops->relu_backward(end, end + n, a, x, n);
    end += 2 * n;
    loops->dropout(end, a, x, n, &mask, 7);
    end += n;
    loops->to_bf16((uint16_t *)end, x, n);
    end += n;
    bp_norm_row row;
    loops->norm_statistics(&row.mean, &row.rstd, x, n, 1e-5f);
    loops->norm_means(&row.mean_d, &row.mean_dot, a, x, a, row.mean, row.rstd, n);
    memcpy(end, &row, sizeof row);
    end += 4;
    loops->norm_apply(end, x, a, x, row.mean, row.rstd, n);
    end += n;
    loops->norm_gradient(end, end + n, end + 2 * n, a, x, a, &row, n);
    end += 3 * n;
    loops->from_bf16(end, (const uint16_t *)a, n);
    end += n;
    loops->column_sums(end, x, 8, n / 8, n / 8);
    end += n;
    *end = loops->row_max(x, n);
    double squares = loops->square_sum(x, n);
    memcpy(end + 1, &squares, sizeof squares);
    end += 8;
    loops->adamw(end, end + n, end + 2 * n, x, n, &constants);
    end += 3 * n;
    const bp_update_loop one_moment[] = {loops->sgd, loops->adagrad, loops->rmsprop};
    for (int k = 0; k < 3; k++, end += 2 * n)
        one_moment[k](end, end + n, NULL, x, n, &constants);
    const bp_update_loop two_moments[] = {loops->rmsprop_momentum, loops->adadelta};
    for (int k = 0; k < 2; k++, end += 3 * n)
        two_moments[k](end, end + n, end + 2 * n, x, n, &constants);
    return layerwise(loops, end, x, a, n) - out;
}

static void assert_equal_sets(const char *name, const char *twin_name, const float *of,
                              const float *twin, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&of[i], &twin[i], sizeof *of) != 0)
            fail_msg("%s differs from %s at %d", name, twin_name, (int)i);
}

/* All sets from AVX2 on; the base set but where others fuse: there within some units of the last
 * place of what is summed. */
static void instruction_sets_give_the_same_bits(void **state)
{
    enum { n = 1000 };
    float *x = randoms(n, 1), *a = randoms(n, 2), *base = floats(43 * n), *other = floats(43 * n),
          *fused = floats(24 * n), *other_fused = floats(24 * n);
    const char *name = bp_loops_at(0)->name;

    (void)state;
    x[3] = 1e-3f;
    int64_t count = run_all(bp_loops_at(0), base, x, a, n),
            fused_count = run_fused(bp_loops_at(0), fused, x, a, n);
    assert_true(count <= 43 * n && fused_count <= 24 * n);
    for (int set = 1; bp_loops_at(set); set++) {
        run_all(bp_loops_at(set), other, x, a, n);
        assert_equal_sets(bp_loops_at(set)->name, bp_loops_at(0)->name, other, base, count);
        run_fused(bp_loops_at(set), other_fused, x, a, n);
        if (set > 1)
            assert_equal_sets(bp_loops_at(set)->name, name, other_fused, fused, fused_count);
        for (int64_t i = 0; i < fused_count; i++)
            assert_true(fabsf(other_fused[i] - fused[i]) <= 1e-6f * (0.1f + fabsf(fused[i])));
        memcpy(fused, other_fused, (size_t)fused_count * sizeof *fused);
        name = bp_loops_at(set)->name;
    }
    float *all[] = {x, a, base, other, fused, other_fused};
    for (int i = 0; i < 6; i++)
        bp_free(all[i]);
}

static void bf16_is_rounded_to_nearest_even(void **state)
{
    static const uint32_t cases[][2] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82},
        {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80},
        {0xff800000, 0xff80}, {0x80000000, 0x8000}, {0xbf807fff, 0xbf80}};

    (void)state;
    for (int set = 0; bp_loops_at(set); set++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            float x[33];
            uint16_t y[33];
            for (int j = 0; j < 33; j++)
                memcpy(&x[j], &cases[i][0], sizeof *x);
            bp_loops_at(set)->to_bf16(y, x, 33);
            bp_loops_at(set)->round_bf16(x, x, 33);
            uint32_t rounded = cases[i][1] << 16;
            assert_memory_equal(&x[32], &rounded, sizeof rounded);
            assert_int_equal(y[0], cases[i][1]);
            assert_int_equal(y[32], cases[i][1]);
        }
        uint32_t nans[] = {0x7f800001, 0xffffffff, 0x7fc00000};
        for (int i = 0; i < 3; i++) {
            float x;
            uint16_t y;
            memcpy(&x, &nans[i], sizeof x);
            bp_loops_at(set)->to_bf16(&y, &x, 1);
            assert_true((y & 0x7f80) == 0x7f80 && (y & 0x7f) != 0);
        }
    }
}

static void check_tile(const bp_loops *loops, int64_t M, int64_t N, int64_t K, bool transposed,
                       bool accumulate)
{
    float *a = randoms(M * K, 1), *b = randoms(K * (N + 3), 2), *c = randoms(M * (N + 5), 3);
    double *twin = widened(c, M * (N + 5));
    bp_tile tile = {.c = c,
                    .a = a,
                    .b = b,
                    .c_row = N + 5,
                    .a_row = transposed ? 1 : K,
                    .a_column = transposed ? M : 1,
                    .b_row = N + 3,
                    .M = M,
                    .N = N,
                    .K = K,
                    .accumulate = accumulate};

    loops->tile_product(&tile);
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < N; i++) {
            double sum = accumulate ? twin[m * (N + 5) + i] : 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)a[m * tile.a_row + k * tile.a_column] * (double)b[k * (N + 3) + i];
            twin[m * (N + 5) + i] = sum;
        }
    assert_near(c, twin, M * (N + 5), 2e-5);
    bp_free(a);
    bp_free(b);
    bp_free(c);
    bp_free(twin);
}

static void tile_products_equal_plain_loops(void **state)
{
    (void)state;
    for (int set = 0; bp_loops_at(set); set++)
        for (int64_t M = 1; M < 16; M++)
            for (int64_t N = 16; N <= 80; N += 16)
                for (int form = 0; form < 4; form++)
                    check_tile(bp_loops_at(set), M, N, 1 + M * 3, form & 1, form & 2);
}

static void tile_mask_is_that_of_the_words(void **state)
{
    bp_rng_key key = bp_rng_key_of(9, BP_RNG_TEST, 0, 0, 0);
    bp_mask mask = bp_mask_of(0.5f, &key);
    float *factors = floats(7 * BP_TILE_QUERIES);
    int64_t first = 0x3fffffff0,
            stride = 100; /* positions beyond 32 bits, and blocks that cross them */

    (void)state;
    for (int set = 0; bp_loops_at(set); set++) {
        bp_loops_at(set)->tile_mask(factors, &mask, 7, first, stride);
        for (int64_t k = 0; k < 7; k++)
            for (int64_t q = 0; q < BP_TILE_QUERIES; q++) {
                int64_t place = first + q * stride + k;
                uint32_t words[4];
                bp_rng_block(words, &key, (uint64_t)place / 4);
                assert_true(factors[k * BP_TILE_QUERIES + q] ==
                            (words[place % 4] >= 0x80000000u ? 2.0f : 0.0f));
            }
    }
    bp_free(factors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(instruction_sets_give_the_same_bits),
        cmocka_unit_test(bf16_is_rounded_to_nearest_even),
        cmocka_unit_test(tile_products_equal_plain_loops),
        cmocka_unit_test(tile_mask_is_that_of_the_words),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
