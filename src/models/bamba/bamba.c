/* The family of Bamba. */
#include "models/bamba/bamba.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .rotary = true,
                               .rope_fraction = 0.5,
                               .mixer = BP_STACK_HYBRID,
                               .no_bias = true,
                               .activation = BP_SWIGLU,
                               .inner_thirds = 8,
                               .inner_multiple = 64};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_HYBRID_SIZES,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, BP_STACK_HYBRID_KEYS, {0}};

const bp_model_family bp_bamba_family = {.name = "bamba",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .any_context = true,
                                         .in_order = true,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_bamba_huggingface,
                                         BP_STACK_FAMILY};
