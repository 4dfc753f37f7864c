/* The architecture of Bamba: LLaMA's layers with rotary positions on half of each head; in most
 * layers a state-space layer replaces attention. Dao and Gu 2024, section 7, "Hybrid models". */
#ifndef BP_MODELS_BAMBA_BAMBA_H
#define BP_MODELS_BAMBA_BAMBA_H

#include "models/family.h"

extern const bp_model_family bp_bamba_family;
extern const bp_hf_table *const bp_bamba_huggingface[];

#endif
