/* The architecture of Gemma 2: norms before and after branches, whose gains are 1 + the stored
 * value, GEGLU, windows in every other layer, caps of scores and logits, a scaled embedding. Gemma
 * Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size". */
#ifndef BP_MODELS_GEMMA2_GEMMA2_H
#define BP_MODELS_GEMMA2_GEMMA2_H

#include "models/family.h"

extern const bp_model_family bp_gemma2_family;
extern const bp_hf_table *const bp_gemma2_huggingface[];

#endif
