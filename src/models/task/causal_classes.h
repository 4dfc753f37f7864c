/* Transformers' classes that put the head of a task on the stack of a causal language model: their
 * tables follow from the language model's. */
#ifndef BP_MODELS_TASK_CAUSAL_CLASSES_H
#define BP_MODELS_TASK_CAUSAL_CLASSES_H

#include "io/huggingface/hf_table.h"

/** Classes that follow from one. */
#define BP_CAUSAL_CLASSES 3

/** The tables of classes with the head of a task of the language model's `of`, to out[]: how many
 * there are; 0: it has none (bp_hf_table.score). They are kept for the life of the program, and the
 * same `of` must not be asked for twice. Local.
 *
 * Source: transformers' GenericForSequenceClassification (the state of a text's last token that is
 * not padding, a linear map without a bias) and GenericForTokenClassification. */
int bp_causal_classes(const bp_hf_table *out[BP_CAUSAL_CLASSES], const bp_hf_table *of);

#endif
