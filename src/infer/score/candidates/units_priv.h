/* The state of score.candidates. */
#ifndef BP_INFER_SCORE_CANDIDATES_UNITS_PRIV_H
#define BP_INFER_SCORE_CANDIDATES_UNITS_PRIV_H

#include "infer/score/candidates/choices.h"
#include "infer/score/scorer.h"

typedef struct candidate_units {
    bp_work_units units;
    chooser chooser;
    char key[BP_SHA256_HEX];
} candidate_units;

/** bp_work_units.merge: score/candidates.jsonl and scorer.choices. */
bp_err candidates_merge(void *self, bp_parts *parts);

#endif
