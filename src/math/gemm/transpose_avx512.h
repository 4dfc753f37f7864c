/* Words [16][16] transposed in registers (AVX-512). */
#pragma once

#include <immintrin.h>

#define LANES 16 /* words of a vector */

/* For files that are compiled without AVX-512 as a whole. */
#define WORDS_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

/* Words [16][16] transposed: in registers, so always inlined. */
WORDS_TARGET static inline __attribute__((always_inline)) void transpose(__m512i words[LANES])
{
    __m512i other[LANES];

#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) { /* words of neighbours */
        other[i] = _mm512_unpacklo_epi32(words[i], words[i + 1]);
        other[i + 1] = _mm512_unpackhi_epi32(words[i], words[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) { /* each 128 bits now hold one column of four rows */
        words[i] = _mm512_unpacklo_epi64(other[i], other[i + 2]);
        words[i + 1] = _mm512_unpackhi_epi64(other[i], other[i + 2]);
        words[i + 2] = _mm512_unpacklo_epi64(other[i + 1], other[i + 3]);
        words[i + 3] = _mm512_unpackhi_epi64(other[i + 1], other[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* quarters 0 and 2, 1 and 3 of eight rows */
        other[i] = _mm512_shuffle_i32x4(words[i], words[i + 4], 0x88);
        other[i + 4] = _mm512_shuffle_i32x4(words[i], words[i + 4], 0xdd);
        other[i + 8] = _mm512_shuffle_i32x4(words[i + 8], words[i + 12], 0x88);
        other[i + 12] = _mm512_shuffle_i32x4(words[i + 8], words[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        words[i] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0x88);
        words[i + 4] = _mm512_shuffle_i32x4(other[i + 4], other[i + 12], 0x88);
        words[i + 8] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0xdd);
        words[i + 12] = _mm512_shuffle_i32x4(other[i + 4], other[i + 12], 0xdd);
    }
}
