/* The architecture of GPT-J: attention and MLP beside each other, which read the same norm, rotary
 * positions of a part of each head, biases only in the MLP and of the logits. Wang and Komatsuzaki
 * 2021. */
#ifndef BP_MODELS_GPTJ_GPTJ_H
#define BP_MODELS_GPTJ_GPTJ_H

#include "models/family.h"

extern const bp_model_family bp_gptj_family;
extern const bp_hf_table *const bp_gptj_huggingface[];

#endif
