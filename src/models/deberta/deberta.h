/* The architecture of DeBERTa-v2 and DeBERTaV3: BERT's layers, whose scores go by content and by
 * distance apart. He et al. 2021, "DeBERTa"; He et al. 2023, "DeBERTaV3". */
#ifndef BP_MODELS_DEBERTA_DEBERTA_H
#define BP_MODELS_DEBERTA_DEBERTA_H

#include "models/bert/bert.h"

/** Where its own sizes are in bp_model_shape, after those that the objective of masked words looks
 * at. */
enum {
    BP_DEBERTA_BUCKETS = BP_BERT_NO_POOLER + 1, /* 0: each distance has its own row */
    BP_DEBERTA_DISTANCE,
    BP_DEBERTA_OTHER_PROJECTIONS, /* 1: distances have matrices of their own */
    BP_DEBERTA_NO_NORM,           /* 1: their table has no norm */
    BP_DEBERTA_CONVOLUTION,       /* taps of the convolution beside layer 0; 0: there is none */
    BP_DEBERTA_GROUPS,            /* of it */
    BP_DEBERTA_ACTIVATION         /* of it: a number in BP_DEBERTA_ACTIVATIONS */
};

#define BP_DEBERTA_ACTIVATIONS "tanh|gelu|relu|gelu_new"

extern const bp_model_family bp_deberta_family;
extern const bp_hf_table *const bp_deberta_huggingface[];

#endif
