/* Relative positions in buckets, and ALiBi. */
#include "math/attention/relative.h"

#include "math/attention/attention_priv.h"

#include <math.h>

int64_t bp_relative_bucket(const bp_relative *by, int64_t offset)
{
    int64_t buckets = by->two_sided ? by->buckets / 2 : by->buckets, exact = buckets / 2,
            side = by->two_sided && offset > 0 ? buckets : 0, far;
    int64_t n = offset < 0 ? -offset : by->two_sided ? offset : 0;

    if (n < exact)
        return side + n;
    if (n >= by->distance)
        return side + buckets - 1;
    far = exact + (int64_t)(log((double)n / (double)exact) /
                            log((double)by->distance / (double)exact) * (double)(buckets - exact));
    return side + (far < buckets ? far : buckets - 1);
}

/* Keys of a row of biases come from after the queries to before them. */
static int64_t bucket_at(const bp_relative *by, int64_t keys, int64_t at)
{
    return bp_relative_bucket(by, keys - 1 - at);
}

void bp_relative_fill(float *bias, const float *table, const bp_relative *by,
                      const bp_attention_shape *shape)
{
    int64_t H = shape->H, K = bp_key_positions(shape), row = bp_bias_floats(shape);

    for (int64_t at = 0; at < row; at++) {
        const float *from = table + bucket_at(by, K, at) * H;

        for (int64_t h = 0; h < H; h++)
            bias[h * row + at] = from[h];
    }
}

/* The distances of a bucket are contiguous: they are summed in float64. */
void bp_relative_gradient(float *dtable, const float *dbias, const bp_relative *by,
                          const bp_attention_shape *shape)
{
    int64_t H = shape->H, K = bp_key_positions(shape), row = bp_bias_floats(shape),
            end = shape->T + K - 1;

    for (int64_t at = 0, next; at < end; at = next) {
        int64_t bucket = bucket_at(by, K, at);

        for (next = at + 1; next < end && bucket_at(by, K, next) == bucket;)
            next++;
        for (int64_t h = 0; h < H; h++) {
            double sum = 0;

            for (int64_t b = 0; b < shape->B; b++)
                for (int64_t n = at; n < next; n++)
                    sum += (double)dbias[(b * H + h) * row + n];
            dtable[bucket * H + h] += (float)sum;
        }
    }
}

void bp_relative_fill_cached(float *bias, const float *table, const bp_relative *by, int64_t H,
                             int64_t capacity, int64_t end)
{
    for (int64_t n = 0; n < end; n++) {
        const float *from = table + bp_relative_bucket(by, -n) * H;

        for (int64_t h = 0; h < H; h++)
            bias[h * capacity + capacity - 1 - n] = from[h];
    }
}

int64_t bp_distance_row(const bp_distances *by, int64_t offset)
{
    int64_t half = by->buckets / 2, far = offset < 0 ? -offset : offset, at = offset,
            span = by->buckets > 0 ? by->buckets : by->distance;

    if (by->buckets > 0 && far > half) {
        double share =
            log((double)far / (double)half) / log((double)(by->distance - 1) / (double)half);
        int64_t bucket = (int64_t)ceil(share * (double)(half - 1)) + half;

        at = offset < 0 ? -bucket : bucket;
    }
    at += span;
    return at < 0 ? 0 : bp_min(at, 2 * span - 1);
}

void bp_distance_rows(int32_t *row, const bp_distances *by, const bp_attention_shape *shape)
{
    int64_t before = bp_key_positions(shape) - 1, all = bp_bias_floats(shape);

    for (int64_t at = 0; at < all; at++)
        row[at] = (int32_t)bp_distance_row(by, at - before);
}

/* The slope of head h of `heads` (ALiBi): with m the largest power of two of at most `heads`,
 * 2^(-8 (h + 1) / m) for the first m heads, and for the others, h' from 0, 2^(-4 (2 h' + 1) / m).
 * Source: Press et al. 2022, "Train Short, Test Long", section 3, and its program if the number of
 * heads is not a power of two. */
static double slope_of(int64_t h, int64_t heads)
{
    int64_t m = 1;

    while (2 * m <= heads)
        m *= 2;
    return h < m ? exp2(-8 * (double)(h + 1) / (double)m)
                 : exp2(-4 * (double)(2 * (h - m) + 1) / (double)m);
}

void bp_alibi_fill(float *bias, const bp_attention_shape *shape)
{
    int64_t K = bp_key_positions(shape), row = bp_bias_floats(shape);

    for (int64_t h = 0; h < shape->H; h++) {
        double slope = slope_of(shape->first_head + h, shape->all_heads);

        for (int64_t at = 0; at < row; at++)
            bias[h * row + at] = at < K ? 0 : (float)(slope * (double)(K - 1 - at));
    }
}

void bp_alibi_fill_cached(float *bias, int64_t first_head, int64_t heads, int64_t H,
                          int64_t capacity, int64_t end)
{
    for (int64_t h = 0; h < H; h++)
        for (int64_t n = 0; n < end; n++)
            bias[h * capacity + capacity - 1 - n] =
                (float)(-slope_of(first_head + h, heads) * (double)n);
}
