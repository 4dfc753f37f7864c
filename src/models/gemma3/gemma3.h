/* The architecture of Gemma 3's text model: Gemma 2's without caps, with norms of each head's
 * queries and keys, and rotary positions of another base in layers with a window. Gemma Team 2025,
 * "Gemma 3 Technical Report". */
#ifndef BP_MODELS_GEMMA3_GEMMA3_H
#define BP_MODELS_GEMMA3_GEMMA3_H

#include "models/family.h"

extern const bp_model_family bp_gemma3_family;
extern const bp_hf_table *const bp_gemma3_huggingface[];

#endif
