/* A classifier of pairs that was fine-tuned to find entailment, only in this process. */
#ifndef BP_INFER_GENERATE_ENTAILMENT_H
#define BP_INFER_GENERATE_ENTAILMENT_H

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct bp_entailment bp_entailment;

/** Can the CHECKPOINT be one? Decides by its manifest. Errors: those of
 * bp_checkpoint_read_metadata; BP_ERR_CONFIG no classifier, or one without a class that begins with
 * "entail". Local. */
bp_err bp_entailment_check(const char *path);

/** What it takes of this process's memory. Errors: those of bp_entailment_check and
 * bp_model_estimate. Local. */
bp_err bp_entailment_estimate(int64_t *bytes, const char *path);

/** Errors: those of bp_entailment_check, bp_model_open and bp_tokenizer_load; BP_ERR_CONFIG it
 * brings no tokenizer. Local. Owns: *out is the caller's, bp_entailment_free(). */
bp_err bp_entailment_open(bp_entailment **out, const char *path);
void bp_entailment_free(bp_entailment **self);

/** holds[k]: is "entailment" the most probable class of the pair premises[k], hypotheses[k]? All
 * texts begin with `prompt` ("": with none). Of a pair that is too long the prompts lose as many
 * tokens from their front as it takes; what follows them is cut from its end, as in fine-tuning,
 * where that does not suffice. A text without a token entails nothing, nor is it entailed.
 * Errors: BP_ERR_SYSTEM; those of bp_encode. Local. */
bp_err bp_entailment_ask(bp_entailment *self, const char *prompt, const char *const *premises,
                         const char *const *hypotheses, int64_t count, bool *holds);

/** Warn once of the pairs so far that were too long. Local. */
void bp_entailment_warn(const bp_entailment *self);

/** {"digest", "step"} of the model. Owns: a new reference. */
json_t *bp_entailment_json(const bp_entailment *self);

#endif
