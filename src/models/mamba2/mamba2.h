/* The family of Mamba-2: a stack of state-space layers, whose state has one size for any length of
 * text. Dao and Gu 2024. */
#ifndef BP_MODELS_MAMBA2_MAMBA2_H
#define BP_MODELS_MAMBA2_MAMBA2_H

#include "models/family.h"

extern const bp_model_family bp_mamba2_family;
extern const bp_hf_table *const bp_mamba2_huggingface[];

#endif
