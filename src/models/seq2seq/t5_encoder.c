/* The family of T5's encoders alone, as encoders of sentences have them: a stack. Ni et al. 2021,
 * "Sentence-T5". Pretrained here on masked words, with BERT's head of them. */
#include "models/seq2seq/seq2seq.h"

#include "models/bert/bert.h"
#include "models/stack/stack.h"

static const bp_stack STACK = {.rms = true,
                               .epsilon = 1e-6,
                               .sees_all = true,
                               .distances = true,
                               .unscaled = true,
                               .no_bias = true,
                               .activation = BP_GEGLU,
                               .other_activation = BP_RELU,
                               .tied = true,
                               .head_bias = true,
                               .transform = true,
                               .no_pooler = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_QUIET("head_width", head_width),
                                      {.name = "gated",
                                       .at = BP_SIZE_AT(stack.other_activation),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .inverse = true},
                                      BP_DISTANCE_SIZES,
                                      BP_DISTANCE_LAYERS,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_SMALL_EPSILON_KEY, BP_T5_GATED_KEY, BP_DISTANCE_KEYS, BP_DISTANCE_LAYERS_KEY, {0}};

const bp_model_family bp_t5_encoder_family = {
    .name = "t5_encoder",
    .stack = &STACK,
    .sizes = SIZES,
    .keys = KEYS,
    .any_context = true,
    .objective = &bp_objective_masked,
    .huggingface = bp_t5_encoder_huggingface,
    BP_STACK_ENCODER(bp_masked_fill_defaults, bp_masked_check)};
