/* What the tables of Gemma 2 and 3 have in common. */
#pragma once

#include "models/stack/stack_huggingface.h"

#define BP_STACK_GEMMA                                                                             \
    .rms = true, .epsilon = 1e-6, .rotary = true, .no_bias = true, .gains_from_one = true,         \
    .closing_norms = true, .scales_embedding = true, .activation = BP_GEGLU, .tied = true
#define BP_STACK_GEMMA_SIZES                                                                       \
    BP_STACK_LLAMA_SIZES, BP_STACK_TIED, BP_STACK_COUNT("window", window),                         \
        BP_STACK_COUNT("window_period", window_period),                                            \
        BP_STACK_COUNT("score_width", score_width), BP_STACK_REAL("score_cap", score_cap),         \
        BP_STACK_REAL("logit_cap", logit_cap)

/** After layers. */
#define BP_HF_GEMMA_SIZES(period, scores, logits)                                                   \
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .absent = "4096", .null_is = "0"},         \
        {"window_period",                                                                           \
         "layer_types",                                                                             \
         NULL,                                                                                      \
         BP_HF_PERIOD,                                                                              \
         period,                                                                                    \
         "sliding_window_pattern|_sliding_window_pattern",                                          \
         .words = "\"sliding_attention\"|\"full_attention\"",                                       \
         .null_is = period},                                                                        \
        {"score_width", "query_pre_attn_scalar", NULL, BP_HF_COUNT, "head_width", .absent = "256"}, \
        {"score_cap", "attn_logit_softcapping", NULL,          BP_HF_REAL,                          \
         "0",         .absent = scores,         .null_is = "0"},                                    \
    {                                                                                               \
        "logit_cap", "final_logit_softcapping", NULL, BP_HF_REAL, "0", .absent = logits,            \
                                                                       .null_is = "0"               \
    }
#define BP_HF_GEMMA_SETTINGS                                                                       \
    {"hidden_activation", "\"gelu_pytorch_tanh\""}, {"attention_bias", "false"},                   \
    {                                                                                              \
        "use_bidirectional_attention", "null|false"                                                \
    }
/** hidden_act is the older name of hidden_activation; its "gelu" means "gelu_pytorch_tanh". */
#define BP_HF_GEMMA_HARMLESS "attention_dropout", "cache_implementation", "hidden_act"
#define BP_HF_GEMMA_NORMS                                                                          \
    BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),                                                 \
        BP_HF_NORM("post_attention_layernorm", "h.*.attn.ln.gain"),                                \
        BP_HF_NORM("pre_feedforward_layernorm", "h.*.ln2.gain"),                                   \
        BP_HF_NORM("post_feedforward_layernorm", "h.*.mlp.ln.gain")

/** bp_hf_table.derive: for positions; and a model without windows is written with full attention in
 * every layer, and as sliding_window the context, which no layer reads: transformers wants a number
 * there. */
void bp_gemma_hf_derive(bp_hf_shape *shape, bool written);
