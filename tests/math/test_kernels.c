/* Fused passes against plain loops in float64; every backward against finite differences. */
#include "kernel_slopes.h"
#include "math/math.h"

/* ---- gated activations, rotary positions ---- */

enum { GLU_ROWS = 3, GLU_F = 1100 }; /* more than one panel of columns */

static void twin_gated(double *y, const double *x, const void *context)
{
    bp_activation kind = *(const bp_activation *)context;

    for (int64_t r = 0; r < GLU_ROWS; r++)
        for (int64_t c = 0; c < GLU_F; c++) {
            double gate = x[r * 2 * GLU_F + c];
            double at = kind == BP_GEGLU
                            ? 2 * sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)
                            : gate;
            double share = kind == BP_GEGLU_EXACT ? erfc(-gate / sqrt(2)) / 2 : 1 / (1 + exp(-at));
            y[r * GLU_F + c] = gate * share * x[r * 2 * GLU_F + GLU_F + c];
        }
}

static void check_gated(bp_activation kind)
{
    enum { n = GLU_ROWS * GLU_F };
    float *x = randoms(2 * n, 1), *y = floats(n), *dy = randoms(n, 2), *dx = floats(2 * n);
    bp_operand to = bp_operand_floats(y, GLU_ROWS, GLU_F),
               kept = bp_operand_floats(x, GLU_ROWS, 2 * GLU_F),
               gradient = bp_operand_floats(dx, GLU_ROWS, 2 * GLU_F),
               from = bp_operand_floats(dy, GLU_ROWS, GLU_F);

    x[0] = 200; /* exp(-x) is nothing, or infinite */
    x[1] = -200;
    double *x2 = widened(x, 2 * n), *y2 = doubles(n), *dx2 = doubles(2 * n);
    bp_gated_forward(kind, &to, &kept);
    twin_gated(y2, x2, &kind);
    assert_near(y, y2, n, 2e-5 * 200);
    assert_near(y + 2, y2 + 2, n - 2, 1e-5);
    memset(y, 0, n * sizeof *y);
    bp_gated_backward(kind, &gradient, &to, &from, &kept);
    assert_near(y + 2, y2 + 2, n - 2, 1e-5);
    for (int64_t i = 0; i < 2 * n; i += i < 10 ? 1 : 37)
        dx2[i] = slope_at(x2, i, dy, y2, n, twin_gated, &kind);
    for (int64_t i = 0; i < 2 * n; i += i < 10 ? 1 : 37)
        assert_true(fabs((double)dx[i] - dx2[i]) < 1e-4 * (1 + fabs(dx2[i])));
    void *all[] = {x, y, dy, dx, x2, y2, dx2};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

static void gated_activations_and_their_gradients_equal_plain_loops(void **state)
{
    (void)state;
    check_gated(BP_SWIGLU);
    check_gated(BP_GEGLU);
    check_gated(BP_GEGLU_EXACT);
}

static void rotary_positions_turn_pairs_and_back(void **state)
{
    enum { T = 5, HALF = 3, D = 8, HEADS = 2, ROWS = 2 * T, ROW = HEADS * D + 4 };
    float cosine[T * HALF], sine[T * HALF], *x = randoms(ROWS * ROW, 1),
                                            *kept = copied(x, ROWS * ROW);
    bp_rotary by = {T, HALF, cosine, sine};

    (void)state;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < HALF; i++) {
            cosine[t * HALF + i] = cosf((float)t * powf(100.0F, -(float)i / HALF));
            sine[t * HALF + i] = sinf((float)t * powf(100.0F, -(float)i / HALF));
        }
    bp_rotary_turn(x, ROW, ROWS, HEADS, D, &by, false);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < ROW; c++) {
            int i = c % D, t = r % T;
            double expected = (double)kept[r * ROW + c];

            if (c < HEADS * D && i < 2 * HALF) {
                int k = i % HALF, other = i < HALF ? c + HALF : c - HALF;
                double s = (double)sine[t * HALF + k] * (i < HALF ? -1 : 1);
                expected =
                    expected * (double)cosine[t * HALF + k] + (double)kept[r * ROW + other] * s;
            }
            assert_true(fabs((double)x[r * ROW + c] - expected) < 1e-6);
        }
    bp_rotary_turn(x, ROW, ROWS, HEADS, D, &by, true);
    for (int i = 0; i < ROWS * ROW; i++)
        assert_true(fabs((double)(x[i] - kept[i])) < 1e-6);
    bp_free(x);
    bp_free(kept);
}

