/* The architecture of ModernBERT: an encoder with norms before its branches, rotary positions, a
 * GEGLU, no biases, and two-sided windows in most layers. Warner et al. 2024, "Smarter, Better,
 * Faster, Longer". */
#ifndef BP_MODELS_MODERNBERT_MODERNBERT_H
#define BP_MODELS_MODERNBERT_MODERNBERT_H

#include "models/family.h"

extern const bp_model_family bp_modernbert_family;
extern const bp_hf_table *const bp_modernbert_huggingface[];

#endif
