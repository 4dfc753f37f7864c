/* Philox4x32-10 at COUNTERS counters in parallel: bp_rng_block, vectorised (tests hold them
 * equal).
 *
 * A word is in the low half of a 64-bit lane, where the product of two words needs no shuffle; the
 * high half is ignored. */
#pragma once

#include "base/rng.h"
#include <stdint.h>
#include <string.h>

#define COUNTERS 32

#if defined(__AVX512F__)
#include <immintrin.h>
typedef uint64_t wide __attribute__((vector_size(64)));
static inline wide multiply_words(wide a, wide b)
{
    return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef uint64_t wide __attribute__((vector_size(32)));
static inline wide multiply_words(wide a, wide b)
{
    return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef uint64_t wide __attribute__((vector_size(16)));
static inline wide multiply_words(wide a, wide b)
{
    return (wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
}
#else
typedef uint64_t wide __attribute__((vector_size(16)));
static inline wide multiply_words(wide a, wide b)
{
    return (a & 0xffffffffu) * (b & 0xffffffffu);
}
#endif

#define WIDE_LANES   ((int)(sizeof(wide) / sizeof(uint64_t)))
#define WIDE_ABREAST 4 /* vectors in flight: a round is a chain of slow products */

static inline wide broadcast(uint64_t x)
{
    return x - (wide){0};
}

/* The ten rounds on WIDE_ABREAST vectors of counters, from c[0..3][first lane] on. */
static inline void philox_rounds(uint64_t c[4][COUNTERS], int lane, const bp_rng_key *key)
{
    const wide multiplier0 = broadcast(0xD2511F53u), multiplier1 = broadcast(0xCD9E8D57u);
    uint32_t k0 = key->key[0], k1 = key->key[1];
    wide v[4][WIDE_ABREAST];

    for (int word = 0; word < 4; word++)
        memcpy(v[word], &c[word][lane], sizeof v[word]);
    for (int round = 0; round < 10; round++) {
        const wide key0 = broadcast(k0), key1 = broadcast(k1);
#pragma GCC unroll 4
        for (int i = 0; i < WIDE_ABREAST; i++) {
            wide p0 = multiply_words(v[0][i], multiplier0),
                 p1 = multiply_words(v[2][i], multiplier1);
            v[0][i] = (p1 >> 32) ^ v[1][i] ^ key0;
            v[2][i] = (p0 >> 32) ^ v[3][i] ^ key1;
            v[1][i] = p1;
            v[3][i] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int word = 0; word < 4; word++)
        memcpy(&c[word][lane], v[word], sizeof v[word]);
}

/* Words of the blocks first, first + stride, ... in the low halves of c[word][counter]. */
static inline void philox(uint64_t c[4][COUNTERS], const bp_rng_key *key, uint64_t first,
                          uint64_t stride)
{
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t block = first + (uint64_t)i * stride;
        c[0][i] = block;
        c[1][i] = block >> 32;
        c[2][i] = key->stream[0];
        c[3][i] = key->stream[1];
    }
    for (int lane = 0; lane < COUNTERS; lane += WIDE_ABREAST * WIDE_LANES)
        philox_rounds(c, lane, key);
}
