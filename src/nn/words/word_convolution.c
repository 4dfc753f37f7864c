/* Convolutions over the characters of words, and the largest value of each filter over a word.
 * After a word's end comes padding: positions that see only padding have equal values, so only the
 * first of them is computed. Called by word_characters.c. */
#include "nn/words/word_priv.h"

#include "math/kernels/cells.h"
#include "math/kernels/kernels.h"

#include <string.h>

#define CHUNK 16 /* words at once */

enum { N = BP_WORD_CHARACTERS };

/* Memory of a chunk of words. */
typedef struct chunk {
    float *embedded; /* [CHUNK][N][D] */
    float *windows;  /* [rows][width D], stacked */
    float *values;   /* [rows][filters of a width] */
} chunk;

/* The most rows of a width's windows in a chunk, padded. */
static int64_t most_rows(int64_t width)
{
    return (CHUNK * (N - width + 1) + BP_HEAD_ROW_CLASS - 1) / BP_HEAD_ROW_CLASS *
           BP_HEAD_ROW_CLASS;
}

static chunk alloc_chunk(const words *self, bp_arena *arena)
{
    const bp_word_shape *s = &self->shape;
    int64_t windows = 0, values = 0;

    for (int k = 0; k < s->filter_counts; k++) {
        int64_t width = s->filters[k].width, rows = most_rows(width);

        windows = rows * width * s->D > windows ? rows * width * s->D : windows;
        values = rows * s->filters[k].count > values ? rows * s->filters[k].count : values;
    }
    return (chunk){.embedded = bp_arena_floats(arena, CHUNK * N * s->D),
                   .windows = bp_arena_floats(arena, windows),
                   .values = bp_arena_floats(arena, values)};
}

size_t words_convolution_bytes(const words *self)
{
    bp_arena count = {0};

    alloc_chunk(self, &count);
    return count.used_bytes;
}

bp_product_bytes words_convolution_products(const words *self)
{
    const bp_word_shape *s = &self->shape;
    bp_product_bytes bytes = {0};

    for (int k = 0; k < s->filter_counts; k++)
        bp_product_bytes_add(&bytes, self->block.nn, most_rows(s->filters[k].width),
                             s->filters[k].count, s->filters[k].width * s->D);
    return bytes;
}

static const float *characters_of(const words *self, int32_t word)
{
    return self->characters->value + (int64_t)word * N;
}

static int64_t character_at(const float *characters, int64_t place)
{
    return (int64_t)characters[place];
}

static void embed(const words *self, float *to, int32_t word)
{
    int64_t D = self->shape.D;
    const float *characters = characters_of(self, word);

    for (int64_t p = 0; p < N; p++)
        memcpy(to + p * D, self->char_embed->value + character_at(characters, p) * D,
               (size_t)D * sizeof *to);
}

/* Positions at which a window of this many characters begins; no two of them see only padding. */
static int64_t positions_of(const words *self, int32_t word, int64_t width)
{
    const float *characters = characters_of(self, word);
    int64_t end = N, all = N - width + 1;

    while (end > 0 && character_at(characters, end - 1) == BP_WORD_PADDING)
        end--;
    return end + 1 < all ? end + 1 : all;
}

/* The largest value of each filter over `positions` rows, and its position; ties go to the first.
 */
static void take_largest(float *most, uint8_t *where, const float *values, int64_t positions,
                         int64_t count)
{
    memcpy(most, values, (size_t)count * sizeof *most);
    if (where)
        memset(where, 0, (size_t)count);
    for (int64_t p = 1; p < positions; p++)
        for (int64_t f = 0; f < count; f++)
            if (values[p * count + f] > most[f]) {
                most[f] = values[p * count + f];
                if (where)
                    where[f] = (uint8_t)p;
            }
}

