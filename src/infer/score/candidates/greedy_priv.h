/* Whether choices are what the model would write. */
#ifndef BP_INFER_SCORE_CANDIDATES_GREEDY_PRIV_H
#define BP_INFER_SCORE_CANDIDATES_GREEDY_PRIV_H

#include "infer/score/scorer.h"

/** What one rank of a group holds: a choice is fed token by token. */
typedef struct greedy_walker {
    bp_work_job *job;      /* borrowed */
    bp_decoding *decoding; /* NULL: the model can't write */
    float *logits;         /* [vocab_count] */
    int32_t *tokens;       /* [longest] */
} greedy_walker;

/** longest: tokens of a row, at least 2. Collective over mesh->ensemble. Errors: BP_ERR_SYSTEM
 * memory: the same on all its ranks. */
bp_err greedy_open(greedy_walker *walker, const scorer *self, int64_t longest);
void greedy_close(greedy_walker *walker);

/** Is every token of the choice the model's first one after those before it? ids: [row->count]. On
 * leads, while the rest of mesh->ensemble is in greedy_follow until greedy_end. */
bool greedy_walk(const greedy_walker *walker, const int32_t *ids, const bp_candidate_row *row);
void greedy_end(const greedy_walker *walker);
void greedy_follow(const greedy_walker *walker);

#endif
