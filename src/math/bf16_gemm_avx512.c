/* bf16 products by AVX512_BF16. */
#include "math/bf16_gemm_priv.h"
#include <immintrin.h>

#define LANES 16
#define SUMS  24

static int64_t multiply_adds(float *out, float factor, int64_t times)
{
    __m512 sums[SUMS], total = _mm512_setzero_ps();
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));

#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i); /* all different, lest one be computed for all */
    for (int64_t t = 0; t < times; t++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
    for (int i = 0; i < SUMS; i++)
        total = _mm512_add_ps(total, sums[i]);
    *out += _mm512_reduce_add_ps(total);
    return times * SUMS * LANES * 4;
}

const bp_bf16_kernel bp_bf16_kernel_avx512 = {multiply_adds};
