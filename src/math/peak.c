/* The speed of the arithmetic alone: every thread multiplies in its registers. */
#include "base/clock.h"
#include "math/gemm/bf16_gemm_priv.h"
#include "math/gemm/linear_priv.h"
#include "math/kernels/loops_priv.h"
#include "math/math.h"

#define ROUND_TIMES 200000 /* a round takes milliseconds: forking is a thousandth of it */

typedef int64_t (*multiply_adds)(float *out, float factor, int64_t times);

/* The loop by whose instructions products of this precision are computed here; NULL: none. */
static multiply_adds loop_of(bp_precision precision)
{
    if (precision == BP_F32)
        return bp_loops_best()->multiply_adds;
    if (!bp_gemm_has_bf16())
        return NULL;
    const bp_bf16_kernel *kernel = bp_bf16_kernel_here();
    return kernel ? kernel->multiply_adds : bp_loops_best()->multiply_adds;
}

double bp_math_peak(bp_precision precision, double seconds)
{
    multiply_adds loop = loop_of(precision);
    double end = bp_clock_now() + seconds, best = 0;

    if (!loop)
        return 0;
    do {
        int64_t operations = 0;
        double start = bp_clock_now();
#pragma omp parallel reduction(+ : operations)
        {
            volatile float kept;
            float out = 0;
            operations += loop(&out, 1e-3f, ROUND_TIMES);
            kept = out;
            (void)kept;
        }
        double speed = (double)operations / (bp_clock_now() - start);
        best = speed > best ? speed : best;
    } while (bp_clock_now() < end);
    return best;
}
