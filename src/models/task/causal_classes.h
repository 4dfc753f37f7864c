/* Transformers' classes that put the head of a task on the stack of a causal language model: their
 * tables are derived from the language model's. */
#pragma once

#include "io/huggingface/hf_table.h"

/** Classes derived from one table. */
#define BP_CAUSAL_CLASSES 3

/** Put the task classes' tables of the language model's table `of` in out[]; returns their number,
 * 0 if it has none (bp_hf_table.score). They live as long as the program; call it only once for
 * the same `of`. Local.
 *
 * Source: transformers' GenericForSequenceClassification (the state of a text's last token that is
 * not padding, a linear map without a bias) and GenericForTokenClassification. */
int bp_causal_classes(const bp_hf_table *out[BP_CAUSAL_CLASSES], const bp_hf_table *of);
