/* Numbers of 16 bits. Called by the readers and writers of safetensors and GGUF files. */
#include "io/huggingface/half.h"

#include <string.h>

static float float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float bp_float_of_bf16(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

float bp_float_of_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
             fraction = bits & 1023u;

    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) { /* zero and the subnormals: fraction * 2^-24, which float32 has exactly */
        float value = (float)fraction * 0x1p-24f;

        return sign != 0 ? -value : value;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* bits / 2^shift, rounded to nearest, ties to even; 0 < shift < 32. */
static uint32_t shift_nearest(uint32_t bits, int shift)
{
    uint32_t half = (uint32_t)1 << (shift - 1), rest = bits & (2 * half - 1), down = bits >> shift;

    return down + (rest > half || (rest == half && (down & 1) != 0));
}

uint16_t bp_bf16_of_float(float value)
{
    uint32_t bits = bits_of_float(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)shift_nearest(bits, 16); /* a carry goes into the exponent, as required */
}

uint16_t bp_f16_of_float(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    int exponent = (int)(rest >> 23) - 112; /* the half's exponent field */

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (exponent >= 31)
        return (uint16_t)(sign | 0x7c00u);
    if (exponent > 0)
        return (uint16_t)(sign | shift_nearest(rest - ((uint32_t)112 << 23), 13));
    if (exponent < -10)
        return (uint16_t)sign;
    return (uint16_t)(sign | shift_nearest((rest & 0x7fffffu) | 0x800000u, 14 - exponent));
}
