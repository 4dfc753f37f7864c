/* The architecture of Bamba: LLaMA's layers, whose positions turn half of a head, with a
 * state-space layer in attention's place in most of them. Dao and Gu 2024, section 7, "Hybrid
 * models". */
#ifndef BP_MODELS_BAMBA_BAMBA_H
#define BP_MODELS_BAMBA_BAMBA_H

#include "models/family.h"

extern const bp_model_family bp_bamba_family;
extern const bp_hf_table *const bp_bamba_huggingface[];

#endif
