/* The family of BLOOM. */
#include "models/bloom/bloom.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {
    .embedding_norm = true, .alibi = true, .tied = true, .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {{.key = "model.tied",
                                  .type = BP_OPTION_BOOL,
                                  .help = "the head is the token embedding; yes if not given"},
                                 {0}};

const bp_model_family bp_bloom_family = {.name = "bloom",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .any_context = true,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_bloom_huggingface,
                                         BP_STACK_FAMILY};
