/* The family of GPT-NeoX. */
#include "models/gpt_neox/gpt_neox.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {
    .rotary = true, .rope_fraction = 0.25, .parallel = true, .activation = BP_GELU_EXACT};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("head_width", head_width),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_REAL("rope_fraction", rope_fraction),
                                      BP_STACK_SCALING,
                                      {.name = "parallel_residual",
                                       .at = BP_SIZE_AT(stack.in_turn),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .inverse = true},
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {.key = "model.parallel_residual",
     .type = BP_OPTION_BOOL,
     .help = "attention and MLP read the same, and are added together; yes if not given"},
    {0}};

const bp_model_family bp_gpt_neox_family = {.name = "gpt_neox",
                                            .stack = &STACK,
                                            .sizes = SIZES,
                                            .keys = KEYS,
                                            .any_context = true,
                                            .objective = &bp_objective_causal,
                                            .huggingface = bp_gpt_neox_huggingface,
                                            BP_STACK_FAMILY};
