/* The architecture of DeBERTa-v2 and DeBERTaV3: BERT's layers, whose scores have separate terms for
 * content and distance. He et al. 2021, "DeBERTa"; He et al. 2023, "DeBERTaV3". */
#pragma once

#include "models/bert/bert.h"

/** Its own sizes. */
typedef struct bp_deberta_sizes {
    bp_bert_sizes bert; /* for the objective of masked words */
    int64_t buckets;    /* 0: each distance has its own row */
    int64_t distance;
    int64_t other_projections; /* 1: distances have matrices of their own */
    int64_t no_norm;           /* 1: their table has no norm */
    int64_t convolution;       /* taps of the convolution beside layer 0; 0 if there is none */
    int64_t groups;            /* groups of the convolution */
    int64_t activation;        /* of the convolution: a number in BP_DEBERTA_ACTIVATIONS */
} bp_deberta_sizes;
BP_OWN_SIZES(bp_deberta_sizes)

#define BP_DEBERTA_ACTIVATIONS "tanh|gelu|relu|gelu_new"

extern const bp_hf_table *const bp_deberta_huggingface[];
