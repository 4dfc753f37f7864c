/* The digest of tensors in AVX-512; digest_x86.c picks it. */
#include "base/files/digest_priv.h"

void bp_digest_add_avx512(bp_digest *digest, const float *values, int64_t first, int64_t count)
{
    bp_digest_loop(digest, values, first, count);
}
