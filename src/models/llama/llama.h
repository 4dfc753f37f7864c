/* The architecture of LLaMA: pre-norm layers with norms by the root mean square, rotary positions,
 * grouped heads of keys and values, SwiGLU, a head of its own or tied. Touvron et al. 2023; Mistral
 * and Qwen2 are of it too. */
#ifndef BP_MODELS_LLAMA_LLAMA_H
#define BP_MODELS_LLAMA_LLAMA_H

#include "models/family.h"

extern const bp_model_family bp_llama_family;
extern const bp_hf_table *const bp_llama_huggingface[];

#endif
