/* The architecture of OLMo 2: LLaMA's, with norms after branches instead of before them, and norms
 * of all queries and all keys together. OLMo Team 2024, "2 OLMo 2 Furious", section 2.1. */
#ifndef BP_MODELS_OLMO2_OLMO2_H
#define BP_MODELS_OLMO2_OLMO2_H

#include "models/family.h"

extern const bp_model_family bp_olmo2_family;
extern const bp_hf_table *const bp_olmo2_huggingface[];

#endif
