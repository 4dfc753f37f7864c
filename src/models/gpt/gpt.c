/* The family of GPT-2. */
#include "models/gpt/gpt.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {
    .position_std = BP_TRANSFORMER_STD / 2, .tied = true, .keeps_words = true};

/* Options that GPT-2 itself does not have are written only where they are chosen. */
static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_STACK_QUIET("inner", inner),
                                      {.name = "norm_epsilon",
                                       .at = BP_SIZE_AT(stack.epsilon),
                                       .type = BP_SIZE_REAL,
                                       .optional = true,
                                       .quiet = true},
                                      BP_STACK_TIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {{.key = "model.tied",
                                  .type = BP_OPTION_BOOL,
                                  .help = "the head is the token embedding; yes if not given"},
                                 {0}};

const bp_model_family bp_gpt_family = {.name = "gpt",
                                       .stack = &STACK,
                                       .sizes = SIZES,
                                       .keys = KEYS,
                                       .objective = &bp_objective_causal,
                                       .huggingface = bp_gpt_huggingface,
                                       .benched = true,
                                       BP_STACK_FAMILY};
