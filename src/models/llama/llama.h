/* The architecture of LLaMA: pre-norm layers with norms by the root mean square, rotary positions,
 * grouped heads of keys and values, SwiGLU, a head of its own or tied. Touvron et al. 2023; Mistral
 * and Qwen2 are of it too. */
#ifndef BP_MODELS_LLAMA_LLAMA_H
#define BP_MODELS_LLAMA_LLAMA_H

#include "models/family.h"

/** Where its own sizes lie in bp_model_shape. */
enum {
    BP_LLAMA_KV_HEADS,
    BP_LLAMA_INNER,
    BP_LLAMA_TIED,
    BP_LLAMA_BIAS,
    BP_LLAMA_WINDOW,
    BP_LLAMA_HEAD_WIDTH,
    BP_LLAMA_SCALING,
    BP_LLAMA_ORIGINAL
};
enum { BP_LLAMA_EPSILON, BP_LLAMA_THETA, BP_LLAMA_FACTOR, BP_LLAMA_LOW, BP_LLAMA_HIGH };

extern const bp_model_family bp_llama_family;
extern const bp_hf_table *const bp_llama_huggingface[];

#endif
