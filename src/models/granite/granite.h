/* The architecture of Granite: LLaMA's, with multipliers on the embedding, scores, branches and
 * logits. Granite Team 2024, "Granite 3.0 Language Models", after Yang et al. 2022, "Tensor
 * Programs V". */
#ifndef BP_MODELS_GRANITE_GRANITE_H
#define BP_MODELS_GRANITE_GRANITE_H

#include "models/family.h"

extern const bp_model_family bp_granite_family;
extern const bp_hf_table *const bp_granite_huggingface[];

#endif
