/* Tests whether the model would write a choice. */
#pragma once

#include "infer/score/candidates/candidates.h"
#include "job/work.h"

/** The state of one rank of a group; a choice is fed token by token. */
typedef struct greedy_walker {
    bp_work_job *job;      /* borrowed */
    bp_decoding *decoding; /* NULL if the model can't write */
    float *logits;         /* [vocab_count] */
    int32_t *tokens;       /* [longest] of the choice, on leads before greedy_walk */
} greedy_walker;

/** longest: tokens of a row, at least 2. Collective over mesh->replica. Errors: BP_ERR_SYSTEM
 * memory: the same on all its ranks. */
bp_err greedy_open(greedy_walker *walker, bp_work_job *job, int64_t longest);
void greedy_close(greedy_walker *walker);

/** Is every token of the choice, the last `scored` of `count`, the model's most probable one
 * (the first of equal ones) after the tokens before it? Collective over mesh->replica. */
bool greedy_walk(const greedy_walker *walker, int64_t count, int64_t scored);
