/* Norms of rows and their gradients equal plain loops and finite differences. */
#include "kernel_slopes.h"
#include "math/math.h"

static void twin_norm(double *y, const double *x, const double *gain, const double *bias,
                      int64_t rows, int64_t C, double epsilon)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < C; c++)
            mean += x[r * C + c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            variance += (x[r * C + c] - mean) * (x[r * C + c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = (x[r * C + c] - mean) / sqrt(variance + epsilon) * gain[c] + bias[c];
    }
}

static void layer_norm_equals_plain_loops(void **state)
{
    static const int64_t shapes[][2] = {{1, 1},   {1, 2},     {3, 31},   {5, 32},
                                        {70, 33}, {130, 100}, {20, 768}, {3, 2500}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], C = shapes[i][1];
        float *x = randoms(rows * C, 1), *gain = randoms(C, 2), *bias = randoms(C, 3),
              *y = floats(rows * C);
        double *x2 = widened(x, rows * C), *gain2 = widened(gain, C), *bias2 = widened(bias, C);
        double *y2 = doubles(rows * C);
        norm(y, x, &(bp_norm){gain, bias, 1e-5f, NULL, NULL}, rows, C);
        twin_norm(y2, x2, gain2, bias2, rows, C, 1e-5);
        assert_near(y, y2, rows * C, C == 2 ? 1e-3 : 1e-5); /* two values may all but cancel */
        void *all[] = {x, gain, bias, y, x2, gain2, bias2, y2};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            bp_free(all[j]);
    }
}

