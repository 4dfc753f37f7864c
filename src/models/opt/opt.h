/* The architecture of OPT: GPT-2 with ReLU, and positions that begin at row 2 of their table. Zhang
 * et al. 2022. */
#ifndef BP_MODELS_OPT_OPT_H
#define BP_MODELS_OPT_OPT_H

#include "models/family.h"

extern const bp_model_family bp_opt_family;
extern const bp_hf_table *const bp_opt_huggingface[];

#endif
