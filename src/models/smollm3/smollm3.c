/* The family of SmolLM3. */
#include "models/smollm3/smollm3.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .epsilon = 1e-6,
                               .rotary = true,
                               .no_bias = true,
                               .rope_period = 4,
                               .activation = BP_SWIGLU,
                               .inner_thirds = 8,
                               .inner_multiple = 64,
                               .tied = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_TIED,
                                      BP_STACK_COUNT("rope_period", rope_period),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_SMALL_EPSILON_KEY,
    BP_STACK_TIED_KEY,
    {.key = "model.rope_period",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 10000,
     .help = "in each group of this many layers the last one has no positions; 4 if not given"},
    {0}};

const bp_model_family bp_smollm3_family = {.name = "smollm3",
                                           .stack = &STACK,
                                           .sizes = SIZES,
                                           .keys = KEYS,
                                           .any_context = true,
                                           .objective = &bp_objective_causal,
                                           .huggingface = bp_smollm3_huggingface,
                                           BP_STACK_FAMILY};
