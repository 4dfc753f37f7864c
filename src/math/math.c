/* Options, threads, precision, and the speed of matrix products. */
#include "math/math.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "math/gemm/linear_parts.h"
#include "math/threads_priv.h"
#include <omp.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define BRIEF_SECONDS 0.1

const bp_option bp_math_options[] = {
    {BP_CHOICE_KEY("math.precision", "auto", "auto|f32|bf16"),
     .help = "matrix products in bfloat16 with float32 sums, or in float32; auto: bf16 where the "
             "CPU has it",
     .at = BP_AT(bp_math_keys, precision)},
    {BP_INT_KEY("math.threads", "0", 0, 1024), .unit = "threads",
     .help = "threads of each rank; 0: the cores this rank may use",
     .at = BP_AT(bp_math_keys, threads)},
    {.key = NULL},
};

bool bp_math_has_bf16(void)
{
    return bp_gemm_has_bf16();
}

/* Treat denormal numbers as zero: each costs a hundred times as much as another number. */
static void flush_denormals(void)
{
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ and DAZ */
#endif
}

void bp_math_set_threads(int threads)
{
    omp_set_dynamic(0);
    omp_set_num_threads(threads > 0 ? threads : bp_math_cores());
    flush_denormals(); /* LLVM's runtime hands the caller's control word to its team; GNU's teams
                          keep their own */
#pragma omp parallel
    {
        flush_denormals();
        if (omp_get_thread_num() > 0)
            bp_signals_leave();
    }
    bp_threads_bind();
}

bp_err bp_math_precision(const bp_config *config, bp_precision *out)
{
    const char *asked = bp_math_keys_of(config)->precision;

    *out = strcmp(asked, "f32") != 0 && bp_math_has_bf16() ? BP_BF16 : BP_F32;
    if (strcmp(asked, "bf16") == 0 && *out != BP_BF16)
        return BP_FAIL(BP_ERR_CONFIG, "math.no_bf16",
                       "math.precision, with the value bf16: this CPU (%s, %s) has neither AMX nor "
                       "AVX512_BF16; "
                       "use auto or f32",
                       bp_math_cpu(), bp_math_library());
    return BP_OK;
}

/* Runs products for `seconds`; returns the speed of the fastest. */
static double measure(bp_gemm *gemm, float *y, const float *x, const bp_weight *weight,
                      int64_t rows, double flops, double seconds)
{
    double end = bp_clock_now() + seconds, best = 0;

    bp_linear_forward(gemm, y, x, weight, NULL,
                      rows); /* makes the primitive and the copy of the weight */
    do {
        double start = bp_clock_now();
        bp_linear_forward(gemm, y, x, weight, NULL, rows);
        double speed = flops / (bp_clock_now() - start);
        best = speed > best ? speed : best;
    } while (bp_clock_now() < end);
    return best;
}

double bp_math_gemm_peak(bp_precision precision, double seconds)
{
    const bool brief = seconds < BRIEF_SECONDS; /* seconds of a large one on a slow core */
    const int64_t rows = brief ? 64 : 1024, ins = brief ? 512 : 1024, outs = brief ? 512 : 2048;
    float *x = bp_alloc("math.peak", rows * ins, sizeof *x);
    float *y = bp_alloc("math.peak", rows * outs, sizeof *y);
    float *w = bp_alloc("math.peak", ins * outs, sizeof *w);
    bp_gemm *gemm = NULL;
    bp_weight *weight = NULL;
    double peak = 0;

    if (x && y && w && (precision == BP_F32 || bp_math_has_bf16()) &&
        bp_gemm_new(&gemm, precision) == BP_OK &&
        bp_weight_new(&weight, gemm, w, outs, ins) == BP_OK) {
        for (int64_t i = 0; i < rows * ins; i++)
            x[i] = (float)(i % 7);
        for (int64_t i = 0; i < ins * outs; i++)
            w[i] = (float)(i % 5);
        peak = measure(gemm, y, x, weight, rows, 2.0 * (double)rows * (double)ins * (double)outs,
                       seconds);
    }
    bp_weight_free(&weight);
    bp_gemm_free(&gemm);
    bp_free(x);
    bp_free(y);
    bp_free(w);
    return peak;
}
