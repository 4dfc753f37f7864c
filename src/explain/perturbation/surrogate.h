/* LIME: a linear model of what a text's prediction becomes without some of its features, fitted
 * where most features are there. Local: no MPI. Source: Ribeiro et al. 2016, "Why should I trust
 * you?", and its package lime. */
#ifndef BP_EXPLAIN_SURROGATE_H
#define BP_EXPLAIN_SURROGATE_H

#include "base/rng.h"

#include <stdint.h>

/** Texts that are made of one with M features. */
typedef struct explain_masks {
    int64_t samples, features;
    uint8_t *kept; /* [samples][features] 1: the feature is there */
} explain_masks;

/** The first text has all features; of each other one 1 to M are left out, their number and then
 * their set uniform. Row r depends on the key and r alone. */
void explain_surrogate_draw(explain_masks *out, const bp_rng_key *key);

typedef struct explain_surrogate {
    double *weights; /* [features] of the caller; 0: not used */
    double intercept;
    double r2;    /* weighted */
    double local; /* what it predicts of the whole text */
} explain_surrogate;

/** Weights of texts are the square root of exp(-d^2 / 25^2), with the distance d = 100 times 1 less
 * the cosine from the whole text; ridge regression with penalty 1, and an intercept without one.
 * wanted: 0 uses all features; up to 6 are chosen one by one by R2 without a penalty; more, those
 * of the largest weights of a regression with the penalty 0.01.
 * Shapes: values[samples]. */
void explain_surrogate_fit(explain_surrogate *out, const explain_masks *masks, const double *values,
                           int64_t wanted);

#endif
