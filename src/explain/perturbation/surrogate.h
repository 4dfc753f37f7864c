/* LIME: a linear model of a text's prediction without some of its features, fitted mostly to texts
 * that keep most features. Local: no MPI. Source: Ribeiro et al. 2016, "Why should I trust you?",
 * and its package lime. */
#pragma once

#include "base/rng.h"

#include <stdint.h>

/** Texts made from one with M features. */
typedef struct explain_masks {
    int64_t samples, features;
    uint8_t *kept; /* [samples][features] 1: the feature is kept */
} explain_masks;

/** The first text has all features. Each other text omits 1 to M, whose number and then set are
 * drawn uniformly. Row r depends only on the key and r. */
void explain_surrogate_draw(explain_masks *out, const bp_rng_key *key);

typedef struct explain_surrogate {
    double *weights; /* [features] allocated by the caller; 0: not used */
    double intercept;
    double r2;    /* weighted */
    double local; /* its prediction for the whole text */
} explain_surrogate;

/** Weights of texts are the square root of exp(-d^2 / 25^2), with the distance d = 100 times 1 less
 * the cosine from the whole text; ridge regression with penalty 1, and an intercept without one.
 * wanted: 0 uses all features; up to 6 are chosen one by one by R2 without a penalty; if more,
 * those with the largest weights in a regression with the penalty 0.01.
 * Shapes: values[samples]. */
void explain_surrogate_fit(explain_surrogate *out, const explain_masks *masks, const double *values,
                           int64_t wanted);
