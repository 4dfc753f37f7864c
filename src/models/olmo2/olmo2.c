/* The family of OLMo 2. */
#include "models/olmo2/olmo2.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .closing_norms = true,
                               .closing_only = true,
                               .rotary = true,
                               .query_norm = BP_QUERY_NORM_WHOLE,
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
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, {0}};

const bp_model_family bp_olmo2_family = {.name = "olmo2",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .any_context = true,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_olmo2_huggingface,
                                         BP_STACK_FAMILY};
