/* Passes that make operands: what they make in one pass is what plain passes make one after the
 * other, in every form, to the bit; sums against float64. */
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "math_test.h"

enum { ROWS = 131, C = 1500, N = ROWS * C }; /* several blocks of rows, panels of columns */

static const bp_operand_form FORMS[] = {BP_OPERAND_F32, BP_OPERAND_ROUNDED, BP_OPERAND_BF16};

static bp_operand operand_of(bp_operand_form form)
{
    return (bp_operand){form, ROWS, C, C, floats(N)};
}

/* The rounding of one value, in plain C. */
static float rounded(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static float value_of(const bp_operand *in, int64_t r, int64_t c)
{
    const uint16_t *halves = in->data;
    uint32_t bits = (uint32_t)halves[r * in->stride + c] << 16;
    float x;

    if (in->form != BP_OPERAND_BF16)
        return ((const float *)in->data)[r * in->stride + c];
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* It holds these floats, converted. */
static void check_values(const bp_operand *in, const float *x)
{
    for (int64_t r = 0; r < in->rows; r++)
        for (int64_t c = 0; c < in->columns; c++) {
            float is = value_of(in, r, c), plain = x[r * in->columns + c];
            float should = in->form == BP_OPERAND_F32 ? plain : rounded(plain);
            if (memcmp(&is, &should, sizeof is) != 0)
                fail_msg("form %d: %.9g instead of %.9g at %d, %d", (int)in->form, (double)is,
                         (double)should, (int)r, (int)c);
        }
}

/* Sums of x's columns on top of 0.5. */
static void check_sums(const float *sums, const float *x)
{
    for (int c = 0; c < C; c++) {
        double sum = 0.5;
        for (int r = 0; r < ROWS; r++)
            sum += (double)x[r * C + c];
        if (!(fabs((double)sums[c] - sum) <= 2e-5)) /* of 131 normal numbers */
            fail_msg("column %d: %g instead of %g", c, (double)sums[c], sum);
    }
}

static bp_bias_gradient sums_of(float *sums)
{
    for (int c = 0; c < C; c++)
        sums[c] = 0.5f;
    return (bp_bias_gradient){sums, randoms(bp_bias_scratch(ROWS, C), 9)};
}

static void conversion_is_rounding_and_sums(void **state)
{
    float *x = randoms(N, 1), sums[C];

    (void)state;
    for (int f = 0; f < 3; f++) {
        bp_operand to = operand_of(FORMS[f]);
        bp_bias_gradient bias = sums_of(sums);
        bp_operand_fill_sums(&to, &bias, x);
        check_values(&to, x);
        check_sums(sums, x);
        bp_free(bias.scratch);
        bp_free(to.data);
    }
    bp_free(x);
}

static void residual_dropout_and_norm_are_three_passes(void **state)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    float *base = randoms(N, 1), *branch = randoms(N, 2), *gain = randoms(C, 3),
          *bias = randoms(C, 4), *twin = floats(N), *normed = floats(N);
    float *h = floats(N), mean[ROWS], rstd[ROWS], twin_mean[ROWS], twin_rstd[ROWS];
    bp_operand plain = bp_operand_floats(normed, ROWS, C);
    bp_norm norm = {gain, bias, 1e-5f, mean, rstd},
            twin_norm = {gain, bias, 1e-5f, twin_mean, twin_rstd};

    (void)state;
    for (int f = 0; f < 6; f++) {
        float p = f < 3 ? 0.0f : 0.3f;
        bp_operand to = operand_of(FORMS[f % 3]);
        bp_residual sum = {base, branch, p, &key, 4 * C + 2};
        bp_add_dropout(twin, base, branch, N, p, &key, 4 * C + 2);
        bp_layer_norm_forward(&plain, NULL, &twin_norm, &(bp_residual){.base = twin});
        bp_layer_norm_forward(&to, h, &norm, &sum);
        assert_same_bits(h, twin, N);
        check_values(&to, normed);
        assert_same_bits(mean, twin_mean, ROWS);
        assert_same_bits(rstd, twin_rstd, ROWS);
        memcpy(h, base, N * sizeof *h); /* over what is added to */
        sum.base = h;
        bp_layer_norm_forward(&to, h, &norm, &sum);
        assert_same_bits(h, twin, N);
        check_values(&to, normed);
        bp_free(to.data);
    }
    void *all[] = {base, branch, gain, bias, twin, normed, h};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void norm_backward_makes_the_output_again(void **state)
{
    float *x = randoms(N, 1), *dy = randoms(N, 2), *gain = randoms(C, 3), *bias = randoms(C, 4),
          *normed = floats(N), *dx = floats(N), *twin = floats(N);
    float mean[ROWS], rstd[ROWS], sums[4][C] = {{0}};
    float *scratch = floats(bp_layer_norm_scratch(ROWS, C));
    bp_norm norm = {gain, bias, 1e-5f, mean, rstd};
    bp_operand plain = bp_operand_floats(normed, ROWS, C);

    (void)state;
    bp_layer_norm_forward(&plain, NULL, &norm, &(bp_residual){.base = x});
    bp_layer_norm_backward(&(bp_norm_gradients){twin, sums[0], sums[1], true}, NULL, dy, x, &norm,
                           ROWS, C, scratch);
    for (int f = 0; f < 3; f++) {
        bp_operand to = operand_of(FORMS[f]);
        memset(sums[2], 0, 2 * sizeof sums[2]);
        bp_layer_norm_backward(&(bp_norm_gradients){dx, sums[2], sums[3], true}, &to, dy, x, &norm,
                               ROWS, C, scratch);
        check_values(&to, normed);
        assert_same_bits(dx, twin, N);
        assert_same_bits(sums[2], sums[0], 2 * C);
        bp_free(to.data);
    }
    void *all[] = {x, dy, gain, bias, normed, dx, twin, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

/* Floats as a product leaves them in an operand of the form, not rounded yet where they are floats;
 * `held`: what they are once they are rounded. */
static bp_operand product_of(bp_operand_form form, const float *x, float *held)
{
    bp_operand to = operand_of(form);

    bp_operand_fill(&to, x);
    for (int64_t i = 0; i < N; i++)
        held[i] = value_of(&to, i / C, i % C);
    if (form != BP_OPERAND_BF16)
        memcpy(to.data, x, N * sizeof *x);
    return to;
}

/* Inputs and gradients are rounded where operands are; a gradient may lie over its output's. */
static void gelu_and_its_gradient_are_plain_passes(void **state)
{
    float *x = randoms(N, 1), *dy = randoms(N, 2), *y = floats(N), *dx = floats(N),
          *seen = floats(N), *given = floats(N), sums[C];
    bp_operand plain = bp_operand_floats(y, ROWS, C), plain_dx = bp_operand_floats(dx, ROWS, C),
               plain_seen = bp_operand_floats(seen, ROWS, C),
               plain_given = bp_operand_floats(given, ROWS, C);

    (void)state;
    for (int f = 0; f < 3; f++) {
        bp_operand to = operand_of(FORMS[f]), again = operand_of(FORMS[f]),
                   dto = operand_of(FORMS[f]), kept = product_of(FORMS[f], x, seen),
                   from = product_of(FORMS[f], dy, given);
        bp_bias_gradient bias = sums_of(sums);
        bp_activation_forward(BP_GELU_TANH, &plain, &plain_seen);
        bp_activation_backward(BP_GELU_TANH, &plain_dx, &plain, NULL, &plain_given, &plain_seen);
        bp_activation_forward(BP_GELU_TANH, &to, &kept);
        check_values(&to, y);
        check_values(&kept, x);
        bp_activation_backward(BP_GELU_TANH, &dto, &again, &bias, &from, &kept);
        check_values(&dto, dx);
        check_values(&again, y);
        check_sums(sums, dx);
        bp_activation_backward(BP_GELU_TANH, &from, &again, NULL, &from, &kept);
        check_values(&from, dx);
        void *all[] = {bias.scratch, to.data, again.data, dto.data, kept.data, from.data};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            bp_free(all[i]);
    }
    void *all[] = {x, dy, y, dx, seen, given};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void dropout_backward_is_masked_and_summed(void **state)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    float *dy = randoms(N, 1), *dx = floats(N), sums[C];

    (void)state;
    for (int f = 0; f < 6; f++) {
        float p = f < 3 ? 0.0f : 0.25f;
        bp_operand to = operand_of(FORMS[f % 3]);
        bp_bias_gradient bias = sums_of(sums);
        bp_dropout_backward(dx, dy, N, p, &key, 3 * C);
        bp_dropout_backward_operand(&to, &bias, dy, p, &key, 3 * C);
        check_values(&to, dx);
        check_sums(sums, dx);
        bp_free(bias.scratch);
        bp_free(to.data);
    }
    bp_free(dy);
    bp_free(dx);
}

/* The gradient as an operand over the logits: bf16 rows in the first half of theirs. */
static void softmax_gradient_fits_over_the_logits(void **state)
{
    float *logits = randoms(N, 1), *plain = floats(N), max[ROWS], weight[ROWS];
    double sum[ROWS], target[ROWS];
    int32_t targets[ROWS];

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        targets[r] = r * 11;
        weight[r] = 0.01f * (float)r;
    }
    bp_operand twin = bp_operand_floats(plain, ROWS, C);
    bp_softmax_statistics(max, sum, target, &(bp_logit_rows){logits, targets, ROWS, C, 0, C});
    bp_softmax_gradient(&twin,
                        &(bp_logit_rows){logits, targets, twin.rows, twin.columns, 0, twin.columns},
                        max, sum, weight, NULL);
    for (int f = 0; f < 3; f++) {
        float *over = copied(logits, N);
        bp_operand to = {FORMS[f], ROWS, C, FORMS[f] == BP_OPERAND_BF16 ? 2 * C : C, over};
        bp_softmax_gradient(&to,
                            &(bp_logit_rows){over, targets, to.rows, to.columns, 0, to.columns},
                            max, sum, weight, NULL);
        check_values(&to, plain);
        bp_free(over);
    }
    bp_free(logits);
    bp_free(plain);
}

/* Statistics and gradient in one pass have the bits of two, whatever is between rows, and rows of
 * bf16 end with zeros. */
static void softmax_in_one_pass_is_that_of_two(void **state)
{
    enum { GAP = 5, STRIDE = C + GAP };
    float *logits = randoms(ROWS * STRIDE, 1), max[2][ROWS], weight[ROWS];
    double sum[2][ROWS], target[2][ROWS];
    int32_t targets[ROWS];
    bp_logit_rows in = {logits, targets, ROWS, C, 0, STRIDE};
    bp_smoothing smoothing = {0.1f, C};

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        targets[r] = r % 3 == 0 ? -1 : r;
        weight[r] = r % 3 == 0 ? 0 : 0.01f * (float)r;
    }
    for (int f = 0; f < 6; f++) {
        const bp_smoothing *some = f < 3 ? NULL : &smoothing;
        bp_operand two = {FORMS[f % 3], ROWS, C, STRIDE, floats(ROWS * STRIDE)}, one = two;
        size_t bytes = bp_operand_bytes(two.form, ROWS, STRIDE);

        one.data = floats(ROWS * STRIDE);
        bp_softmax_statistics(max[0], sum[0], target[0], &in);
        bp_softmax_gradient(&two, &in, max[0], sum[0], weight, some);
        memset(one.data, two.form == BP_OPERAND_BF16 ? 0xff : 0, bytes);
        bp_softmax_statistics_gradient(&one, max[1], sum[1], target[1], &in, weight, some);
        assert_memory_equal(max[0], max[1], sizeof max[0]);
        assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
        assert_memory_equal(target[0], target[1], sizeof target[0]);
        assert_memory_equal(one.data, two.data, bytes);
        bp_free(one.data);
        bp_free(two.data);
    }
    bp_free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversion_is_rounding_and_sums),
        cmocka_unit_test(residual_dropout_and_norm_are_three_passes),
        cmocka_unit_test(norm_backward_makes_the_output_again),
        cmocka_unit_test(gelu_and_its_gradient_are_plain_passes),
        cmocka_unit_test(dropout_backward_is_masked_and_summed),
        cmocka_unit_test(softmax_gradient_fits_over_the_logits),
        cmocka_unit_test(softmax_in_one_pass_is_that_of_two),
    };

    bp_math_set_threads(0);
    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
