/* The family of GPT-J. */
#include "models/gptj/gptj.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rotary = true,
                               .parallel = true,
                               .one_norm = true,
                               .no_attention_bias = true,
                               .head_bias = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_COUNT("rope_width", rope_width),
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {.key = "model.rope_width",
     .type = BP_OPTION_INT,
     .min = 2,
     .max = 1 << 20,
     .help = "numbers of a head that positions turn; all if not given"},
    {0}};

const bp_model_family bp_gptj_family = {.name = "gptj",
                                        .stack = &STACK,
                                        .sizes = SIZES,
                                        .keys = KEYS,
                                        .any_context = true,
                                        .objective = &bp_objective_causal,
                                        .huggingface = bp_gptj_huggingface,
                                        BP_STACK_FAMILY};
