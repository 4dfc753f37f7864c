/* A family as Gemma 2's is, which is data alone: norms before and after branches, GEGLU, windows in
 * every other layer, scores and logits that are capped, an embedding that is scaled. */
#pragma once

#include "models/stack/stack.h"

static const bp_stack CAPPED_STACK = {.rms = true,
                                      .epsilon = 1e-6,
                                      .closing_norms = true,
                                      .scales_embedding = true,
                                      .rotary = true,
                                      .window_period = 2,
                                      .score_cap = 1.5,
                                      .no_bias = true,
                                      .activation = BP_GEGLU,
                                      .logit_cap = 2,
                                      .tied = true};

static const bp_model_size CAPPED_SIZES[] = {BP_STACK_SIZES,
                                             BP_STACK_CONTEXT,
                                             BP_STACK_COUNT("kv_heads", kv_heads),
                                             BP_STACK_COUNT("head_width", head_width),
                                             BP_STACK_COUNT("inner", inner),
                                             BP_STACK_COUNT("window", window),
                                             {0}};

static const bp_model_family CAPPED_FAMILY = {.name = "capped",
                                              .stack = &CAPPED_STACK,
                                              .sizes = CAPPED_SIZES,
                                              .any_context = true,
                                              .objective = &bp_objective_causal,
                                              BP_STACK_FAMILY};
