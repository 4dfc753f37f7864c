/* The family of Granite 4.0's hybrids. */
#include "models/granite_hybrid/granite_hybrid.h"

#include "models/stack.h"
#include "models/variants.h"

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
                                      {.name = "attention_layers",
                                       .at = BP_SIZE_AT(stack.attention_layers),
                                       .type = BP_SIZE_REALS,
                                       .optional = true},
                                      BP_STACK_COUNT("state_heads", state_heads),
                                      BP_STACK_COUNT("state_head_width", state_head_width),
                                      BP_STACK_STATE_SIZES,
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
    BP_STACK_STATE_KEYS,
    BP_STACK_MULTIPLIER_KEYS,
    {.key = "model.attention_layers",
     .type = BP_OPTION_STRING,
     .help = "a list 6,16 of the layers that have attention, from 1 on; the others are "
             "state-space layers, all if not given"},
    {.key = "model.state_heads",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 16,
     .help = "heads of state-space layers, a multiple of mesh.tensor; model.heads if not given"},
    {.key = "model.state_head_width",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 20,
     .help = "their width; twice model.width over their number if not given"},
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
