/* The architecture of MPNet: BERT's layers, whose scores have a bias per bucket of distance, from
 * one table shared by all layers. Song et al. 2020, "MPNet". */
#ifndef BP_MODELS_MPNET_MPNET_H
#define BP_MODELS_MPNET_MPNET_H

#include "models/bert/bert.h"
#include "models/stack/transformer.h"

/** Its own sizes. */
typedef struct bp_mpnet_sizes {
    bp_bert_sizes bert; /* for the objective of masked words */
    bp_distance_sizes distances;
} bp_mpnet_sizes;
BP_OWN_SIZES(bp_mpnet_sizes)

extern const bp_hf_table *const bp_mpnet_huggingface[];

#endif
