/* A classifier of pairs fine-tuned for entailment, in this process only. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct bp_entailment bp_entailment;

/** Check by its manifest that the CHECKPOINT is such a classifier. Errors: those of
 * bp_checkpoint_read_metadata; BP_ERR_CONFIG not a classifier, or no class that begins with
 * "entail". Local. */
bp_err bp_entailment_check(const char *path);

/** Bytes of this process's memory that it takes. Errors: those of bp_entailment_check and
 * bp_model_estimate. Local. */
bp_err bp_entailment_estimate(int64_t *bytes, const char *path);

/** Errors: those of bp_entailment_check, bp_model_open and bp_tokenizer_load; BP_ERR_CONFIG it has
 * no tokenizer. Local. Owns: *out is the caller's, bp_entailment_free(). */
bp_err bp_entailment_open(bp_entailment **out, const char *path);
void bp_entailment_free(bp_entailment **self);

/** holds[k]: is "entailment" the most probable class of the pair premises[k], hypotheses[k]? All
 * texts begin with `prompt` (may be ""). If a pair is too long, the prompts lose tokens from the
 * front. If that is not enough, the texts after them are cut at the end, as in fine-tuning. A text
 * without tokens neither entails nor is entailed.
 * Errors: BP_ERR_SYSTEM; those of bp_encode. Local. */
bp_err bp_entailment_ask(bp_entailment *self, const char *prompt, const char *const *premises,
                         const char *const *hypotheses, int64_t count, bool *holds);

/** Warn once about pairs that were too long. Local. */
void bp_entailment_warn(const bp_entailment *self);

/** {"digest", "step"} of the model. Owns: a new reference. */
json_t *bp_entailment_json(const bp_entailment *self);
