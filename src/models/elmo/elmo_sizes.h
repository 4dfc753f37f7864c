/* The sizes of an ELMo, as its shape has them. */
#ifndef BP_MODELS_ELMO_ELMO_SIZES_H
#define BP_MODELS_ELMO_ELMO_SIZES_H

#include "models/family.h"

/** Where its own sizes are in bp_model_shape. */
enum {
    BP_ELMO_FILTERS, /* BP_MODEL_PAIRS of them: characters, and how many filters */
    BP_ELMO_EMBEDDING = BP_ELMO_FILTERS + BP_MODEL_PAIRS,
    BP_ELMO_ACTIVATION, /* relu, tanh */
    BP_ELMO_HIGHWAY,
    BP_ELMO_PROJECTION,
    BP_ELMO_NO_SKIP
};
enum { BP_ELMO_CELL_CLIP, BP_ELMO_PROJECTION_CLIP }; /* real[] */

/** Items of the activations, streams of the batch, terms of the objective: a direction each. */
enum { BP_ELMO_FORWARD, BP_ELMO_BACKWARD };

/** How a word that the vocabulary lacks is spelled, independent of its token's name (bilm-tf). */
#define BP_ELMO_UNKNOWN "<UNK>"

/** Filters of all widths together. */
static inline int64_t bp_elmo_filters(const bp_model_shape *shape)
{
    int64_t filters = 0;

    for (int k = 0; k < BP_MODEL_PAIRS; k++)
        filters += bp_pair_second(shape->own[BP_ELMO_FILTERS + k]);
    return filters;
}

#endif
