/* Nontemporal stores avoid reading lines that are overwritten whole, a third of a copy's traffic,
 * and keep the next step's data in the caches. Every x86-64 has them. */
#include "io/checkpoint/checkpoint_priv.h"

#include <emmintrin.h>
#include <string.h>

#define LINE_FLOATS 16

/* Up to the first whole line of `to`. */
static int64_t to_line(const float *to, int64_t count)
{
    int64_t head = (int64_t)(-((uintptr_t)to / sizeof *to) % LINE_FLOATS);

    return head < count ? head : count;
}

static bool copy_plain(float *to, const float *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
    return bp_are_finite(from, count);
}

/* An exponent of all ones is an infinity or a NaN. */
static inline __m128i copy_four(float *to, const float *from, __m128i exponent)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)from);

    _mm_stream_si128((__m128i *)(void *)to, bits);
    return _mm_cmpeq_epi32(_mm_and_si128(bits, exponent), exponent);
}

bool bp_copy_finite(float *to, const float *from, int64_t count)
{
    const __m128i exponent = _mm_set1_epi32(0x7f800000);
    int64_t k = to_line(to, count), lines = (count - k) / LINE_FLOATS;
    bool good = copy_plain(to, from, k);
    __m128i bad = _mm_setzero_si128();

    for (int64_t line = 0; line < lines; line++, k += LINE_FLOATS)
        for (int part = 0; part < LINE_FLOATS; part += 4)
            bad = _mm_or_si128(bad, copy_four(to + k + part, from + k + part, exponent));
    _mm_sfence(); /* before anything that announces the copy */
    good = copy_plain(to + k, from + k, count - k) && good;
    return good && _mm_movemask_epi8(bad) == 0;
}
