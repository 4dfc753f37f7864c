/* Recurrent cells and the products between them: near plain loops in float64, the same bits on
 * every instruction set, and a row's bits its own. */
#include "base/err.h"
#include "math/gemm/step.h"
#include "math/loops/loops.h"
#include "math/threads.h"
#include "math_test.h"

enum { H = 131, ROWS = 5 };

static const int64_t GATES[] = {[BP_CELL_RNN] = 1, [BP_CELL_LSTM] = 4, [BP_CELL_GRU] = 3};

/* ---- cells ---- */

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* What a cell reads, makes, and its gradients: of one row after the other. */
typedef struct cell {
    float *gates, *u, *h, *c, *new_h, *new_c, *kept, *da, *du, *dh, *dc;
} cell;

static cell new_cell(int64_t gates)
{
    cell x = {.gates = randoms(ROWS * gates * H, 1),
              .u = randoms(ROWS * gates * H, 2),
              .h = randoms(ROWS * H, 3),
              .c = randoms(ROWS * H, 4),
              .new_h = floats(ROWS * H),
              .new_c = floats(ROWS * H),
              .kept = floats(ROWS * H),
              .da = floats(ROWS * gates * H),
              .du = floats(ROWS * gates * H),
              .dh = randoms(ROWS * H, 5),
              .dc = randoms(ROWS * H, 6)};

    for (int64_t k = 0; k < ROWS * gates * H; k++) { /* from tiny to saturated */
        x.gates[k] *= k % 7 == 0 ? 40.0F : k % 5 == 0 ? 1e-4F : 2.0F;
        x.u[k] *= k % 5 == 0 ? 1e-4F : 2.0F;
    }
    return x;
}

static void free_cell(cell *x)
{
    float *all[] = {x->gates, x->u,  x->h,  x->c,  x->new_h, x->new_c,
                    x->kept,  x->da, x->du, x->dh, x->dc};

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        bp_free(all[k]);
}

/* Of an LSTM, which many of the cells reach. */
#define CLIP 0.5F

static bp_cell_units units_of(const cell *x)
{
    return (bp_cell_units){H, H, x->gates, x->u, x->h, x->c, x->new_h, x->new_c, x->kept, 0};
}

static void near(double want, float got)
{
    assert_true(fabs((double)got - want) <= 1e-6 * fmax(1, fabs(want)));
}

/* One unit, forward from copies of what the cell began with. */
static void check_unit(bp_recurrent_cell kind, double clip, const cell *began, const cell *x,
                       int64_t row, int64_t k)
{
    int64_t G = GATES[kind], s = row * H + k, g = row * G * H + k;
    double a[4], u[4], dh = (double)began->dh[s], dc = (double)began->dc[s],
                       h = (double)began->h[s], c = (double)began->c[s];

    for (int64_t i = 0; i < G; i++) {
        a[i] = (double)began->gates[g + i * H];
        u[i] = (double)began->u[g + i * H];
    }
    if (kind == BP_CELL_RNN) {
        double t = tanh(a[0] + u[0]);

        near(t, x->new_h[s]);
        near(dh * (1 - t * t), x->da[g]);
    } else if (kind == BP_CELL_LSTM) {
        double i = logistic(a[0] + u[0]), f = logistic(a[1] + u[1]), z = tanh(a[2] + u[2]),
               o = logistic(a[3] + u[3]), sum = f * c + i * z, now = fmax(-clip, fmin(clip, sum)),
               t = tanh(now), d = fabs(sum) < clip ? dc + dh * o * (1 - t * t) : 0;

        near(now, x->new_c[s]);
        near(o * t, x->new_h[s]);
        near(d * z * i * (1 - i), x->da[g]);
        near(d * c * f * (1 - f), x->da[g + H]);
        near(d * i * (1 - z * z), x->da[g + 2 * H]);
        near(dh * t * o * (1 - o), x->da[g + 3 * H]);
        near(d * f, x->dc[s]);
    } else {
        double r = logistic(a[0] + u[0]), z = logistic(a[1] + u[1]), n = tanh(a[2] + r * u[2]);
        double dn = dh * (1 - z) * (1 - n * n);

        near((1 - z) * n + z * h, x->new_h[s]);
        near(dn * u[2] * r * (1 - r), x->da[g]);
        near(dn * u[2] * r * (1 - r), x->du[g]);
        near(dh * (h - n) * z * (1 - z), x->da[g + H]);
        near(dh * (h - n) * z * (1 - z), x->du[g + H]);
        near(dn, x->da[g + 2 * H]);
        near(dn * r, x->du[g + 2 * H]);
        near(dh * z, x->dh[s]);
    }
}

static void check_cell(bp_recurrent_cell kind, float clip)
{
    cell began = new_cell(GATES[kind]), x = new_cell(GATES[kind]);
    bp_cell_units units = units_of(&x);

    units.clip = clip;
    bp_cell_forward(kind, &units, ROWS);
    bp_cell_backward(kind, &units, &(bp_cell_gradients){x.da, x.du, x.dh, x.dc}, ROWS);
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t k = 0; k < H; k++)
            check_unit(kind, clip > 0 ? (double)clip : INFINITY, &began, &x, row, k);
    free_cell(&began);
    free_cell(&x);
}

