/* The architecture of the first GPT: norms after branches, none before the head. Radford et al.
 * 2018. */
#ifndef BP_MODELS_OPENAI_GPT_OPENAI_GPT_H
#define BP_MODELS_OPENAI_GPT_OPENAI_GPT_H

#include "models/family.h"

extern const bp_model_family bp_openai_gpt_family;
extern const bp_hf_table *const bp_openai_gpt_huggingface[];

#endif
