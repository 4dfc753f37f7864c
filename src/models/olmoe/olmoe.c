/* The family of OLMoE. */
#include "models/olmoe/olmoe.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true,
                               .rotary = true,
                               .query_norm = BP_QUERY_NORM_WHOLE,
                               .no_bias = true,
                               .activation = BP_SWIGLU,
                               .inner_thirds = 8,
                               .inner_multiple = 64};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("kv_heads", kv_heads),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_EXPERTS,
                                      BP_STACK_RENORMALISED,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_SCALING,
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_STACK_REAL("clip", clip),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_EXPERT_INNER_KEY,
                                 BP_STACK_EXPERT_KEYS,
                                 BP_STACK_RENORMALISED_KEY,
                                 {.key = "model.clip",
                                  .type = BP_OPTION_REAL,
                                  .min = 0,
                                  .max = 1e6,
                                  .help = "queries, keys and values are clipped to +- this; 0, as "
                                          "if not given: they are not"},
                                 {0}};

const bp_model_family bp_olmoe_family = {.name = "olmoe",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .any_context = true,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_olmoe_huggingface,
                                         BP_STACK_FAMILY};
