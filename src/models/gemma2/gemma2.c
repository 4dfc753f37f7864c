/* The family of Gemma 2. */
#include "models/gemma2/gemma2.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .epsilon = 1e-6,
                               .rotary = true,
                               .no_bias = true,
                               .gains_from_one = true,
                               .closing_norms = true,
                               .scales_embedding = true,
                               .window_period = 2,
                               .activation = BP_GEGLU,
                               .tied = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_TIED,
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_COUNT("window_period", window_period),
                                      BP_STACK_COUNT("score_width", score_width),
                                      BP_STACK_REAL("score_cap", score_cap),
                                      BP_STACK_REAL("logit_cap", logit_cap),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_SMALL_EPSILON_KEY, BP_STACK_TIED_KEY, BP_STACK_PERIOD_KEYS, {0}};

const bp_model_family bp_gemma2_family = {.name = "gemma2",
                                          .stack = &STACK,
                                          .sizes = SIZES,
                                          .keys = KEYS,
                                          .any_context = true,
                                          .objective = &bp_objective_causal,
                                          .huggingface = bp_gemma2_huggingface,
                                          BP_STACK_FAMILY};
