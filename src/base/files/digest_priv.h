/* The loop of bp_digest_add, which each instruction set compiles for itself. */
#pragma once

#include "base/files/hash.h"

#include <string.h>

/* Two rounds of multiply and shift for each element and lane; the sum over elements then commutes.
 * The elements are independent, so compilers vectorise the loop where the CPU multiplies 64-bit
 * lanes. */
static inline uint64_t bp_digest_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static inline void bp_digest_loop(bp_digest *digest, const float *values, int64_t first,
                                  int64_t count)
{
    uint64_t sum0 = 0, sum1 = 0;

    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        uint64_t place = bp_digest_mix((uint64_t)(first + i) + UINT64_C(0x9e3779b97f4a7c15));
        sum0 += bp_digest_mix(place + bits);
        sum1 += bp_digest_mix((place ^ UINT64_C(0xa0761d6478bd642f)) + ((uint64_t)bits << 32));
    }
    digest->lane[0] += sum0;
    digest->lane[1] += sum1;
}

/** For CPUs with AVX-512 (F, DQ, VL), which multiply eight 64-bit lanes at once. */
void bp_digest_add_avx512(bp_digest *digest, const float *values, int64_t first, int64_t count);