static void twin_rms(double *y, const double *x, const double *gain, int64_t rows, int64_t C)
{
    for (int64_t r = 0; r < rows; r++) {
        double square = 0;
        for (int64_t c = 0; c < C; c++)
            square += x[r * C + c] * x[r * C + c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = x[r * C + c] / sqrt(square + 1e-5) * gain[c];
    }
}

enum { RMS_ROWS = 67, RMS_C = 37 };

static void twin_rms_of_x(double *y, const double *x, const void *gain)
{
    twin_rms(y, x, gain, RMS_ROWS, RMS_C);
}

static void rms_norm_and_its_gradient_equal_plain_loops(void **state)
{
    enum { n = RMS_ROWS * RMS_C };
    float *x = randoms(n, 1), *gain = randoms(RMS_C, 2), *y = floats(n), *dy = randoms(n, 4),
          *dx = floats(n), *dgain = floats(RMS_C), *rstd = floats(RMS_ROWS), *again = floats(n),
          *scratch = randoms(bp_layer_norm_scratch(RMS_ROWS, RMS_C), 8);
    double *x2 = widened(x, n), *gain2 = widened(gain, RMS_C), *y2 = doubles(n), *dx2 = doubles(n),
           *dgain2 = doubles(RMS_C);
    bp_norm how = {gain, NULL, 1e-5f, NULL, rstd};
    bp_operand made = bp_operand_floats(again, RMS_ROWS, RMS_C);

    (void)state;
    norm(y, x, &how, RMS_ROWS, RMS_C);
    twin_rms(y2, x2, gain2, RMS_ROWS, RMS_C);
    assert_near(y, y2, n, 1e-5);
    for (int64_t c = 0; c < RMS_C; c++)
        for (int64_t r = 0; r < RMS_ROWS; r++)
            dgain2[c] += (double)dy[r * RMS_C + c] * y2[r * RMS_C + c] / gain2[c];
    bp_layer_norm_backward(&(bp_norm_gradients){dx, dgain, NULL, true}, &made, dy, x, &how,
                           RMS_ROWS, RMS_C, scratch);
    assert_near(again, y2, n, 1e-5);
    for (int64_t i = 0; i < n; i++)
        dx2[i] = slope_at(x2, i, dy, y2, n, twin_rms_of_x, gain2);
    assert_near(dx, dx2, n, 2e-5);
    assert_near(dgain, dgain2, RMS_C, 1e-4);
    void *all[] = {x, gain, y, dy, dx, dgain, rstd, again, scratch, x2, gain2, y2, dx2, dgain2};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

/* Without a bias, but about the mean: as with a bias of zeros. */
static void norm_without_a_bias_may_be_centred(void **state)
{
    enum { n = RMS_ROWS * RMS_C };
    static const float zeros[RMS_C];
    float *x = randoms(n, 1), *gain = randoms(RMS_C, 2), *dy = randoms(n, 4), *out = floats(4 * n),
          *dgain = floats(2 * RMS_C), *dbias = floats(RMS_C), *kept = floats(4 * RMS_ROWS),
          *scratch = randoms(bp_layer_norm_scratch(RMS_ROWS, RMS_C), 8);

    (void)state;
    for (int k = 0; k < 2; k++) {
        bp_norm how = {gain,
                       k == 0 ? zeros : NULL,
                       1e-5f,
                       kept + 2 * k * RMS_ROWS,
                       kept + (2 * k + 1) * RMS_ROWS,
                       k == 1};
        bp_norm_gradients to = {out + (2 + k) * n, dgain + k * RMS_C, k == 0 ? dbias : NULL, true};

        norm(out + k * n, x, &how, RMS_ROWS, RMS_C);
        bp_layer_norm_backward(&to, NULL, dy, x, &how, RMS_ROWS, RMS_C, scratch);
    }
    assert_memory_equal(out, out + n, n * sizeof *out);
    assert_memory_equal(out + 2 * n, out + 3 * n, n * sizeof *out);
    assert_memory_equal(dgain, dgain + RMS_C, RMS_C * sizeof *dgain);
    void *all[] = {x, gain, dy, out, dgain, dbias, kept, scratch};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

/* d(sum of dy y)/d(parameter[i]) of the twin, by central differences. */
static double norm_slope(double *parameter, int64_t i, const double *x, const double *gain,
                         const double *bias, const float *dy, int64_t rows, int64_t C, double *y)
{
    double kept = parameter[i], step = 1e-5, loss[2] = {0, 0};

    for (int side = 0; side < 2; side++) {
        parameter[i] = kept + (side ? step : -step);
        twin_norm(y, x, gain, bias, rows, C, 1e-5);
        for (int64_t j = 0; j < rows * C; j++)
            loss[side] += y[j] * (double)dy[j];
    }
    parameter[i] = kept;
    return (loss[1] - loss[0]) / (2 * step);
}

static void layer_norm_gradient_equals_finite_differences(void **state)
{
    enum { rows = 67, C = 37 }; /* more than one block of rows */
    float *x = randoms(rows * C, 1), *gain = randoms(C, 2), *bias = randoms(C, 3),
          *y = floats(rows * C);
    float *dy = randoms(rows * C, 4), *dx = randoms(rows * C, 5), *dgain = randoms(C, 6),
          *dbias = randoms(C, 7);
    float *mean = floats(rows), *rstd = floats(rows), *made = floats(rows * C),
          *scratch = randoms(bp_layer_norm_scratch(rows, C), 8);
    double *x2 = widened(x, rows * C), *gain2 = widened(gain, C), *bias2 = widened(bias, C);
    double *y2 = doubles(rows * C), *dx2 = widened(dx, rows * C), *dgain2 = widened(dgain, C);
    double *dbias2 = widened(dbias, C);

    (void)state;
    bp_norm how = {gain, bias, 1e-5f, mean, rstd};
    bp_operand again = bp_operand_floats(made, rows, C);
    norm(y, x, &how, rows, C);
    bp_layer_norm_backward(&(bp_norm_gradients){dx, dgain, dbias, false}, &again, dy, x, &how, rows,
                           C, scratch);
    assert_same_bits(made, y, rows * C);
    /* All three accumulate onto what was there. */
    for (int64_t i = 0; i < rows * C; i++)
        dx2[i] += norm_slope(x2, i, x2, gain2, bias2, dy, rows, C, y2);
    for (int64_t c = 0; c < C; c++) {
        dgain2[c] += norm_slope(gain2, c, x2, gain2, bias2, dy, rows, C, y2);
        dbias2[c] += norm_slope(bias2, c, x2, gain2, bias2, dy, rows, C, y2);
    }
    assert_near(dx, dx2, rows * C, 2e-5);
    assert_near(dgain, dgain2, C, 5e-5);
    assert_near(dbias, dbias2, C, 5e-5);
    /* Fresh: what dx held is not read. */
    float *fresh = copied(dx, rows * C), *zero = floats(rows * C);
    fresh[3] = NAN;
    bp_layer_norm_backward(&(bp_norm_gradients){fresh, dgain, dbias, true}, NULL, dy, x, &how, rows,
                           C, scratch);
    bp_layer_norm_backward(&(bp_norm_gradients){zero, dgain, dbias, false}, NULL, dy, x, &how, rows,
                           C, scratch);
    assert_same_bits(fresh, zero, rows * C);
    void *all[] = {x,  gain,  bias,  y,  dy,  dx,     dgain,  dbias, mean, rstd, scratch,
                   x2, gain2, bias2, y2, dx2, dgain2, dbias2, fresh, zero, made};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm_equals_plain_loops),
        cmocka_unit_test(norm_without_a_bias_may_be_centred),
        cmocka_unit_test(rms_norm_and_its_gradient_equal_plain_loops),
        cmocka_unit_test(layer_norm_gradient_equals_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