static void activate(const words *self, float *x, int64_t n)
{
    if (self->shape.tanh) {
        bp_tanh(x, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
}

/* Width k of `count` words, whose characters are embedded. */
static void convolve_width(const words *self, const chunk *c, int k, const int32_t *ids,
                           int64_t count, float *features, uint8_t *where)
{
    const bp_word_shape *s = &self->shape;
    int64_t width = s->filters[k].width, filters = s->filters[k].count, ins = width * s->D,
            rows = 0, row = 0, filled;

    for (int64_t w = 0; w < count; w++)
        for (int64_t p = 0; p < positions_of(self, ids[w], width); p++)
            memcpy(c->windows + rows++ * ins, c->embedded + (w * N + p) * s->D,
                   (size_t)ins * sizeof(float));
    filled = bp_head_filled_rows(rows, most_rows(width));
    bp_zero(c->windows + rows * ins, (filled - rows) * ins);
    bp_linear_forward(self->block.nn->gemm, c->values, c->windows, self->cnn[k].map,
                      self->cnn[k].bias->value, filled);
    for (int64_t w = 0; w < count; w++) {
        int64_t positions = positions_of(self, ids[w], width);

        take_largest(features + w * self->F, where ? where + w * self->F : NULL,
                     c->values + row * filters, positions, filters);
        activate(self, features + w * self->F, filters);
        row += positions;
    }
}

void words_convolve(const words *self, bp_arena *scratch, const int32_t *ids, int64_t count,
                    float *features, uint8_t *where)
{
    const bp_word_shape *s = &self->shape;
    size_t mark = scratch->used_bytes;
    chunk c = alloc_chunk(self, scratch);

    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t n = first + CHUNK < count ? CHUNK : count - first, filter = 0;

        for (int64_t w = 0; w < n; w++)
            embed(self, c.embedded + w * N * s->D, ids[first + w]);
        for (int k = 0; k < s->filter_counts; k++) {
            int64_t at = first * self->F + filter;

            convolve_width(self, &c, k, ids + first, n, features + at, where ? where + at : NULL);
            filter += s->filters[k].count;
        }
    }
    scratch->used_bytes = mark;
}

/* ---- backward ---- */

static float *alloc_characters(const words *self, bp_arena *arena, int64_t count)
{
    return bp_arena_floats(arena, 2 * count * N * self->shape.D);
}

size_t words_convolution_backward_bytes(const words *self, int64_t count)
{
    bp_arena bytes = {0};

    alloc_characters(self, &bytes, count);
    return bytes.used_bytes;
}

static void activation_backward(const words *self, float *dx, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] *= self->shape.tanh ? 1 - y[i] * y[i] : y[i] > 0;
}

static void add_scaled(float *y, const float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* The filters of one width, from `filter` on, and the words. */
typedef struct looked {
    int64_t count, F, filter, filters, D, ins;
    const float *d;       /* [count][F] of the filters' sums */
    const uint8_t *where; /* [count][F] */
} looked;

/* Filter by filter, each over the words in order. */
static void filters_backward(float *dweight, float *dbias, const looked *at, const float *embedded)
{
#pragma omp parallel for schedule(static)
    for (int64_t f = 0; f < at->filters; f++)
        for (int64_t w = 0; w < at->count; w++) {
            int64_t place = w * at->F + at->filter + f;
            float d = at->d[place];

            if (d == 0)
                continue;
            dbias[f] += d;
            add_scaled(dweight + f * at->ins, embedded + (w * N + at->where[place]) * at->D, d,
                       at->ins);
        }
}

/* Word by word, each over the filters in order. */
static void characters_backward(float *dembedded, const looked *at, const float *weight)
{
#pragma omp parallel for schedule(static)
    for (int64_t w = 0; w < at->count; w++)
        for (int64_t f = 0; f < at->filters; f++) {
            int64_t place = w * at->F + at->filter + f;

            if (at->d[place] != 0)
                add_scaled(dembedded + (w * N + at->where[place]) * at->D, weight + f * at->ins,
                           at->d[place], at->ins);
        }
}

void words_convolve_backward(const words *self, bp_arena *scratch, const int32_t *ids,
                             int64_t count, const float *features, const uint8_t *where,
                             float *dfeatures)
{
    const bp_word_shape *s = &self->shape;
    size_t mark = scratch->used_bytes;
    float *embedded = alloc_characters(self, scratch, count),
          *dembedded = embedded + count * N * s->D;
    looked at = {.count = count, .F = self->F, .D = s->D, .d = dfeatures, .where = where};

    activation_backward(self, dfeatures, features, count * self->F);
    bp_zero(dembedded, count * N * s->D);
    for (int64_t w = 0; w < count; w++)
        embed(self, embedded + w * N * s->D, ids[w]);
    for (int k = 0; k < s->filter_counts; k++) {
        at.filters = s->filters[k].count;
        at.ins = s->filters[k].width * s->D;
        filters_backward(self->cnn[k].weight->gradient, self->cnn[k].bias->gradient, &at, embedded);
        characters_backward(dembedded, &at, self->cnn[k].weight->value);
        at.filter += at.filters;
    }
    for (int64_t w = 0; w < count; w++)
        for (int64_t p = 0; p < N; p++)
            bp_add(self->char_embed->gradient + character_at(characters_of(self, ids[w]), p) * s->D,
                   dembedded + (w * N + p) * s->D, s->D);
    scratch->used_bytes = mark;
}
