/* GPT-2's architecture: pre-norm layers, learned positions, GELU with tanh, tied embeddings.
 * Radford et al. 2019. */
#ifndef BP_MODELS_GPT_GPT_H
#define BP_MODELS_GPT_GPT_H

#include "models/family.h"

/** Where its own sizes lie in bp_model_shape: 0 is GPT-2's. */
enum { BP_GPT_HEAD_WIDTH, BP_GPT_INNER, BP_GPT_UNTIED };
enum { BP_GPT_EPSILON };

extern const bp_model_family bp_gpt_family;
extern const bp_hf_table *const bp_gpt_huggingface[];

#endif
