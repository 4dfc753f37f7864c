/* Frequencies and tables of rotary positions. Called by stack.c. */
#include "models/stack/rotary.h"

#include "base/err.h"
#include "base/mem.h"
#include "math/kernels/kernels.h"
#include "models/family.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- frequencies ---- */

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double plain_frequency(const bp_rope *rope, double theta, int64_t pair)
{
    return pow(theta, -2.0 * (double)pair / (double)rope->rotated);
}

static double llama3_frequency(const bp_rope *rope, double plain)
{
    double turns = (double)rope->original_context * plain / (2 * PI);
    double share = clamp(
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor), 0, 1);

    return (1 - share) * plain / rope->factor + share * plain;
}

/* The index of the pair that makes this many turns in the original context. */
static double yarn_edge(const bp_rope *rope, double turns)
{
    return (double)rope->rotated * log((double)rope->original_context / (turns * 2 * PI)) /
           (2 * log(rope->theta));
}

static double yarn_frequency(const bp_rope *rope, double plain, int64_t pair)
{
    double low = yarn_edge(rope, rope->beta_fast), high = yarn_edge(rope, rope->beta_slow), share;

    low = fmax(rope->truncated ? floor(low) : low, 0);
    high = fmin(rope->truncated ? ceil(high) : high, (double)(rope->rotated - 1));
    high += low == high ? 0.001 : 0; /* one pair's edge is sharp */
    share = clamp(((double)pair - low) / (high - low), 0, 1);
    return (1 - share) * plain + share * plain / rope->factor;
}

/* Theta for a text longer than the original context. */
static double dynamic_theta(const bp_rope *rope, int64_t length)
{
    double beyond =
               rope->factor * (double)length / (double)rope->original_context - (rope->factor - 1),
           d = (double)rope->rotated;

    return length > rope->original_context ? rope->theta * pow(beyond, d / (d - 2)) : rope->theta;
}

void bp_rope_frequencies(double *frequencies, const bp_rope *rope, int64_t length)
{
    bool is_dynamic = rope->scaling == BP_ROPE_DYNAMIC, is_long = length > rope->original_context;
    double theta = is_dynamic ? dynamic_theta(rope, length) : rope->theta;

    for (int64_t i = 0; i < rope->rotated / 2; i++) {
        double plain = plain_frequency(rope, theta, i);

        frequencies[i] = rope->scaling == BP_ROPE_LINEAR   ? plain / rope->factor
                         : rope->scaling == BP_ROPE_LLAMA3 ? llama3_frequency(rope, plain)
                         : rope->scaling == BP_ROPE_YARN   ? yarn_frequency(rope, plain, i)
                         : rope->scaling == BP_ROPE_LONGROPE
                             ? plain / (is_long ? rope->long_factors : rope->short_factors)[i]
                             : plain;
    }
}

static double yarn_attention(const bp_rope *rope, double mscale)
{
    return rope->factor > 1 ? 0.1 * mscale * log(rope->factor) + 1 : 1;
}

double bp_rope_attention(const bp_rope *rope)
{
    bool is_yarn = rope->scaling == BP_ROPE_YARN;

    if (!is_yarn && rope->scaling != BP_ROPE_LONGROPE)
        return 1;
    if (rope->attention_factor > 0)
        return rope->attention_factor;
    if (is_yarn && rope->mscale > 0 && rope->mscale_all_dim > 0)
        return yarn_attention(rope, rope->mscale) / yarn_attention(rope, rope->mscale_all_dim);
    if (is_yarn)
        return yarn_attention(rope, 1);
    return rope->factor > 1 ? sqrt(1 + log(rope->factor) / log((double)rope->original_context)) : 1;
}

/* Texts up to this length share their frequencies, longer ones have others; 0: all texts share
 * them. */
static int64_t changes_after(const bp_rope *rope)
{
    return rope->scaling == BP_ROPE_DYNAMIC || rope->scaling == BP_ROPE_LONGROPE
               ? rope->original_context
               : 0;
}

/* ---- tables ---- */

#define KEPT        64        /* tables of longer texts, at most, */
#define KEPT_FLOATS (4 << 20) /* and their floats, unless there is only one table */

/* Tables of one rope: `face` those of short texts, and where longer ones have others, those of the
 * most recent lengths: each layer requests all lengths of a batch again. */
typedef struct tables {
    bp_rotary face;
    struct {
        bp_rotary table;
        int64_t length; /* its length; 0: unused */
    } longer[KEPT];
    int64_t kept, next; /* their number, and the next one to replace */
    bp_rope rope;
    bool filled; /* `face` is filled */
    double attention;
    double factors[2][BP_MODEL_REALS];
    double *frequencies; /* [half] to work on */
} tables;

