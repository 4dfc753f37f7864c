/* The family of the first GPT. */
#include "models/openai_gpt/openai_gpt.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {
    .position_std = BP_TRANSFORMER_STD, .post_norm = true, .tied = true, .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,        BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,     BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,         BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES, {0}};

static const bp_option KEYS[] = {{.key = "model.tied",
                                  .type = BP_OPTION_BOOL,
                                  .help = "the head is the token embedding; yes if not given"},
                                 {0}};

const bp_model_family bp_openai_gpt_family = {.name = "openai_gpt",
                                              .stack = &STACK,
                                              .sizes = SIZES,
                                              .keys = KEYS,
                                              .objective = &bp_objective_causal,
                                              .huggingface = bp_openai_gpt_huggingface,
                                              BP_STACK_FAMILY};
