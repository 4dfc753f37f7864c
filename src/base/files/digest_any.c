/* The digest of tensors on CPUs without wide vectors. */
#include "base/files/digest_priv.h"

void bp_digest_add(bp_digest *digest, const float *values, int64_t first, int64_t count)
{
    bp_digest_loop(digest, values, first, count);
}
