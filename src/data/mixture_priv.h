/* The corpus of each entry of the training data, if corpora have weights. */
#pragma once

#include "base/err.h"

#include <stdint.h>

#define BP_MIXTURE_CYCLE 65536

/** A cycle of entries: each corpus has a whole number of them, spread evenly. */
typedef struct bp_mixture {
    int64_t corpora;
    int64_t *count;  /* [corpora]: entries of a cycle; 0 where the weight is 0 */
    int32_t *corpus; /* [BP_MIXTURE_CYCLE] of each entry */
    int32_t *number; /* [BP_MIXTURE_CYCLE]: how many of that corpus come before it in the cycle */
} bp_mixture;

/** Shares of the cycle by the largest remainders, at least 1 for a weight above 0; then each entry
 * goes to the corpus that is farthest below its share, the first of several.
 *
 * Shapes:     weights[corpora], not negative, at least one and at most BP_MIXTURE_CYCLE above 0.
 * Errors:     BP_ERR_SYSTEM memory. Clear with bp_mixture_clear, also after an error.
 */
void bp_mixture_init(bp_mixture *mixture, const double *weights, int64_t corpora);
void bp_mixture_clear(bp_mixture *mixture);
/** Entry `entry` (from 0, of all cycles) is use *use (from 0) of corpus *corpus. */
void bp_mixture_find(const bp_mixture *mixture, int64_t entry, int64_t *corpus, int64_t *use);
