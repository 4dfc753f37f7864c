/* The state of score.candidates. */
#pragma once

#include "infer/score/candidates/candidates.h"
#include "infer/score/candidates/choices.h"
#include "infer/score/sets.h"

typedef struct candidate_units {
    bp_candidates all;        /* on leads and the coordinator */
    char hash[BP_SHA256_HEX]; /* of them; on all ranks */
    json_t *figures;          /* on the coordinator, at the end */
    bp_work_units units;
    chooser chooser;
    char key[BP_SHA256_HEX];
} candidate_units;

/** bp_work_units.merge: score/candidates.jsonl and own->figures. */
bp_err candidates_merge(const scorer *self, candidate_units *own, bp_parts *parts);
