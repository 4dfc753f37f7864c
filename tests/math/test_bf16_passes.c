/* What attention does between its bf16 products, against plain loops. */
#include "math/bf16/bf16_passes.h"
#include "math/gemm/linear_parts.h"
#include "math_test.h"

static const bp_bf16_passes *passes = &bp_bf16_passes_avx512;

static uint16_t bf16(float x)
{
    uint16_t y;

    bp_loops_at(0)->to_bf16(&y, &x, 1);
    return y;
}

static double float_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Element (r, d) rounded; 0 beyond. */
static uint16_t element(const bp_bf16_rows *x, int64_t r, int64_t d, float scale)
{
    int64_t at = r * x->row + d;

    if (r >= x->rows || d >= x->D)
        return 0;
    return bf16(scale * (x->halves ? (float)float_of(((const uint16_t *)x->x)[at])
                                   : ((const float *)x->x)[at]));
}

static uint32_t pair_of(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

static void check_packing(int64_t rows, int64_t D, bool as_halves)
{
    int64_t width = (D + 31) / 32 * 32, all = 64;
    float *x = randoms(rows * (D + 3), 1);
    uint32_t *y = bp_alloc("test", all * width, sizeof *y);
    uint16_t *halves = (uint16_t *)y;
    bp_bf16_rows source = {x, rows, D, D + 3, as_halves}, panel = source;

    assert_non_null(y);
    if (as_halves)
        bp_loops_at(0)->to_bf16((uint16_t *)x, x, rows * (D + 3));
    panel.rows = rows < 32 ? rows : 32;
    passes->rows(halves, &source, all);
    for (int64_t r = 0; r < all; r++)
        for (int64_t d = 0; d < width; d++)
            assert_int_equal(halves[r * width + d], element(&source, r, d, 1));
    passes->transposed_rows(halves, &source, all);
    for (int64_t r = 0; r < all; r++)
        for (int64_t d = 0; d < width; d++)
            assert_int_equal(halves[d * all + r], element(&source, r, d, 1));
    passes->row_pairs(y, &source, all);
    for (int64_t r = 0; r < all; r += 2)
        for (int64_t d = 0; d < width; d++)
            assert_int_equal(y[r / 2 * width + d],
                             pair_of(element(&source, r, d, 1), element(&source, r + 1, d, 1)));
    passes->transposed_pairs(y, &panel, 0.3f);
    for (int64_t r = 0; r < BP_PANEL; r++)
        for (int64_t d = 0; d < width; d += 2)
            assert_int_equal(y[d / 2 * BP_PANEL + r],
                             pair_of(element(&panel, r, d, 0.3f), element(&panel, r, d + 1, 0.3f)));
    bp_free(x);
    bp_free(y);
}

static void packing_equals_plain_loops(void **state)
{
    static const int64_t sizes[][2] = {{1, 1}, {5, 7}, {31, 20}, {33, 48}, {64, 64}, {50, 80}};

    (void)state;
    if (!bp_gemm_has_bf16())
        skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int as_halves = 0; as_halves < 2; as_halves++)
            check_packing(sizes[i][0], sizes[i][1], as_halves == 1);
}

/* A lone score, its top there already: the sum is its weight in float32. */
static void weights_are_powers_of_2(void **state)
{
    float scores[32 * BP_PANEL] = {0}, top[BP_PANEL], sum[BP_PANEL], factor[BP_PANEL];
    uint32_t weights[16 * BP_PANEL];
    bp_panel_softmax panel = {scores, weights, top, sum, factor, NULL, 1, 0};

    (void)state;
    if (!bp_gemm_has_bf16())
        skip();
    panel.visible = BP_PANEL;
    for (int64_t i = 0; i < 100000; i += BP_PANEL) {
        for (int64_t q = 0; q < BP_PANEL; q++) {
            scores[q] = 8.0f - (float)(i + q) * 0.00131f; /* down to 2^-123 */
            top[q] = sum[q] = 0;
        }
        assert_false(passes->softmax(&panel));
        for (int64_t q = 0; q < BP_PANEL; q++) {
            double exact = exp2((double)scores[q]);
            assert_true(fabs((double)sum[q] - exact) <= 7.6e-5 * exact);
        }
    }
    scores[0] = -INFINITY;
    scores[1] = -1e30f;
    scores[2] = NAN;
    memset(sum, 0, sizeof sum);
    passes->softmax(&panel);
    assert_true(sum[0] == 0 && sum[1] == 0 && isnan(sum[2]));
}

