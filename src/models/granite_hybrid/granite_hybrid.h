/* The architecture of Granite 4.0's hybrids: Granite's; in most layers a state-space layer replaces
 * attention. Dao and Gu 2024, section 7, "Hybrid models". */
#ifndef BP_MODELS_GRANITE_HYBRID_GRANITE_HYBRID_H
#define BP_MODELS_GRANITE_HYBRID_GRANITE_HYBRID_H

#include "models/family.h"

extern const bp_model_family bp_granite_hybrid_family;
extern const bp_hf_table *const bp_granite_hybrid_huggingface[];

#endif
