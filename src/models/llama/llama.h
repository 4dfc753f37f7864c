/* The architecture of LLaMA: pre-norm layers with RMS norms, rotary positions, grouped heads of
 * keys and values, SwiGLU, a tied head or one of its own. Touvron et al. 2023; also that of Mistral
 * and Qwen2. */
#ifndef BP_MODELS_LLAMA_LLAMA_H
#define BP_MODELS_LLAMA_LLAMA_H

#include "models/family.h"

extern const bp_model_family bp_llama_family;
extern const bp_hf_table *const bp_llama_huggingface[];

#endif
