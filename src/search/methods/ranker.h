/* A ranking of models by features of their shapes, learned from pairs of trials. Pure functions.
 *
 * Model i is better than model j with probability 1 / (1 + exp(u(j) - u(i))), u = w . (x - mean) /
 * scale: a linear classifier of pairs. Its weights minimise the mean logistic loss over pairs plus
 * a quadratic penalty, by Newton's method. If boosted, u is a sum of trees (boosted.h), which find
 * optima inside the space and interactions of features. Features are left out if permuting them
 * does not make held-out pairs worse.
 *
 * Source: Hu et al. 2021, RankNAS: Efficient Neural Architecture Search by Pairwise Ranking,
 * sections 3.2 (pairs) and 3.3 (pruning of features); Breiman 2001, Random Forests, section 10
 * (permutation importance). */
#pragma once

#include "search/methods/boosted.h"

#define NAS_FEATURES 64
#define NAS_FOLDS    5

typedef struct nas_ranker {
    int64_t features; /* d */
    bool is_boosted;  /* trees, of standardised features, in place of weights */
    nas_tree trees[NAS_TREES];
    double mean[NAS_FEATURES], scale[NAS_FEATURES];
    double weight[NAS_FEATURES];     /* 0 for features that are left out */
    double importance[NAS_FEATURES]; /* decrease of the share of held-out pairs in the right order
                                        when the feature is permuted */
    bool kept[NAS_FEATURES];
    int64_t pairs;   /* number of pairs that it learned from */
    double accuracy; /* share of held-out pairs in the right order, after pruning; NaN: too few
                        pairs. Boosted: only pairs without a row that it learned from */
} nas_ranker;

/** Models from which a ranking is learned. */
typedef struct nas_ranked_models {
    const double *x;    /* features [n][d] */
    const double *loss; /* [n]: lower is better; finite */
    int64_t n, d;
} nas_ranked_models;

/** Learn from models. Local. */
void nas_ranker_fit(nas_ranker *out, const nas_ranked_models *models, bool boosted, uint64_t seed);
/** u of a model: higher is better. */
double nas_ranker_utility(const nas_ranker *ranker, const double *x);

/** Ridge regression of y[n] on the standardised features, for speeds. *out is a ranker, *intercept
 * the mean of y; the prediction is nas_ranker_utility + *intercept. */
void nas_regression_fit(nas_ranker *out, double *intercept, const double *x, const double *y,
                        int64_t n, int64_t d);
