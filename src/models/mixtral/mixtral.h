/* The architecture of Mixtral: LLaMA's, with experts in place of each MLP, whose gate weights are
 * divided by their sum. Jiang et al. 2024, "Mixtral of Experts". */
#ifndef BP_MODELS_MIXTRAL_MIXTRAL_H
#define BP_MODELS_MIXTRAL_MIXTRAL_H

#include "models/family.h"

extern const bp_model_family bp_mixtral_family;
extern const bp_hf_table *const bp_mixtral_huggingface[];

#endif
