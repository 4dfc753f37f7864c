/* The architecture of BLOOM: GPT-2 with a norm after the embedding, and ALiBi in place of learned
 * positions. Le Scao et al. 2022. */
#ifndef BP_MODELS_BLOOM_BLOOM_H
#define BP_MODELS_BLOOM_BLOOM_H

#include "models/family.h"

extern const bp_model_family bp_bloom_family;
extern const bp_hf_table *const bp_bloom_huggingface[];

#endif