static double twin_of(bp_activation kind, double x)
{
    const double pi = 3.14159265358979323846;

    if (kind == BP_RELU)
        return x > 0 ? x : 0;
    if (kind == BP_SILU)
        return x / (1 + exp(-x));
    return 0.5 * x *
           (kind == BP_GELU_EXACT ? erfc(-x / sqrt(2))
                                  : 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

static void activate(bp_activation kind, float *y, const float *x, int64_t n)
{
    bp_operand to = bp_operand_floats(y, 1, n), from = bp_operand_floats((float *)x, 1, n);

    bp_activation_forward(kind, &to, &from);
}

static void slope_of(bp_activation kind, float *dx, float *y, const float *dy, float *x, int64_t n)
{
    bp_operand to = bp_operand_floats(dx, 1, n), again = bp_operand_floats(y, 1, n),
               from = bp_operand_floats((float *)dy, 1, n), kept = bp_operand_floats(x, 1, n);

    bp_activation_backward(kind, &to, &again, NULL, &from, &kept);
}

static void activation_is_accurate(bp_activation kind)
{
    enum { n = 20001 };
    float *x = floats(n), *y = floats(n), *dy = floats(n), *dx = floats(n), *again = floats(n);

    for (int i = 0; i < n; i++) {
        x[i] = (float)(i - n / 2) * 0.0012f;
        dy[i] = 1;
    }
    activate(kind, y, x, n);
    slope_of(kind, dx, again, dy, x, n);
    assert_same_bits(again, y, n);
    for (int i = 0; i < n; i++) {
        double at = (double)x[i], step = 1e-4, twin = twin_of(kind, at),
               slope = (twin_of(kind, at + step) - twin_of(kind, at - step)) / (2 * step);
        assert_true(fabs((double)y[i] - twin) <= 4e-7 * (1 + fabs(at)));
        assert_true(fabs((double)dx[i] - slope) <= 2e-6 || (kind == BP_RELU && fabs(at) < step));
        /* left of 0, too, where 1 + erf would have lost its digits: x^2 / 2 is rounded */
        assert_true(kind == BP_GELU_TANH || fabs(at) > 12 ||
                    fabs((double)y[i] - twin) <= (5e-7 + 1e-7 * at * at) * fabs(twin));
    }
    /* In place, too. */
    slope_of(kind, dy, again, dy, x, n);
    assert_same_bits(dy, dx, n);
    activate(kind, x, x, n);
    assert_same_bits(x, y, n);
    bp_free(again);
    bp_free(x);
    bp_free(y);
    bp_free(dy);
    bp_free(dx);
}

static void activations_and_their_slopes_are_accurate(void **state)
{
    (void)state;
    activation_is_accurate(BP_GELU_TANH);
    activation_is_accurate(BP_GELU_EXACT);
    activation_is_accurate(BP_RELU);
    activation_is_accurate(BP_SILU);
}

static void activations_hold_at_the_ends(void **state)
{
    for (bp_activation kind = BP_GELU_TANH; kind <= BP_SILU; kind++) {
        float x[] = {1e30f, -1e30f, 3e38f, -3e38f, INFINITY, NAN, 0.0f, -0.0f, 1e-30f, -12.0f},
              y[10], dx[10], again[10], middle = kind == BP_RELU ? 0.0f : 0.5f;
        float dy[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

        activate(kind, y, x, 10);
        slope_of(kind, dx, again, dy, x, 10);
        assert_true(y[0] == 1e30f && y[2] == 3e38f && y[4] == INFINITY && isnan(y[5]));
        assert_true(y[1] == 0.0f && y[3] == 0.0f && y[6] == 0.0f && y[9] <= 0.0f);
        assert_true(dx[0] == 1.0f && fabsf(dx[1]) < 1e-30f && dx[4] == 1.0f && isnan(dx[5]));
        assert_true(fabsf(dx[6] - middle) < 1e-7f && fabsf(dx[7] - middle) < 1e-7f);
    }
    (void)state;
}

static void embedding_takes_and_returns_rows(void **state)
{
    enum { rows = 50, C = 19, here = 7, first = 3 };
    float *table = randoms(here * C, 1), *x = randoms(rows * C, 2), *dx = randoms(rows * C, 3);
    float *dtable = randoms(here * C, 4), *twin = copied(dtable, here * C);
    int32_t ids[rows];

    (void)state;
    for (int r = 0; r < rows; r++)
        ids[r] = r * r % 13; /* 0..12: some lie on other ranks, some repeat */
    bp_embedding_forward(x, table, ids, rows, C, first, here);
    bp_embedding_backward(dtable, dx, ids, rows, C, first, here);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < C; c++) {
            bool held = ids[r] >= first && ids[r] < first + here;
            assert_true(x[r * C + c] == (held ? table[(ids[r] - first) * C + c] : 0.0f));
            if (held)
                twin[(ids[r] - first) * C + c] += dx[r * C + c];
        }
    assert_same_bits(dtable, twin, here * C);
    bp_free(table);
    bp_free(x);
    bp_free(dx);
    bp_free(dtable);
    bp_free(twin);
}

static void positions_are_added_and_summed_over_sequences(void **state)
{
    enum { B = 3, T = 5, C = 21 };
    float *table = randoms(T * C, 1), *x = randoms(B * T * C, 2), *dx = randoms(B * T * C, 3);
    float *dtable = randoms(T * C, 4), *x_twin = copied(x, B * T * C),
          *d_twin = copied(dtable, T * C);

    (void)state;
    for (int first = 0, n; first < B * T; first += n) { /* in parts that no sequence ends with */
        n = first + 7 < B * T ? 7 : B * T - first;
        bp_position_rows rows = {first, n, T};
        bp_positions_forward(x + first * C, table, &rows, C);
        bp_positions_backward(dtable, dx + first * C, &rows, C);
    }
    for (int b = 0; b < B; b++)
        for (int i = 0; i < T * C; i++) {
            x_twin[b * T * C + i] += table[i];
            d_twin[i] += dx[b * T * C + i];
        }
    assert_same_bits(x, x_twin, B * T * C);
    assert_same_bits(dtable, d_twin, T * C);
    bp_free(table);
    bp_free(x);
    bp_free(dx);
    bp_free(dtable);
    bp_free(x_twin);
    bp_free(d_twin);
}

static void add_scale_and_zero_do_so(void **state)
{
    enum { n = 10007 };
    float *x = randoms(n, 1), *y = randoms(n, 2), *twin = copied(y, n);

    (void)state;
    bp_add(y, x, n);
    bp_scale(y, 0.3f, n);
    for (int i = 0; i < n; i++) {
        twin[i] += x[i];
        twin[i] *= 0.3f;
    }
    assert_same_bits(y, twin, n);
    bp_zero(y + 1, n - 2);
    assert_true(y[0] == twin[0] && y[n - 1] == twin[n - 1]);
    for (int i = 1; i < n - 1; i++)
        assert_true(y[i] == 0.0f);
    bp_free(x);
    bp_free(y);
    bp_free(twin);
}

/* Cross-entropy of a vocabulary in two parts, as two tensor ranks hold it. */
static void softmax_in_parts_equals_the_whole(void **state)
{
    enum { rows = 9, V = 501, cut = 267 };
    float *logits = randoms(rows * V, 1), *part[2], row_max[2][rows], weight[rows];
    double sum[2][rows], target[2][rows], *twin = doubles(rows * V);
    const int64_t first[] = {0, cut}, width[] = {cut, V - cut};
    int32_t targets[rows];

    (void)state;
    for (int r = 0; r < rows; r++) {
        targets[r] = r * 61 % V;
        weight[r] = 0.1f * (float)(r + 1);
    }
    for (int p = 0; p < 2; p++) {
        part[p] = floats(rows * width[p]);
        for (int r = 0; r < rows; r++)
            memcpy(part[p] + r * width[p], logits + r * V + first[p],
                   (size_t)width[p] * sizeof(float));
        bp_softmax_statistics(
            row_max[p], sum[p], target[p],
            &(bp_logit_rows){part[p], targets, rows, width[p], first[p], width[p]});
    }
    for (int r = 0; r < rows; r++) {
        double total = 0, most = (double)fmaxf(row_max[0][r], row_max[1][r]);
        for (int p = 0; p < 2; p++) {
            sum[p][r] *= exp((double)row_max[p][r] - most);
            row_max[p][r] = (float)most;
        }
        for (int v = 0; v < V; v++)
            total += exp((double)logits[r * V + v] - most);
        assert_true(fabs(sum[0][r] + sum[1][r] - total) <= 2e-7 * total);
        assert_true(target[0][r] + target[1][r] == (double)logits[r * V + targets[r]]);
        sum[0][r] = sum[1][r] = sum[0][r] + sum[1][r];
        for (int v = 0; v < V; v++)
            twin[r * V + v] = (exp((double)logits[r * V + v] - most) / total - (v == targets[r])) *
                              (double)weight[r];
    }
    for (int p = 0; p < 2; p++) {
        bp_operand gradient = bp_operand_floats(part[p], rows, width[p]);
        bp_softmax_gradient(&gradient,
                            &(bp_logit_rows){part[p], targets, gradient.rows, gradient.columns,
                                             first[p], gradient.columns},
                            row_max[p], sum[p], weight, NULL);
        for (int r = 0; r < rows; r++)
            assert_near(part[p] + r * width[p], twin + r * V + first[p], width[p], 2e-7);
        bp_free(part[p]);
    }
    bp_free(logits);
    bp_free(twin);
}

static void softmax_row_is_alone(void **state)
{
    enum { rows = 40, V = 1003 };
    float *logits = randoms(rows * V, 1), *row = floats(V + 3), row_max[rows], one_max;
    double sum[rows], target[rows], one_sum, one_target;
    int32_t targets[rows];

    (void)state;
    for (int r = 0; r < rows; r++)
        targets[r] = r;
    bp_softmax_statistics(row_max, sum, target, &(bp_logit_rows){logits, targets, rows, V, 0, V});
    for (int r = 0; r < rows; r++) {
        float *elsewhere = row + r % 4; /* at every alignment */
        memcpy(elsewhere, logits + r * V, V * sizeof(float));
        bp_softmax_statistics(&one_max, &one_sum, &one_target,
                              &(bp_logit_rows){elsewhere, &targets[r], 1, V, 0, V});
        assert_true(one_max == row_max[r] && one_sum == sum[r] && one_target == target[r]);
    }
    bp_free(logits);
    bp_free(row);
}

/* Rising rows, whose maximum moves from block to block, and rows that begin with nothing. */
static void softmax_statistics_follow_the_maximum(void **state)
{
    enum { V = 9001 };
    float *logits = randoms(V, 1), max;
    double sum, target, twin = 0;
    int32_t id = 3;

    (void)state;
    for (int v = 0; v < V; v++)
        logits[v] += 0.003f * (float)v;
    for (int v = 0; v < 4100; v++)
        logits[v] = -INFINITY;
    bp_softmax_statistics(&max, &sum, &target, &(bp_logit_rows){logits, &id, 1, V, 0, V});
    for (int v = 0; v < V; v++)
        twin += exp((double)logits[v] - (double)max);
    assert_true(fabs(sum - twin) <= 2e-7 * twin);
    assert_true(target == -INFINITY);
    bp_softmax_statistics(&max, &sum, &target, &(bp_logit_rows){logits, &id, 1, 4100, 0, 4100});
    assert_true(max == -INFINITY && sum == 0);
    bp_softmax_statistics(&max, &sum, &target, &(bp_logit_rows){logits, &id, 1, 0, 0, 0});
    assert_true(max == -INFINITY && sum == 0 && target == 0);
    logits[7] = NAN;
    bp_softmax_statistics(&max, &sum, &target, &(bp_logit_rows){logits, &id, 1, 4100, 0, 4100});
    assert_true(isnan(sum));
    bp_free(logits);
}

static void softmax_entropies_equal_plain_loops(void **state)
{
    enum { ROWS = 3, V = 5301, STRIDE = 5310 };
    float *logits = randoms(ROWS * STRIDE, 4), max[ROWS], same[ROWS];
    double sums[ROWS], targets[ROWS], entropies[ROWS], again[ROWS];
    int32_t ids[ROWS] = {0};
    const bp_logit_rows rows = {logits, ids, ROWS, V, 0, STRIDE};

    (void)state;
    logits[STRIDE + 9] = 60; /* nearly all of the second row */
    for (int v = 0; v < V; v++)
        logits[2 * STRIDE + v] += 0.003f * (float)v; /* the maximum moves from block to block */
    bp_softmax_statistics(max, sums, targets, &rows);
    bp_softmax_entropies(same, again, entropies, &rows);
    assert_memory_equal(same, max, sizeof max);
    assert_memory_equal(again, sums, sizeof sums);
    for (int r = 0; r < ROWS; r++) {
        double twin = 0;

        for (int v = 0; v < V; v++) {
            double lp = (double)logits[r * STRIDE + v] - (double)max[r] - log(sums[r]);

            twin -= exp(lp) * lp;
        }
        assert_true(fabs(entropies[r] - twin) <=
                    1e-6 * fmax(twin, 1e-6)); /* float32 exponentials */
    }
    logits[5] = NAN;
    bp_softmax_entropies(same, again, entropies, &rows);
    assert_true(isnan(entropies[0]) && isfinite(entropies[1]));
    bp_free(logits);
}

/* A number that is not finite is noticed at every place of a row. */
static void softmax_and_norms_show_nan(void **state)
{
    enum { V = 101 };
    float *logits = randoms(V, 1), row_max, weight = 1;
    double sum, target, squares;
    int32_t id = 5;

    (void)state;
    for (int v = 0; v < V; v++) {
        float kept = logits[v];
        logits[v] = v % 2 ? NAN : INFINITY;
        bp_softmax_statistics(&row_max, &sum, &target, &(bp_logit_rows){logits, &id, 1, V, 0, V});
        assert_true(isnan(sum));
        bp_square_sums(&squares, logits, V);
        assert_false(isfinite(squares));
        float *gradient = copied(logits, V);
        bp_operand to = bp_operand_floats(gradient, 1, V);
        bp_softmax_gradient(&to,
                            &(bp_logit_rows){gradient, &id, to.rows, to.columns, 0, to.columns},
                            &row_max, &sum, &weight, NULL);
        assert_true(isnan(gradient[0]) && isnan(gradient[V - 1]));
        bp_free(gradient);
        logits[v] = kept;
    }
    bp_free(logits);
}

/* All kernels that threads share, one result after the other. */
static void run_all(float *out, const float *x, const float *dy, int64_t rows, int64_t C)
{
    int64_t n = rows * C;
    float *scratch = floats(bp_layer_norm_scratch(rows, C)), *mean = floats(rows),
          *rstd = floats(rows);
    double *sums = doubles(rows + n / BP_NORM_BLOCK + 1), *target = doubles(rows);
    int32_t *ids = bp_alloc("test", rows, sizeof *ids);

    assert_non_null(ids);
    for (int64_t r = 0; r < rows; r++)
        ids[r] = (int32_t)(r * 7 % 50);
    memset(out, 0, (size_t)(7 * n) * sizeof *out);
    bp_norm how = {x, dy, 1e-5f, mean, rstd};
    norm(out, x, &how, rows, C);
    bp_layer_norm_backward(&(bp_norm_gradients){out + n, out + 2 * n, out + 2 * n + C, false}, NULL,
                           dy, x, &how, rows, C, scratch);
    bp_operand y = bp_operand_floats(out + 3 * n, rows, C),
               dx = bp_operand_floats(out + 4 * n, rows, C),
               kept = bp_operand_floats((float *)x, rows, C),
               from = bp_operand_floats((float *)dy, rows, C);
    bp_bias_gradient bias = {out + 2 * n + 2 * C, scratch};
    bp_activation_backward(BP_GELU_TANH, &dx, &y, &bias, &from, &kept);
    bp_embedding_backward(out + 5 * n, dy, ids, rows, C, 0, 50);
    bp_positions_backward(out + 6 * n, dy, &(bp_position_rows){0, rows, rows / 2}, C);
    bp_softmax_statistics(mean, sums, target, &(bp_logit_rows){x, ids, rows, C, 0, C});
    bp_square_sums(sums + rows, x, n);
    for (int64_t i = 0; i < rows + n / BP_NORM_BLOCK; i++)
        out[6 * n + n / 2 + i] = (float)sums[i];
    void *all[] = {scratch, mean, rstd, sums, target, ids};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
        bp_free(all[j]);
}

static void threads_do_not_change_bits(void **state)
{
    enum { rows = 302, C = 130, n = rows * C };
    float *x = randoms(n, 1), *dy = randoms(n, 2), *one = floats(7 * n), *many = floats(7 * n);

    (void)state;
    bp_math_set_threads(1);
    run_all(one, x, dy, rows, C);
    for (int threads = 2; threads <= 5; threads++) {
        bp_math_set_threads(threads);
        run_all(many, x, dy, rows, C);
        assert_same_bits(one, many, 7 * n);
    }
    bp_math_set_threads(0);
    bp_free(x);
    bp_free(dy);
    bp_free(one);
    bp_free(many);
}

/* Adafactor's sums of rows, of columns, and of squared steps, of a matrix in two runs. */
static void sum_factored(double *out, const float *g, int64_t rows, int64_t C, int64_t cut)
{
    const float *row = g + 1, *column = g + 2;

    memset(out, 0, (size_t)(rows + C + 1) * sizeof *out);
    for (int64_t first = 0, end = cut; first < rows * C; first = end, end = rows * C) {
        bp_factored at = {.place = first,
                          .n = end - first,
                          .columns = C,
                          .first = 77 + first,
                          .row_sums = out,
                          .column_sums = out + rows,
                          .row = row,
                          .column = column};
        bp_factor_sums(&at, g + first, 0.5, 1e-3);
        bp_factor_squares(out + rows + C, &at, g + first);
    }
}

static void factored_sums_equal_plain_loops_with_any_threads(void **state)
{
    enum { rows = 700, C = 130, n = rows * C, all = rows + C + 1 }; /* more parts than fit a list */
    float *g = randoms(n, 3);
    double plain[all] = {0}, *one = doubles(all), *many = doubles(all);

    (void)state;
    for (int64_t i = 0; i < n; i++) {
        double square = 0.25 * (double)g[i] * (double)g[i] + (double)1e-3f,
               step = (double)g[i] * (double)g[1 + i / C] * (double)g[2 + i % C];
        plain[i / C] += square;
        plain[rows + i % C] += square;
        plain[rows + C] += step * step;
    }
    bp_math_set_threads(1);
    sum_factored(one, g, rows, C, n);
    for (int k = 0; k < all; k++)
        assert_true(fabs(one[k] - plain[k]) < 1e-6 * plain[k]);
    for (int threads = 1; threads <= 5; threads++) {
        bp_math_set_threads(threads);
        /* shards of ranks are cut where blocks are */
        for (int64_t cut = threads * BP_NORM_BLOCK - 77; cut > 0; cut = cut < n ? n : 0) {
            sum_factored(many, g, rows, C, cut);
            assert_memory_equal(one, many, all * sizeof *one);
        }
    }
    bp_math_set_threads(0);
    bp_free(g);
    bp_free(one);
    bp_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gated_activations_and_their_gradients_equal_plain_loops),
        cmocka_unit_test(rotary_positions_turn_pairs_and_back),
        cmocka_unit_test(activations_and_their_slopes_are_accurate),
        cmocka_unit_test(activations_hold_at_the_ends),
        cmocka_unit_test(embedding_takes_and_returns_rows),
        cmocka_unit_test(positions_are_added_and_summed_over_sequences),
        cmocka_unit_test(add_scale_and_zero_do_so),
        cmocka_unit_test(softmax_in_parts_equals_the_whole),
        cmocka_unit_test(softmax_row_is_alone),
        cmocka_unit_test(softmax_statistics_follow_the_maximum),
        cmocka_unit_test(softmax_entropies_equal_plain_loops),
        cmocka_unit_test(softmax_and_norms_show_nan),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(factored_sums_equal_plain_loops_with_any_threads),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
