/* A fine-tuned classifier of texts, or of pairs, in this process only; it classifies texts that
 * another model makes. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "models/task/task.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct bp_classifier bp_classifier;

#define BP_CLASSIFIER_BATCH 32 /* texts at a time */

/** Decides by its manifest whether the CHECKPOINT predicts a class of a whole text. *labels are the
 * names of its classes, a new reference; NULL if it is not such a classifier. Errors: those of
 * bp_checkpoint_read_metadata and bp_model_shape_read. */
bp_err bp_classifier_labels(json_t **labels, const char *path);

/** Bytes of this process's memory that it takes. Errors: those of bp_classifier_labels and
 * bp_model_estimate. */
bp_err bp_classifier_estimate(int64_t *bytes, const char *path);

/** `key`: the configuration key that names it, for messages. Owns: *out is the caller's,
 * bp_classifier_free(). Errors: those of bp_model_open and bp_tokenizer_load; BP_ERR_CONFIG it has
 * no tokenizer. */
bp_err bp_classifier_open(bp_classifier **out, const char *path, const char *key);
void bp_classifier_free(bp_classifier **self);

int64_t bp_classifier_classes(const bp_classifier *self);
/** The most tokens of an example, including its framing tokens. */
int64_t bp_classifier_context(const bp_classifier *self);
const bp_task_frame *bp_classifier_frame(const bp_classifier *self);
/** Its tokenizer's; borrowed. */
bp_encoder *bp_classifier_encoder(const bp_classifier *self);
/** {"digest", "step"} of the model. Owns: a new reference. */
json_t *bp_classifier_json(const bp_classifier *self);

/** log_p[count][classes], natural logs, of up to BP_CLASSIFIER_BATCH pairs; for a single text the
 * second has no tokens. cut[count]: tokens that did not fit. The same batch gives the same bits.
 * Errors: BP_ERR_SYSTEM; those of bp_model_distribution. */
bp_err bp_classifier_ask(bp_classifier *self, const bp_task_pair *pairs, int64_t count,
                         float *log_p, int64_t *cut);
