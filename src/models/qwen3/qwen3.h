/* The architecture of Qwen3: LLaMA's, with norms of each head's queries and keys, and a separate
 * size for the head width. Yang et al. 2025, "Qwen3 Technical Report". */
#ifndef BP_MODELS_QWEN3_QWEN3_H
#define BP_MODELS_QWEN3_QWEN3_H

#include "models/family.h"

extern const bp_model_family bp_qwen3_family;
extern const bp_hf_table *const bp_qwen3_huggingface[];

#endif
