/* Regression trees that are boosted on the logistic loss of pairs. Pure functions.
 *
 * u is the sum of NAS_TREES trees of NAS_DEPTH levels. Each tree fits the negative gradient of the
 * loss at the rows, by Newton's steps: a split maximises the gain in G^2 / (H + penalty), a leaf is
 * NAS_SHRINKAGE G / (H + penalty), G and H the sums of its rows' first and second derivatives.
 *
 * Source: Burges et al. 2005, Learning to Rank using Gradient Descent, section 3 (the loss of pairs
 * as one of rows); Friedman 2001, Greedy Function Approximation: A Gradient Boosting Machine; Chen
 * and Guestrin 2016, XGBoost, equations 6 and 7 (leaves and splits). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NAS_TREES     100
#define NAS_DEPTH     3
#define NAS_SHRINKAGE 0.1

typedef struct nas_tree {
    int32_t feature[(1 << NAS_DEPTH) - 1];  /* of inner nodes; children of k are 2 k + 1, 2 k + 2;
                                               -1: all rows go to the first child */
    double threshold[(1 << NAS_DEPTH) - 1]; /* rows below it go to the first child */
    double leaf[1 << NAS_DEPTH];
} nas_tree;

/** A pair of rows, of which one has the lower loss. */
typedef struct nas_pair {
    int32_t better, worse;
} nas_pair;

/** Trees [NAS_TREES] for rows x[n][d] and their pairs; only features with kept[d] are used.
 * Local. */
void nas_boost(nas_tree *trees, const double *x, int64_t n, int64_t d, const bool *kept,
               const nas_pair *pairs, int64_t count);
/** u of a row. */
double nas_boosted(const nas_tree *trees, const double *row);
