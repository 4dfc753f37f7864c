/* The architecture of GPT-NeoX and Pythia: attention and MLP beside each other, rotary positions of
 * a part of each head, the exact GELU, a head of its own. Black et al. 2022; Biderman et al. 2023.
 */
#ifndef BP_MODELS_GPT_NEOX_GPT_NEOX_H
#define BP_MODELS_GPT_NEOX_GPT_NEOX_H

#include "models/family.h"

/** Where its own sizes lie in bp_model_shape. */
enum { BP_NEOX_HEAD_WIDTH, BP_NEOX_INNER, BP_NEOX_TIED, BP_NEOX_IN_TURN };
enum { BP_NEOX_EPSILON, BP_NEOX_THETA, BP_NEOX_FRACTION };

extern const bp_model_family bp_gpt_neox_family;
extern const bp_hf_table *const bp_gpt_neox_huggingface[];

#endif