static void fill(tables *self, const bp_rotary *table, int64_t length)
{
    float *cosine = (float *)(uintptr_t)table->cosine, *sine = (float *)(uintptr_t)table->sine;
    double a = self->attention;

    bp_rope_frequencies(self->frequencies, &self->rope, length);
    for (int64_t t = 0; t < table->T; t++)
        for (int64_t i = 0; i < table->half; i++) {
            double angle = (double)t * self->frequencies[i];

            cosine[t * table->half + i] = (float)(a * cos(angle));
            sine[t * table->half + i] = (float)(a * sin(angle));
        }
}

/* bp_rotary.of_length: tables are filled on demand, since some networks are made only to be
 * measured. */
static const bp_rotary *of_length(const bp_rotary *face, int64_t length)
{
    tables *self = (tables *)(uintptr_t)face;
    bool is_dynamic = self->rope.scaling == BP_ROPE_DYNAMIC;
    int64_t k;

    if (!self->filled)
        fill(self, &self->face, 1);
    self->filled = true;
    if (face->changes_after == 0 || length <= face->changes_after)
        return face;
    for (k = 0; k < self->kept; k++)
        if (self->longer[k].length == length || (self->longer[k].length > 0 && !is_dynamic))
            return &self->longer[k].table;
    k = self->next;
    self->next = (k + 1) % self->kept;
    fill(self, &self->longer[k].table, length);
    self->longer[k].length = length;
    return &self->longer[k].table;
}

/* The number of tables kept for texts longer than the original context. */
static int64_t kept_of(const bp_rope *rope, int64_t context)
{
    int64_t changes = changes_after(rope), fit = KEPT_FLOATS / (context * rope->rotated);

    if (changes == 0 || changes >= context)
        return 0;
    return rope->scaling != BP_ROPE_DYNAMIC || fit < 1 ? 1 : fit < KEPT ? fit : KEPT;
}

static float *make(tables *self, const bp_rope *rope, int64_t context, float *memory)
{
    int64_t half = rope->rotated / 2, n = context * half;

    self->rope = *rope;
    if (rope->scaling == BP_ROPE_LONGROPE) {
        BP_ASSERT(half <= BP_MODEL_REALS);
        memcpy(self->factors[0], rope->short_factors, (size_t)half * sizeof(double));
        memcpy(self->factors[1], rope->long_factors, (size_t)half * sizeof(double));
        self->rope.short_factors = self->factors[0];
        self->rope.long_factors = self->factors[1];
    }
    self->attention = bp_rope_attention(rope);
    self->face = (bp_rotary){
        .T = context, .half = half, .cosine = memory, .sine = memory + n, .of_length = of_length};
    self->kept = kept_of(rope, context);
    if (self->kept > 0)
        self->face.changes_after = changes_after(rope);
    for (int64_t k = 0; k < self->kept; k++) {
        memory += 2 * n;
        self->longer[k].table =
            (bp_rotary){.T = context, .half = half, .cosine = memory, .sine = memory + n};
    }
    return memory + 2 * n;
}

static int64_t floats_of(const bp_rope *rope, int64_t context)
{
    return (1 + kept_of(rope, context)) * context * rope->rotated;
}

void bp_network_add_rotary(bp_network *network, const bp_rope *ropes, int count, int64_t context)
{
    int64_t floats = 0, halves = 0;
    tables *all;
    double *frequencies;
    float *memory;

    for (int k = 0; k < count; k++) {
        floats += floats_of(&ropes[k], context);
        halves += ropes[k].rotated / 2;
    }
    all = bp_alloc("rotary",
                   count * (int64_t)sizeof *all + halves * (int64_t)sizeof *frequencies +
                       floats * (int64_t)sizeof *memory,
                   1);
    frequencies = (double *)(void *)(all + count);
    memory = (float *)(void *)(frequencies + halves);
    for (int k = 0; k < count; k++) {
        all[k].frequencies = frequencies;
        frequencies += ropes[k].rotated / 2;
        memory = make(&all[k], &ropes[k], context, memory);
        if (changes_after(&ropes[k]) > 0)
            network->changes_after = changes_after(&ropes[k]);
        network->changes_always |= ropes[k].scaling == BP_ROPE_DYNAMIC;
    }
    network->tables = all;
    network->table_bytes = floats * (int64_t)sizeof *memory;
}

const struct bp_rotary *bp_network_rotary(const bp_network *network, int number)
{
    return network->tables ? &((const tables *)network->tables)[number].face : NULL;
}
