/* The family of OPT. */
#include "models/opt/opt.h"

#include "models/stack.h"
#include "models/variants.h"

static const bp_stack STACK = {.position_std = BP_TRANSFORMER_STD,
                               .first_position = 2,
                               .activation = BP_RELU,
                               .tied = true,
                               .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,        BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,     BP_STACK_COUNT("inner", inner),
                                      BP_STACK_TIED,         BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES, {0}};

static const bp_option KEYS[] = {{.key = "model.tied",
                                  .type = BP_OPTION_BOOL,
                                  .help = "the head is the token embedding; yes if not given"},
                                 {0}};

const bp_model_family bp_opt_family = {.name = "opt",
                                       .stack = &STACK,
                                       .sizes = SIZES,
                                       .keys = KEYS,
                                       .objective = &bp_objective_causal,
                                       .huggingface = bp_opt_huggingface,
                                       BP_STACK_FAMILY};
