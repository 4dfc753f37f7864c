/* Products of random matrices and their plain loops, for the tests of linear maps. */
#pragma once

#include "base/err.h"
#include "base/fault.h"
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "math_test.h"

/* The ways in which products are computed. */
enum { F32, F32_LIBRARY, BF16_NATIVE, BF16_ROUNDED, BF16_OWN, BF16_MIXED };

int ways(void);

bp_gemm *gemm_of(int way);

double operand(float x, int way);

void twin_forward(double *y, const float *x, const float *w, const float *bias, int64_t rows,
                  int64_t outs, int64_t ins, int way);

void twin_input(double *dx, const float *dy, const float *w, int64_t rows, int64_t outs,
                int64_t ins, int way);

/* Sums of n products of normal numbers in float32: rounding grows like n eps times the largest
 * partial sum. */
double tolerance(int64_t n);

typedef struct problem {
    int64_t rows, outs, ins;
    float *x, *w, *bias, *dy, *y, *dx, *dw, *dbias;
    double *y_twin, *dx_twin, *dw_twin, *dbias_twin;
} problem;

problem problem_of(int64_t rows, int64_t outs, int64_t ins);

void problem_free(problem *p);

void check_shape(int way, int64_t rows, int64_t outs, int64_t ins);
