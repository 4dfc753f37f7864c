/* Picks the loops for this CPU. */
#include "math/loops/loops.h"
#include <math.h>
#include <stdatomic.h>

extern const bp_loops bp_loop_table_base;
#ifdef BP_LOOPS_X86
extern const bp_loops bp_loop_table_avx2, bp_loop_table_avx512;

/* The features that -march=x86-64-v3 and -v4 allow the compiler to use. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

const bp_loops *bp_loops_at(int index)
{
    switch (index) {
    case 0:
        return &bp_loop_table_base;
    case 1:
        return has_avx2() ? &bp_loop_table_avx2 : NULL;
    case 2:
        return has_avx512() ? &bp_loop_table_avx512 : NULL;
    default:
        return NULL;
    }
}
#else
const bp_loops *bp_loops_at(int index)
{
    return index == 0 ? &bp_loop_table_base : NULL;
}
#endif

const bp_loops *bp_loops_best(void)
{
    static _Atomic(const bp_loops *) found; /* word vectors call it millions of times a second */
    const bp_loops *best = atomic_load_explicit(&found, memory_order_relaxed);

    if (best)
        return best;
    for (int index = 0; bp_loops_at(index); index++)
        best = bp_loops_at(index);
    atomic_store_explicit(&found, best, memory_order_relaxed);
    return best;
}

bp_mask bp_mask_of(float p, const bp_rng_key *key)
{
    return (bp_mask){key, (uint32_t)ceil((double)p * 4294967296.0),
                     (float)(1.0 / (1.0 - (double)p))};
}
