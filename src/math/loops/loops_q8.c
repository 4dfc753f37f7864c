/* Weights of 8 bits: their blocks, those of rows, and the product of both in integers. */
#include "math/loops/loops_names_priv.h"
#include <math.h>
#include <string.h>

#define MOST_Q  127
#define MOST_X  32639 /* 256 * 127 + 127 */
#define TINY    1e-32f
#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to the nearest integer */

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest magnitude; not finite if any value is not. */
static float largest(const float x[BP_Q8_BLOCK])
{
    uint32_t most = 0;

    for (int i = 0; i < BP_Q8_BLOCK; i++) {
        uint32_t bits = bits_of(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return float_of(most);
}

static int32_t nearest(float x)
{
    return (int32_t)((x + ROUNDER) - ROUNDER);
}

void LOOP(q8_row)(bp_q8_row *to, const float *x, int64_t n)
{
    float block[BP_Q8_BLOCK] = {0}, most;
    int32_t sum = 0;

    memcpy(block, x, (size_t)n * sizeof *x);
    most = largest(block);
    bool fits = isfinite(most), zero = !fits || most < TINY;
    float factor = zero ? 0 : MOST_X / most;
    for (int i = 0; i < BP_Q8_BLOCK; i++) {
        int32_t digits = fits ? nearest(block[i] * factor) : 0, high = (digits + 128) >> 8;

        to->high[i] = (int8_t)high;
        to->low[i] = (int8_t)(digits - high * 256);
        sum += digits;
    }
    to->scale = !fits ? NAN : zero ? 0 : most / MOST_X;
    to->offset = -128 * sum;
}

/* As bf16, no less than it was. */
static uint16_t rounded_up(float scale)
{
    return (uint16_t)((bits_of(scale) + 0xffffu) >> 16);
}

/* `count` rows of a weight, `row` floats apart, and n values of each. */
void LOOP(q8_weights)(bp_q8_weights *to, const float *w, int64_t row, int64_t count, int64_t n)
{
    memset(to, 0, sizeof *to);
    memset(to->values, 128, sizeof to->values);
    for (int64_t r = 0; r < count; r++) {
        float block[BP_Q8_BLOCK] = {0};

        memcpy(block, w + r * row, (size_t)n * sizeof *w);
        float most = largest(block);
        if (most < TINY)
            continue;
        to->scales[r] = isfinite(most) ? rounded_up(most / MOST_Q) : 0x7fc0u;
        float scale = float_of((uint32_t)to->scales[r] << 16);
        for (int i = 0; i < BP_Q8_BLOCK && isfinite(most); i++)
            to->values[i / 4][r][i % 4] = (uint8_t)(128 + nearest(block[i] / scale));
    }
}

/* sums[columns] of one row over a block */
static void block_sums(int32_t sums[BP_Q8_COLUMNS], const bp_q8_row *x, const bp_q8_weights *w)
{
    int32_t parts[BP_Q8_COLUMNS * 4] = {0};

    for (int k = 0; k < BP_Q8_BLOCK / 4; k++) {
        const uint8_t *values = w->values[k][0];
        int32_t digits[16];

        for (int i = 0; i < 16; i++)
            digits[i] = x->high[4 * k + i % 4] * 256 + x->low[4 * k + i % 4];
        for (int c = 0; c < BP_Q8_COLUMNS * 4; c += 16)
            for (int i = 0; i < 16; i++)
                parts[c + i] += values[c + i] * digits[i];
    }
    for (int c = 0; c < BP_Q8_COLUMNS; c++)
        sums[c] = x->offset + parts[4 * c] + parts[4 * c + 1] + parts[4 * c + 2] + parts[4 * c + 3];
}

void LOOP(q8_multiply)(const bp_q8_product *t)
{
    for (int64_t r = 0; r < t->rows; r++) {
        float y[BP_Q8_COLUMNS] = {0};

        if (t->start)
            memcpy(y, t->start, (size_t)t->columns * sizeof *y);
        for (int64_t b = 0; b < t->blocks; b++) {
            const bp_q8_row *x = &t->x[r * t->blocks + b];
            int32_t sums[BP_Q8_COLUMNS];

            block_sums(sums, x, &t->w[b]);
            for (int c = 0; c < BP_Q8_COLUMNS; c++)
                y[c] += (float)sums[c] * (float_of((uint32_t)t->w[b].scales[c] << 16) * x->scale);
        }
        memcpy(t->y + r * t->y_row, y, (size_t)t->columns * sizeof *y);
    }
}
