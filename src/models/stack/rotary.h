/* Rotary positions: their frequencies, how those are scaled for long contexts, and the tables of
 * layers. */
#pragma once

#include "models/network/network.h"

/** How frequencies are scaled for contexts beyond the original one. */
typedef enum bp_rope_scaling {
    BP_ROPE_PLAIN,
    BP_ROPE_LINEAR,
    BP_ROPE_LLAMA3,
    BP_ROPE_YARN,
    BP_ROPE_DYNAMIC, /* depends on the length of a text longer than the original context */
    BP_ROPE_LONGROPE /* other factors for such texts */
} bp_rope_scaling;
#define BP_ROPE_SCALINGS "none|linear|llama3|yarn|dynamic|longrope"

typedef struct bp_rope {
    double theta;
    int64_t rotated; /* rotary dimensions, the first ones of a head; even */
    bp_rope_scaling scaling;
    double factor;
    double low_freq_factor, high_freq_factor;   /* llama3 */
    double beta_fast, beta_slow;                /* yarn */
    bool truncated;                             /* yarn: edges are rounded to integers */
    double attention_factor;                    /* yarn, longrope; 0: computed from the factor */
    double mscale, mscale_all_dim;              /* yarn; 0: not given */
    int64_t original_context;                   /* L */
    const double *short_factors, *long_factors; /* longrope: [rotated / 2]; borrowed */
} bp_rope;

/** Frequencies[rotated / 2]: for pair i of a text of `length` tokens the angle at position t is t
 * times its i-th. f = theta^(-2 i / rotated);
 * - linear: f / factor;
 * - llama3: with n = f L / (2 pi) turns in the original context, f where n is at least
 *   high_freq_factor, f / factor where it is at most low_freq_factor, and between them the mean of
 *   both, weighted by n's place between them;
 * - yarn: f up to the pair that turns beta_fast times in L, f / factor from the one on that turns
 *   beta_slow times, and between them the mean, weighted by the pair's number;
 * - dynamic: f of theta (factor n / L - (factor - 1))^(rotated / (rotated - 2)), n being the length
 *   where it is more than L, else L;
 * - longrope: f / long_factors[i] where the length is more than L, else f / short_factors[i].
 * Source: Su et al. 2021; Chen et al. 2023 (linear); Grattafiori et al. 2024, "The Llama 3 Herd of
 * Models"; Peng et al. 2023, "YaRN"; bloc97 and emozilla 2023 (dynamic); Ding et al. 2024,
 * "LongRoPE"; in details as transformers has them. */
void bp_rope_frequencies(double *frequencies, const bp_rope *rope, int64_t length);
/** The factor of cosines and sines: yarn: attention_factor, or g(mscale) / g(mscale_all_dim) where
 * both are given, or g(1), g(m) being 0.1 m ln(factor) + 1; longrope: attention_factor, or sqrt(1 +
 * ln(factor) / ln(L)); 1 for a factor up to 1, and for the others. */
double bp_rope_attention(const bp_rope *rope);

/** Make network->tables, which a first pass fills with the cosines and sines of all pairs at
 * positions before `context`, computed in float64, of each of `count` ropes; and table number
 * `number` of them (bp_layer_shape.rotary). */
#define BP_ROPES 2
void bp_network_add_rotary(bp_network *network, const bp_rope *ropes, int count, int64_t context);
const struct bp_rotary *bp_network_rotary(const bp_network *network, int number);