/* Within half a unit of bf16, 1 / 512, and the error of the exponential: 1 / 240. */
static bool sees(int64_t q, int64_t k, int64_t keys, int64_t visible)
{
    return k < keys && k <= q + visible;
}

static void fill_bits(bp_panel_bits *kept, int64_t keys)
{
    for (int64_t k = 0; k < keys; k++)
        for (int half = 0; half < 2; half++)
            kept[k][half] = (uint16_t)((k * 2 + half + 1) * 40503);
}

static bool is_kept(const bp_panel_bits *kept, int64_t q, int64_t k)
{
    return !kept || (kept[k][q / 16] >> (q % 16) & 1);
}

/* The weights are those of the tops that stand afterwards; `sum` grows by them. */
static void check_softmax(const bp_panel_softmax *p, const float *tops, const float *sums)
{
    for (int64_t q = 0; q < BP_PANEL; q++) {
        double sum = (double)sums[q] * exp2((double)tops[q] - (double)p->top[q]);
        assert_true(fabs((double)p->factor[q] - exp2((double)tops[q] - (double)p->top[q])) <= 1e-4);
        for (int64_t k = 0; k < (p->keys + 31) / 32 * 32; k++) {
            uint32_t word = p->weights[k / 2 * BP_PANEL + q];
            double weight = float_of((uint16_t)(word >> k % 2 * 16)), exact = 0;
            if (sees(q, k, p->keys, p->visible)) {
                exact = exp2((double)p->scores[k * BP_PANEL + q] - (double)p->top[q]);
                assert_true(exact <= 256.001);
            }
            sum += exact;
            if (!is_kept(p->kept, q, k))
                exact = 0;
            assert_true(fabs(weight - exact) <= exact / 240);
        }
        assert_true(fabs((double)p->sum[q] - sum) <= 2e-4 * sum);
    }
}

/* Two blocks of keys, the second of which makes tops grow in some queries. */
static void check_panels(int64_t keys, int64_t visible, bool dropped)
{
    float *scores = randoms(128 * BP_PANEL, 4), top[BP_PANEL], sum[BP_PANEL], factor[BP_PANEL];
    float tops[BP_PANEL], sums[BP_PANEL];
    uint32_t *weights = bp_alloc("test", 64 * BP_PANEL, sizeof *weights);
    bp_panel_bits kept[128];

    assert_non_null(weights);
    fill_bits(kept, 128);
    for (int64_t q = 0; q < BP_PANEL; q++) {
        top[q] = -INFINITY;
        sum[q] = 0;
    }
    for (int block = 0; block < 2; block++) {
        bp_panel_softmax panel = {scores, weights, top, sum, factor, dropped ? kept : NULL,
                                  keys,   visible};
        memcpy(tops, top, sizeof tops);
        memcpy(sums, sum, sizeof sums);
        assert_true(passes->softmax(&panel));
        check_softmax(&panel, tops, sums);
        for (int64_t i = 0; i < keys * BP_PANEL; i++)
            scores[i] = 5 * scores[i] + (i % 3 ? 0.0f : 20.0f);
    }
    bp_free(scores);
    bp_free(weights);
}

