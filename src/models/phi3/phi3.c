/* The family of Phi-3. */
#include "models/phi3/phi3.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .rotary = true,
                               .rope_fraction = 1,
                               .no_bias = true,
                               .activation = BP_SWIGLU,
                               .inner_thirds = 8,
                               .inner_multiple = 64};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_REAL("rope_fraction", rope_fraction),
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY,
                                 {.key = "model.rope_fraction",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-6,
                                  .max = 1,
                                  .help = "share of a head that positions turn; 1 if not given"},
                                 {0}};

const bp_model_family bp_phi3_family = {.name = "phi3",
                                        .stack = &STACK,
                                        .sizes = SIZES,
                                        .keys = KEYS,
                                        .any_context = true,
                                        .objective = &bp_objective_causal,
                                        .huggingface = bp_phi3_huggingface,
                                        BP_STACK_FAMILY};
