/* Randomness without state: Philox4x32-10 (Salmon et al. 2011), keyed by what the numbers are for.
 *
 * Every draw is a function of (seed, purpose, member, step, element): nothing to save, the same at
 * every rank count and whatever the order of calls.
 */
#pragma once

#include <stdint.h>

typedef enum bp_rng_purpose {
    BP_RNG_INIT = 1, /* initial parameters */
    BP_RNG_DROPOUT = 2,
    BP_RNG_SHUFFLE = 3,   /* order of spans and windows */
    BP_RNG_BAG = 4,       /* documents drawn for a bag */
    BP_RNG_BOOTSTRAP = 5, /* resamples for standard errors */
    BP_RNG_TEST = 6,
    BP_RNG_POSTERIOR = 7, /* samples of weights */
    BP_RNG_BENCH = 8,     /* made-up tokens and text */
    BP_RNG_MASK = 9,      /* masked tokens */
    BP_RNG_GENERATE = 10, /* tokens drawn */
    BP_RNG_WORD2VEC = 12, /* occurrences used, windows, noise words */
    BP_RNG_REPLACE = 13,  /* tokens that a generator puts into a text */
    BP_RNG_PAIR = 14,     /* texts that are paired with another one */
    BP_RNG_LANGEVIN = 15, /* noise of updates */
    BP_RNG_OUTCOMES = 16, /* of a softmax that samples them */
    BP_RNG_BUCKET = 17,   /* order of batches of similar lengths */
    BP_RNG_NOISE = 18,    /* noise in texts that are to be restored */
    BP_RNG_SPECTRAL = 24, /* the vectors that power iterations begin with */
    BP_RNG_PERTURB = 43,  /* words that are removed from a text that is explained */
    BP_RNG_UMAP = 44,     /* points that are pushed away on a map */
    BP_RNG_FACTORS = 45,  /* what a factorisation begins with */
    BP_RNG_POINTS = 46,   /* which points are drawn, of too many */
    BP_RNG_SEARCH = 48,   /* shapes of models that a search tries */
    BP_RNG_CANARY = 47,   /* texts that are planted, and where */
    BP_RNG_CONFORMAL = 31 /* which outcomes at the edge of a set are in it */
    /* a new purpose takes any unused number */
} bp_rng_purpose;

/** What the numbers are for. Two different keys give independent streams. */
typedef struct bp_rng_key {
    uint32_t key[2];
    uint32_t stream[2];
} bp_rng_key;

/** The key of (seed, purpose, member, step, stream); `stream` distinguishes users of one purpose (a
 * layer, a tensor). */
bp_rng_key bp_rng_key_of(uint64_t seed, bp_rng_purpose purpose, int64_t member, int64_t step,
                         int64_t stream);

/** The bare function: ten rounds of Philox4x32 on a 128-bit counter. `out` may be `counter`.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". */
void bp_rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/** Four random words at position `index` of the stream. Each draw below consumes one block per
 * index.
 */
void bp_rng_block(uint32_t out[4], const bp_rng_key *key, uint64_t index);

/** words[2 * count]: the blocks [index, index + count) as 64-bit words, the lower word of a block
 * first. Faster than single calls. */
void bp_rng_blocks(uint64_t *words, const bp_rng_key *key, uint64_t index, int64_t count);

/** 64 random bits; uniform in [0, 1) with 53 bits; uniform integer in [0, n) without bias; standard
 * normal (Slice-Muller). */
uint64_t bp_rng_u64(const bp_rng_key *key, uint64_t index);
double bp_rng_uniform(const bp_rng_key *key, uint64_t index);
int64_t bp_rng_below(const bp_rng_key *key, uint64_t index, int64_t n);
double bp_rng_normal(const bp_rng_key *key, uint64_t index);

/** A permutation of [0, n), entry by entry: image of `index`. A Feistel network with cycle walking;
 * no table.
 *
 * Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains".
 */
int64_t bp_rng_permute(const bp_rng_key *key, int64_t index, int64_t n);
