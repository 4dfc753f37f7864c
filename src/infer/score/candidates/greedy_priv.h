/* Whether choices are what the model would write. */
#ifndef BP_INFER_SCORE_CANDIDATES_GREEDY_PRIV_H
#define BP_INFER_SCORE_CANDIDATES_GREEDY_PRIV_H

#include "infer/score/scorer_priv.h"

/** greedy[r] = 1 for the choices r of this data rank for which `asked` is set and whose every token
 * is the model's first choice behind those before it; *known false: the model cannot write.
 *
 * Collective: over world. `asked` is read on leads; longest: tokens of a row, at least 2.
 * Errors:     BP_ERR_SYSTEM memory: the same on all ranks. */
bp_err candidates_greedy(double *greedy, bool *known, const scorer *self, const bool *asked,
                         int64_t longest);

#endif
