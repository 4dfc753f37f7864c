/* The family of ModernBERT. */
#include "models/modernbert/modernbert.h"

#include "models/bert/bert.h"
#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.no_norm_bias = true,
                               .no_first_norm = true,
                               .embedding_norm = true,
                               .rotary = true,
                               .sees_all = true,
                               .window_period = 3,
                               .window_leads = true,
                               .no_bias = true,
                               .activation = BP_GEGLU_EXACT,
                               .inner_thirds = 8,
                               .inner_multiple = 64,
                               .tied = true,
                               .head_bias = true,
                               .transform = true,
                               .heads_transform = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_REAL("rope_local_theta", rope_local_theta),
                                      BP_STACK_TIED,
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_COUNT("window_period", window_period),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_TIED_KEY,
    {.key = "model.window",
     .type = BP_OPTION_INT,
     .min = 0,
     .max = 1 << 24,
     .help = "layers with a window see the tokens up to half of this away; 0: all, as if not "
             "given"},
    {.key = "model.window_period",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 10000,
     .help = "in each group of this many layers the first one sees all tokens, the others see "
             "model.window; 3 if not given"},
    {.key = "model.rope_local_theta",
     .type = BP_OPTION_REAL,
     .min = 1,
     .max = 1e12,
     .help = "base of the rotary positions of layers with a window; model.rope_theta if not "
             "given"},
    {0}};

const bp_model_family bp_modernbert_family = {
    .name = "modernbert",
    .stack = &STACK,
    .sizes = SIZES,
    .keys = KEYS,
    .any_context = true,
    .objective = &bp_objective_masked,
    .huggingface = bp_modernbert_huggingface,
    BP_STACK_ENCODER(bp_masked_fill_defaults, bp_masked_check)};
