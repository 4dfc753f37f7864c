/* The feed-forward language model of Bengio et al. 2003. */
#pragma once

#include "models/family.h"

/** Its own sizes. */
typedef struct bp_feedforward_sizes {
    int64_t order, embedding, direct;
} bp_feedforward_sizes;
BP_OWN_SIZES(bp_feedforward_sizes)