static void cells_are_near_plain_loops(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        bp_math_set_threads(threads);
        for (int kind = BP_CELL_RNN; kind <= BP_CELL_GRU; kind++)
            check_cell((bp_recurrent_cell)kind, 0);
        check_cell(BP_CELL_LSTM, CLIP);
    }
}

static void run_loops(const bp_loops *loops, int kind, const cell *x)
{
    bp_cell_units units = units_of(x);
    bp_cell_gradients to = {x->da, x->du, x->dh, x->dc};

    if (kind == BP_CELL_RNN) {
        loops->rnn_forward(&units);
        loops->rnn_backward(&units, &to);
    } else if (kind == BP_CELL_LSTM) {
        loops->lstm_forward(&units);
        loops->lstm_backward(&units, &to);
    } else {
        loops->gru_forward(&units);
        loops->gru_backward(&units, &to);
    }
}

static void instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    for (int set = 1; bp_loops_at(set); set++)
        for (int kind = BP_CELL_RNN; kind <= BP_CELL_GRU; kind++) {
            cell one = new_cell(GATES[kind]), other = new_cell(GATES[kind]);
            float *a[] = {one.gates, one.new_h, one.new_c, one.da, one.du, one.dh, one.dc},
                  *b[] = {other.gates, other.new_h, other.new_c, other.da,
                          other.du,    other.dh,    other.dc};

            run_loops(bp_loops_at(0), kind, &one);
            run_loops(bp_loops_at(set), kind, &other);
            for (size_t k = 0; k < sizeof a / sizeof *a; k++)
                assert_memory_equal(a[k], b[k], H * sizeof(float));
            free_cell(&one);
            free_cell(&other);
        }
}

static void tanh_is_accurate(void **state)
{
    (void)state;
    for (int set = 0; bp_loops_at(set); set++) {
        float ends[] = {-INFINITY, INFINITY, NAN, 1e-30F, -0.0F};

        for (float x = -12; x < 12; x += 0.00037F) {
            float y;
            double want = tanh((double)x);

            bp_loops_at(set)->tanh(&y, &x, 1);
            assert_true(fabs((double)y - want) <= 3e-7 * fabs(want));
        }
        bp_loops_at(set)->tanh(ends, ends, 5);
        assert_true(ends[0] == -1 && ends[1] == 1 && isnan(ends[2]) && ends[3] == 1e-30F);
        assert_true(ends[4] == 0);
    }
}

/* ---- products ---- */

static void check_product(int64_t rows, int64_t outs, int64_t ins)
{
    float *w = randoms(outs * ins, 1), *x = randoms(rows * ins, 2), *dy = randoms(rows * outs, 3),
          *bias = randoms(outs, 4), *y = floats(rows * outs), *dx = floats(rows * ins),
          *one = floats(outs + ins);
    double tolerance = 1e-5 * sqrt((double)(outs + ins)); /* float32 sums in order */
    bp_step_weight *weight;
    bp_gemm *gemm;

    assert_int_equal(bp_gemm_new(&gemm, BP_F32), BP_OK);
    assert_int_equal(bp_step_weight_new(&weight, gemm, w, outs, ins), BP_OK);
    bp_step_weight_refresh(weight);
    bp_math_set_threads(2);
    bp_step_forward(y, x, weight, bias, rows);
    bp_step_backward(dx, dy, weight, rows);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < outs; o++) {
            double sum = (double)bias[o];

            for (int64_t k = 0; k < ins; k++)
                sum += (double)x[r * ins + k] * (double)w[o * ins + k];
            assert_true(fabs(sum - (double)y[r * outs + o]) < tolerance);
        }
        for (int64_t k = 0; k < ins; k++) {
            double sum = 0;

            for (int64_t o = 0; o < outs; o++)
                sum += (double)dy[r * outs + o] * (double)w[o * ins + k];
            assert_true(fabs(sum - (double)dx[r * ins + k]) < tolerance);
        }
    }
    bp_math_set_threads(1);
    for (int64_t r = 0; r < rows; r++) { /* a row alone */
        bp_step_forward(one, x + r * ins, weight, bias, 1);
        assert_memory_equal(one, y + r * outs, (size_t)outs * sizeof *one);
        bp_step_backward(one, dy + r * outs, weight, 1);
        assert_memory_equal(one, dx + r * ins, (size_t)ins * sizeof *one);
    }
    bp_step_weight_free(&weight);
    bp_gemm_free(&gemm);
    float *all[] = {w, x, dy, bias, y, dx, one};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        bp_free(all[k]);
}

static void products_are_near_plain_loops_and_rows_alone_have_the_same_bits(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {20, 96, 24},  {3, 33, 257}, {50, 40, 31},
                                        {97, 65, 300}, {7, 520, 130}, {13, 32, 64}, {5, 700, 650}};

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        check_product(shapes[k][0], shapes[k][1], shapes[k][2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_near_plain_loops),
        cmocka_unit_test(instruction_sets_give_the_same_bits),
        cmocka_unit_test(tanh_is_accurate),
        cmocka_unit_test(products_are_near_plain_loops_and_rows_alone_have_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
