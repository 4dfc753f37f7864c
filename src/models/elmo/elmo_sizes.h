/* The sizes of an ELMo, as its shape has them. */
#pragma once

#include "models/family.h"

/** Its own sizes. */
typedef struct bp_elmo_sizes {
    int64_t filters[BP_MODEL_PAIRS]; /* pairs: characters, and how many filters */
    int64_t embedding;
    int64_t activation; /* relu, tanh */
    int64_t highway, projection, no_skip;
    double cell_clip, projection_clip;
} bp_elmo_sizes;
BP_OWN_SIZES(bp_elmo_sizes)

/** Items of the activations, streams of the batch, terms of the objective: one per direction. */
enum { BP_ELMO_FORWARD, BP_ELMO_BACKWARD };

/** The spelling of an unknown word, independent of its token's name (bilm-tf). */
#define BP_ELMO_UNKNOWN "<UNK>"

/** Total number of filters. */
static inline int64_t bp_elmo_filters(const bp_model_shape *shape)
{
    int64_t filters = 0;

    for (int k = 0; k < BP_MODEL_PAIRS; k++)
        filters += bp_pair_second(bp_elmo_sizes_of(shape)->filters[k]);
    return filters;
}
