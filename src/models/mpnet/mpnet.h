/* The architecture of MPNet: BERT's layers, whose scores get what goes by the bucket of a distance,
 * from one table of all layers. Song et al. 2020, "MPNet". */
#ifndef BP_MODELS_MPNET_MPNET_H
#define BP_MODELS_MPNET_MPNET_H

#include "models/bert/bert.h"

/** Where its own sizes are in bp_model_shape, after those that the objective of masked words looks
 * at. */
enum { BP_MPNET_BUCKETS = BP_BERT_NO_POOLER + 1, BP_MPNET_DISTANCE };

extern const bp_model_family bp_mpnet_family;
extern const bp_hf_table *const bp_mpnet_huggingface[];

#endif
