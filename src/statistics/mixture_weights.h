/* Weights of a mixture of models, fitted to their probabilities of a text's tokens. Local: no
 * MPI. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/** Passes end when no other weights are better by more than this, in nats a token, or after 100,000
 * passes. */
#define BP_MIXTURE_GAP 1e-10

/** The models' log probabilities of the tokens: natural logs, -INFINITY for probability 0; at least
 * one is finite for each token. */
typedef struct bp_mixture_text {
    const float *const *logprob; /* [models][tokens] */
    int64_t models, tokens;      /* 1 or more */
} bp_mixture_text;

typedef struct bp_mixture_fit {
    double nll;         /* of the mixture, over all tokens, in nats */
    double gap;         /* bound on how much better the best weights are, nats a token */
    int64_t iterations; /* of EM */
} bp_mixture_fit;

/** The weights w with the largest likelihood of sum_m w_m p_m(token), by expectation maximisation
 * from equal ones, until no weights are better by `gap` nats a token. If the best single model is
 * at least as good, it gets all the weight: the fit is never worse than it.
 *
 * Shapes:     weights[models], which sum to 1.
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Dempster, Laird and Rubin 1977, section 4.3; the bound is that of concave functions
 * on a simplex: the best is above by at most log max_m mean_t p_m / p (Cover 1984, "An Algorithm
 * for Maximizing Expected Log Investment Return", section III). Sums are over fixed blocks in
 * order, so the bits do not depend on the number of threads.
 */
bp_err bp_mixture_weights(double *weights, bp_mixture_fit *fit, const bp_mixture_text *text);

/** log of sum_m weights[m] exp(logprob[m][token]). */
double bp_mixture_logprob(const double *weights, const bp_mixture_text *text, int64_t token);
