/* The architecture of MPNet: BERT's layers, whose scores have a bias per bucket of distance, from
 * one table shared by all layers. Song et al. 2020, "MPNet". */
#pragma once

#include "models/bert/bert.h"

extern const bp_hf_table *const bp_mpnet_huggingface[];
