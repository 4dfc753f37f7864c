/* The family of Granite 4.0's hybrids. */
#include "models/granite_hybrid/granite_hybrid.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .epsilon = 1e-6,
                               .rotary = true,
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
                                      {.name = "rotary",
                                       .at = BP_SIZE_AT(stack.unturned),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .quiet = true,
                                       .inverse = true},
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_MULTIPLIERS,
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_SMALL_EPSILON_KEY,
    BP_STACK_HYBRID_KEYS,
    BP_STACK_MULTIPLIER_KEYS,
    {.key = "model.rotary",
     .type = BP_OPTION_BOOL,
     .help = "attention has rotary positions, else none; yes if not given"},
    {0}};

const bp_model_family bp_granite_hybrid_family = {.name = "granite_hybrid",
                                                  .stack = &STACK,
                                                  .sizes = SIZES,
                                                  .keys = KEYS,
                                                  .any_context = true,
                                                  .in_order = true,
                                                  .objective = &bp_objective_causal,
                                                  .huggingface = bp_granite_hybrid_huggingface,
                                                  BP_STACK_FAMILY};
