/* Standard errors over documents. */
#pragma once

#include "mesh/requests.h"

#include <stdint.h>

/** One document in a bootstrap. */
typedef struct bp_score_draw {
    double nll, tokens;
} bp_score_draw;

/** *out: standard error of exp(sum nll / sum tokens) over documents: the standard deviation of
 * 1,000 resamples of n documents from n, keyed by (seed, resample). The result is the same for any
 * number of threads and ranks, and NaN for fewer than 2 documents with tokens.
 *
 * helpers: if there are many documents, all their ranks divide the resamples; NULL: only this rank.
 * Not a collective: the others are in bp_requests_follow.
 * Shapes:     draws[n].
 * Errors:     BP_ERR_SYSTEM memory.
 * Source:     Efron and Tibshirani, An Introduction to the Bootstrap (1993), algorithm 6.1. */
bp_err bp_score_bootstrap(double *out, const bp_score_draw *draws, int64_t n, uint64_t seed,
                          bp_requests *helpers);
/** bp_requests.answer of its helpers. Collective over `ranks`. Errors: BP_ERR_SYSTEM memory: the
 * same on all ranks. */
bp_err bp_score_bootstrap_answer(MPI_Comm ranks, const void *request);
