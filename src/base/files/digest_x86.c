/* Picks the digest's implementation when the program starts. */
#include "base/files/digest_priv.h"

void bp_digest_add(bp_digest *digest, const float *values, int64_t first, int64_t count)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        bp_digest_add_avx512(digest, values, first, count);
    else
        bp_digest_loop(digest, values, first, count);
}
