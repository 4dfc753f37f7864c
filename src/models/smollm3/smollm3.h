/* The architecture of SmolLM3: LLaMA's, with layers that have no positions. Bakouch et al. 2025,
 * "SmolLM3: smol, multilingual, long-context reasoner"; Yang et al. 2025, "Rope to Nope and Back
 * Again". */
#ifndef BP_MODELS_SMOLLM3_SMOLLM3_H
#define BP_MODELS_SMOLLM3_SMOLLM3_H

#include "models/family.h"

extern const bp_model_family bp_smollm3_family;
extern const bp_hf_table *const bp_smollm3_huggingface[];

#endif
