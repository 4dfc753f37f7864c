/* Only the speed of the arithmetic: every thread multiplies in its registers. The operands are
 * random, because the clock depends on how many bits change: on an Emerald Rapids AMX multiplies
 * zeros a fifth faster. */
#include "base/process/clock.h"
#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math/math.h"

#define ROUND_TIMES 200000 /* a round takes milliseconds: forking is a thousandth of it */

/* The loop with the instructions of this precision's products here; may be NULL. */
static bp_multiply_adds *loop_of(bp_precision precision)
{
    if (precision == BP_F32)
        return bp_loops_best()->multiply_adds;
    if (!bp_gemm_has_bf16())
        return NULL;
    const bp_bf16_kernel *kernel = bp_bf16_kernel_here();
    return kernel ? kernel->multiply_adds : bp_loops_best()->multiply_adds;
}

static void fill_operands(float operands[BP_PEAK_OPERANDS])
{
    bp_rng_key key = bp_rng_key_of(0, BP_RNG_BENCH, 0, 0, 0);

    for (int i = 0; i < BP_PEAK_OPERANDS; i++)
        operands[i] = (float)(2 * bp_rng_uniform(&key, (uint64_t)i) - 1);
}

double bp_math_peak(bp_precision precision, double seconds)
{
    bp_multiply_adds *loop = loop_of(precision);
    double end = bp_clock_now() + seconds, best = 0;
    float operands[BP_PEAK_OPERANDS];

    if (!loop)
        return 0;
    fill_operands(operands);
    do {
        int64_t operations = 0;
        double start = bp_clock_now();
#pragma omp parallel reduction(+ : operations)
        {
            volatile float kept;
            float out = 0;
            operations += loop(&out, operands, ROUND_TIMES);
            kept = out;
            (void)kept;
        }
        double speed = (double)operations / (bp_clock_now() - start);
        best = speed > best ? speed : best;
    } while (bp_clock_now() < end);
    return best;
}
