/* The architecture of Qwen3's mixtures: its attention, with experts in place of MLPs in all or some
 * layers. Yang et al. 2025, "Qwen3 Technical Report", section 2. */
#ifndef BP_MODELS_QWEN3_MOE_QWEN3_MOE_H
#define BP_MODELS_QWEN3_MOE_QWEN3_MOE_H

#include "models/family.h"

extern const bp_model_family bp_qwen3_moe_family;
extern const bp_hf_table *const bp_qwen3_moe_huggingface[];

#endif
