/* The family of LLaMA. */
#include "models/llama/llama.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .rotary = true,
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
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_FLAG("attention_bias", qkv_bias),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_STACK_SCALING,
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_QUIET("window_period", window_period),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, BP_STACK_WINDOW_PERIOD_KEY, {0}};

const bp_model_family bp_llama_family = {.name = "llama",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .any_context = true,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_llama_huggingface,
                                         BP_STACK_FAMILY};
