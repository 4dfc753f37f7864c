/* The family of MPNet. */
#include "models/mpnet/mpnet.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

/* It counts positions from its padding token's number on, which is 1. */
static const bp_stack STACK = {.post_norm = true,
                               .embedding_norm = true,
                               .epsilon = 1e-12,
                               .position_std = BP_TRANSFORMER_STD,
                               .first_position = 2,
                               .sees_all = true,
                               .distances = true,
                               .activation = BP_GELU_EXACT,
                               .tied = true,
                               .head_bias = true,
                               .transform = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_DISTANCE_SIZES,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_TIED_KEY,
                                 {BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),
                                  .help = "what norms add to the variance; 1e-12 if not given"},
                                 BP_DISTANCE_KEYS,
                                 {0}};

const bp_model_family bp_mpnet_family = {
    .name = "mpnet",
    .stack = &STACK,
    .sizes = SIZES,
    .keys = KEYS,
    .objective = &bp_objective_masked,
    .huggingface = bp_mpnet_huggingface,
    .state_width = bp_stack_state_width,
    BP_STACK_ENCODER(bp_masked_fill_defaults, bp_masked_check)};
