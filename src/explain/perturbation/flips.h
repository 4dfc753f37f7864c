/* Tokens that first-order changes of ln p(target) put first, place by place: HotFlip. Collective
 * over settings->group. Source: Ebrahimi et al. 2018, "HotFlip: White-box adversarial examples for
 * text classification". */
#ifndef BP_EXPLAIN_FLIPS_H
#define BP_EXPLAIN_FLIPS_H

#include "explain/method.h"

/** Replacements of each place: by how much they would change ln p(target), largest falls first, of
 * equal ones the smaller id; -1: no more, or a place that is not changed. */
typedef struct explain_flips {
    int64_t places, each;
    int32_t *token; /* [places][each] */
    double *change; /* [places][each]: (E_v - e)'g */
} explain_flips;

/** Is no input of a document, or of what is made of it, replaced here? */
typedef bool (*explain_is_kept)(const void *context, int64_t place);

void explain_flips_init(explain_flips *out, int64_t places, int64_t each);
void explain_flips_clear(explain_flips *flips);
/** Replacements by ordinary tokens. Shapes: tokens[places]; gradients[places][vector_width].
 * Errors: BP_ERR_SYSTEM memory; BP_ERR_STOPPED: the same on all ranks. */
bp_err explain_flips_find(explain_flips *out, bp_model *lm, const bp_explain_settings *settings,
                          const int32_t *tokens, const float *gradients, explain_is_kept is_kept,
                          const void *context);

#endif
