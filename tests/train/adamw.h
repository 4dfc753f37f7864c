/* The updates of GPT-2's recipe, for what trains an engine: AdamW at a constant rate, clipped at a
 * norm of 1. */
#pragma once

#include "train/engine/engine.h"

static inline void bp_test_adamw(bp_engine_spec *spec, double rate, int64_t steps)
{
    spec->optimizer = (bp_optimizer_rule){.kind = BP_ADAMW,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-8,
                                          .weight_decay = 0.1,
                                          .clip = 1};
    spec->rate.peak = rate;
    spec->rate.steps = steps;
    spec->rate.decay = BP_DECAY_CONSTANT;
}
