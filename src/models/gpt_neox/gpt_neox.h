/* The architecture of GPT-NeoX and Pythia: parallel attention and MLP, rotary positions on a part
 * of each head, the exact GELU, a head of its own. Black et al. 2022; Biderman et al. 2023. */
#ifndef BP_MODELS_GPT_NEOX_GPT_NEOX_H
#define BP_MODELS_GPT_NEOX_GPT_NEOX_H

#include "models/family.h"

extern const bp_model_family bp_gpt_neox_family;
extern const bp_hf_table *const bp_gpt_neox_huggingface[];

#endif
