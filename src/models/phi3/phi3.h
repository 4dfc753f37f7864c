/* The architecture of Phi-3: LLaMA's, with rotary positions on all or part of each head. Abdin et
 * al. 2024, "Phi-3 Technical Report". */
#ifndef BP_MODELS_PHI3_PHI3_H
#define BP_MODELS_PHI3_PHI3_H

#include "models/family.h"

extern const bp_model_family bp_phi3_family;
extern const bp_hf_table *const bp_phi3_huggingface[];

#endif
