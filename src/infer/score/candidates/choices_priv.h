/* The state of scoring choices: units, walks and their merge. */
#ifndef BP_INFER_SCORE_CANDIDATES_CHOICES_PRIV_H
#define BP_INFER_SCORE_CANDIDATES_CHOICES_PRIV_H

#include "infer/score/candidates/candidates.h"
#include "infer/score/candidates/greedy_priv.h"

#define GREEDY_UNKNOWN (-1) /* the model can't write */

/** What a part file holds of a choice, in the byte order of the host. */
typedef struct choice_result {
    double logprob, first; /* of all its tokens, of the first one */
    int64_t sure;          /* tokens that are more probable than all others together */
    int64_t greedy;        /* 1: it is what the model would write */
} choice_result;

typedef struct choice_results {
    const choice_result *of; /* [end - first]: of the rows [first, end) */
    int64_t first, end;
} choice_results;

typedef struct chooser {
    const scorer *self;
    bp_work_units units;
    const bp_candidates *all; /* on leads and the coordinator, as the next three */
    int64_t count;            /* units */
    int64_t *starts;          /* [count + 1]: the rows of unit u are [starts[u], starts[u + 1]) */
    char key[BP_SHA256_HEX];
    /* of a unit, on the computing ranks */
    int32_t *inputs, *targets;
    float *values;
    choice_result *results;
    greedy_walker walker;
} chooser;

/** Is it still open whether the model would write choice r? The result is uncertain, and no choice
 * among the results that follows the same context begins with a more probable token. */
bool choice_is_open(const bp_candidates *all, const choice_results *results, int64_t r);

/** bp_work_units.merge: score/candidates.jsonl and scorer.choices. */
bp_err choices_merge(void *self, bp_parts *parts);

#endif