static void check_gradient(int64_t keys, int64_t visible, bool dropped)
{
    int64_t all = (keys + 31) / 32 * 32, row = 64;
    float *scores = randoms(128 * BP_PANEL, 4), *dweights = randoms(128 * BP_PANEL, 5);
    float *lse = randoms(BP_PANEL, 6), *delta = randoms(BP_PANEL, 7);
    uint16_t *weights = bp_alloc("test", 128 * row, 2), *dscores = bp_alloc("test", 128 * row, 2);
    uint32_t *pairs = bp_alloc("test", 64 * BP_PANEL, sizeof *pairs);
    bp_panel_bits kept[128];
    bp_panel_gradient panel = {.scores = scores,
                               .dweights = dweights,
                               .lse = lse,
                               .delta = delta,
                               .weights = weights,
                               .dscores = dscores,
                               .pairs = pairs,
                               .kept_factor = 1.25f,
                               .keys = keys,
                               .visible = visible,
                               .row = row};

    assert_true(weights && dscores && pairs);
    fill_bits(kept, 128);
    panel.kept = dropped ? kept : NULL;
    passes->gradient(&panel);
    for (int64_t k = 0; k < all; k++)
        for (int64_t column = 0; column < BP_PANEL; column++) {
            int64_t q = column % 16 / 4 * 8 + column / 16 * 4 + column % 4, i = k * BP_PANEL + q;
            bool stays = is_kept(panel.kept, q, k);
            double weight =
                sees(q, k, keys, visible) ? exp2((double)scores[i] - (double)lse[q]) : 0;
            double dweight = (double)dweights[i] * (dropped ? stays ? 1.25 : 0 : 1);
            double exact = weight * (dweight - (double)delta[q]);
            uint16_t half = (uint16_t)(pairs[k / 2 * BP_PANEL + column] >> k % 2 * 16);
            assert_int_equal(half, dscores[k * row + q]);
            assert_true(fabs(float_of(half) - exact) <= fabs(exact) / 240 + 1e-6);
            assert_true(fabs(float_of(weights[k * row + q]) - (stays ? weight : 0)) <=
                        weight / 240);
        }
    void *workspaces[] = {scores, dweights, lse, delta, weights, dscores, pairs};
    for (size_t i = 0; i < sizeof workspaces / sizeof *workspaces; i++)
        bp_free(workspaces[i]);
}

static void panels_equal_plain_loops(void **state)
{
    static const int64_t sizes[][2] = {{1, 0},    {2, 0},      {31, 0},    {32, 0},  {64, 31},
                                       {100, 64}, {128, 1000}, {127, 126}, {128, 96}};

    (void)state;
    if (!bp_gemm_has_bf16())
        skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int dropped = 0; dropped < 2; dropped++) {
            check_panels(sizes[i][0], sizes[i][1], dropped);
            check_gradient(sizes[i][0], sizes[i][1], dropped);
        }
}

static void mask_is_that_of_the_words(void **state)
{
    bp_rng_key key = bp_rng_key_of(9, BP_RNG_TEST, 0, 0, 0);
    bp_mask mask = bp_mask_of(0.3f, &key);
    int64_t first = 0x3fffffff0, stride = 100; /* blocks beyond 32 bits, and positions that cross */
    bp_panel_bits kept[12];

    (void)state;
    if (!bp_gemm_has_bf16())
        skip();
    passes->mask(kept, &mask, 9, first, stride);
    for (int64_t k = 0; k < 9; k++)
        for (int64_t q = 0; q < BP_PANEL; q++) {
            int64_t place = first + q * stride + k;
            uint32_t words[4];
            bp_rng_block(words, &key, (uint64_t)place / 4);
            assert_true(is_kept(kept, q, k) == (words[place % 4] >= mask.threshold));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_equals_plain_loops),
        cmocka_unit_test(weights_are_powers_of_2),
        cmocka_unit_test(panels_equal_plain_loops),
        cmocka_unit_test(mask_is_that_of_the_words),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
