/* Copies values and finds those that are not finite, in plain C. */
#include "io/checkpoint/checkpoint_priv.h"

#include <string.h>

bool bp_copy_finite(float *to, const float *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
    return bp_are_finite(from, count);
}
