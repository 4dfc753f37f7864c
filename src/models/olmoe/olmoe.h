/* The architecture of OLMoE: LLaMA's, with norms of all queries and all keys together, then
 * optional clipping of queries, keys and values, and experts in place of each MLP. Muennighoff et
 * al. 2024, "OLMoE: Open Mixture-of-Experts Language Models", section 2. */
#ifndef BP_MODELS_OLMOE_OLMOE_H
#define BP_MODELS_OLMOE_OLMOE_H

#include "models/family.h"

extern const bp_model_family bp_olmoe_family;
extern const bp_hf_table *const bp_olmoe_huggingface[];

#endif
