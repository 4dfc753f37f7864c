/* The architecture of GPT-J: parallel attention and MLP that share a norm, rotary positions on a
 * part of each head, biases only in the MLP and on the logits. Wang and Komatsuzaki 2021. */
#ifndef BP_MODELS_GPTJ_GPTJ_H
#define BP_MODELS_GPTJ_GPTJ_H

#include "models/family.h"

extern const bp_model_family bp_gptj_family;
extern const bp_hf_table *const bp_gptj_huggingface[];

#endif
