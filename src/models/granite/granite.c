/* The family of Granite. */
#include "models/granite/granite.h"

#include "models/stack.h"
#include "models/variants.h"

static const bp_stack STACK = {.rms = true,
                               .epsilon = 1e-6,
                               .rotary = true,
                               .no_bias = true,
                               .activation = BP_SWIGLU,
                               .inner_thirds = 8,
                               .inner_multiple = 64};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_REAL("embedding_multiplier", embedding_scale),
                                      BP_STACK_REAL("attention_multiplier", score_scale),
                                      BP_STACK_REAL("residual_multiplier", branch_scale),
                                      BP_STACK_REAL("logits_scaling", logit_divisor),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY,
                                 BP_STACK_SMALL_EPSILON_KEY,
                                 {.key = "model.embedding_multiplier",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-6,
                                  .max = 1e6,
                                  .help = "of the vectors of tokens; 1 if not given"},
                                 {.key = "model.attention_multiplier",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-6,
                                  .max = 1e6,
                                  .help = "of scores, which are products of queries and keys; 1 "
                                          "over the root of the width of a head if not given"},
                                 {.key = "model.residual_multiplier",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-6,
                                  .max = 1e6,
                                  .help = "of what attention and MLP add; 1 if not given"},
                                 {.key = "model.logits_scaling",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-6,
                                  .max = 1e6,
                                  .help = "by what logits are divided; 1 if not given"},
                                 {0}};

const bp_model_family bp_granite_family = {.name = "granite",
                                           .stack = &STACK,
                                           .sizes = SIZES,
                                           .keys = KEYS,
                                           .any_context = true,
                                           .objective = &bp_objective_causal,
                                           .huggingface = bp_granite_huggingface,
                                           BP_STACK_FAMILY};
