/* Tables of rotary positions. */
#include "base/mem.h"
#include "math/kernels/kernels.h"
#include "models/transformer.h"

#include <math.h>

#define PI 3.14159265358979323846

double bp_rope_frequency(const bp_rope *rope, int64_t pair)
{
    double plain = pow(rope->theta, -2.0 * (double)pair / (double)rope->rotated), share;

    if (rope->scaling == BP_ROPE_PLAIN)
        return plain;
    if (rope->scaling == BP_ROPE_LINEAR)
        return plain / rope->factor;
    share = ((double)rope->original_context * plain / (2 * PI) - rope->low_freq_factor) /
            (rope->high_freq_factor - rope->low_freq_factor);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * plain / rope->factor + share * plain;
}

void bp_network_add_rotary(bp_network *network, const bp_rope *rope, int64_t context)
{
    int64_t half = rope->rotated / 2, n = context * half;
    char *memory =
        bp_alloc("rotary", (int64_t)sizeof(bp_rotary) + 2 * n * (int64_t)sizeof(float), 1);
    bp_rotary *rotary = (bp_rotary *)(void *)memory;
    float *cosine = (float *)(void *)(memory + sizeof *rotary), *sine = cosine + n;

    for (int64_t i = 0; i < half; i++) {
        double frequency = bp_rope_frequency(rope, i);

        for (int64_t t = 0; t < context; t++) {
            cosine[t * half + i] = (float)cos((double)t * frequency);
            sine[t * half + i] = (float)sin((double)t * frequency);
        }
    }
    *rotary = (bp_rotary){context, half, cosine, sine};
    network->tables = memory;
}
