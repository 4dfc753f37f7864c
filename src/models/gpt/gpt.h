/* GPT-2's architecture: pre-norm layers, learned positions, GELU with tanh, tied embeddings.
 * Radford et al. 2019. */
#ifndef BP_MODELS_GPT_GPT_H
#define BP_MODELS_GPT_GPT_H

#include "models/family.h"

extern const bp_model_family bp_gpt_family;
extern const bp_hf_table *const bp_gpt_huggingface[];

#endif
