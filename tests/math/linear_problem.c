/* Products of random matrices and their plain loops, for the tests of linear maps. */
#include "linear_problem.h"

int ways(void)
{
    return bp_math_has_bf16() ? 6 : 2;
}

static bp_bf16_form form_of(int way)
{
    static const bp_bf16_form forms[] = {
        [F32] = BP_BF16_ROUNDED,        [F32_LIBRARY] = BP_BF16_NATIVE,
        [BF16_NATIVE] = BP_BF16_NATIVE, [BF16_ROUNDED] = BP_BF16_ROUNDED,
        [BF16_OWN] = BP_BF16_OWN,       [BF16_MIXED] = BP_BF16_MIXED};

    return forms[way];
}

static bp_precision precision_of(int way)
{
    return way <= F32_LIBRARY ? BP_F32 : BP_BF16;
}

bp_gemm *gemm_of(int way)
{
    bp_gemm *gemm;

    assert_int_equal(bp_gemm_new_form(&gemm, precision_of(way), form_of(way)), BP_OK);
    assert_int_equal(bp_gemm_precision(gemm), precision_of(way));
    return gemm;
}

/* The rounding that bf16 operands go through, in plain C. */
static double bf16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return (double)x;
}

double operand(float x, int way)
{
    return precision_of(way) == BP_BF16 ? bf16_of(x) : (double)x;
}

void twin_forward(double *y, const float *x, const float *w, const float *bias, int64_t rows,
                  int64_t outs, int64_t ins, int way)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < outs; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (int64_t i = 0; i < ins; i++)
                sum += operand(x[r * ins + i], way) * operand(w[o * ins + i], way);
            y[r * outs + o] = sum;
        }
}

void twin_input(double *dx, const float *dy, const float *w, int64_t rows, int64_t outs,
                int64_t ins, int way)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < ins; i++) {
            double sum = 0;
            for (int64_t o = 0; o < outs; o++)
                sum += operand(dy[r * outs + o], way) * operand(w[o * ins + i], way);
            dx[r * ins + i] = sum;
        }
}

static void twin_weight(double *dw, double *dbias, const float *dy, const float *x, int64_t rows,
                        int64_t outs, int64_t ins, int way)
{
    for (int64_t o = 0; o < outs; o++) {
        for (int64_t i = 0; i < ins; i++)
            for (int64_t r = 0; r < rows; r++)
                dw[o * ins + i] += operand(dy[r * outs + o], way) * operand(x[r * ins + i], way);
        for (int64_t r = 0; r < rows; r++)
            dbias[o] += (double)dy[r * outs + o];
    }
}

double tolerance(int64_t n)
{
    return 1e-6 * sqrt((double)n) * 4 + 1e-6;
}

problem problem_of(int64_t rows, int64_t outs, int64_t ins)
{
    return (problem){
        .rows = rows,
        .outs = outs,
        .ins = ins,
        .x = randoms(rows * ins, 1),
        .w = randoms(outs * ins, 2),
        .bias = randoms(outs, 3),
        .dy = randoms(rows * outs, 4),
        .y = randoms(rows * outs, 5),
        .dx = randoms(rows * ins, 6),
        .dw = randoms(outs * ins, 7),
        .dbias = randoms(outs, 8),
        .y_twin = doubles(rows * outs),
        .dx_twin = doubles(rows * ins),
    };
}

void problem_free(problem *p)
{
    void *all[] = {p->x,  p->w,     p->bias,   p->dy,      p->y,       p->dx,
                   p->dw, p->dbias, p->y_twin, p->dx_twin, p->dw_twin, p->dbias_twin};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

void check_shape(int way, int64_t rows, int64_t outs, int64_t ins)
{
    problem p = problem_of(rows, outs, ins);
    bp_gemm *gemm;
    bp_weight *weight;

    p.dw_twin = widened(p.dw, outs * ins);
    p.dbias_twin = widened(p.dbias, outs);
    gemm = gemm_of(way);
    assert_int_equal(bp_weight_new(&weight, gemm, p.w, outs, ins), BP_OK);
    for (int pass = 0; pass < 2; pass++) { /* with bias and without */
        const float *bias = pass == 0 ? p.bias : NULL;
        bp_linear_forward(gemm, p.y, p.x, weight, bias, rows);
        twin_forward(p.y_twin, p.x, p.w, bias, rows, outs, ins, way);
        assert_near(p.y, p.y_twin, rows * outs, tolerance(ins));
    }
    bp_linear_backward_input(gemm, p.dx, p.dy, weight, rows);
    twin_input(p.dx_twin, p.dy, p.w, rows, outs, ins, way);
    assert_near(p.dx, p.dx_twin, rows * ins, tolerance(outs));
    for (int pass = 0; pass < 2; pass++) { /* twice: it accumulates */
        bp_linear_backward_weight(gemm, p.dw, p.dbias, p.dy, p.x, rows, outs, ins);
        twin_weight(p.dw_twin, p.dbias_twin, p.dy, p.x, rows, outs, ins, way);
    }
    bp_linear_backward_weight(gemm, p.dw, NULL, p.dy, p.x, 0, outs,
                              ins); /* no rows: nothing changes */
    assert_near(p.dw, p.dw_twin, outs * ins, 2 * tolerance(rows));
    assert_near(p.dbias, p.dbias_twin, outs, 2 * tolerance(rows));
    bp_weight_free(&weight);
    assert_null(weight);
    bp_gemm_free(&gemm);
    assert_null(gemm);
    problem_free(&p);
}
