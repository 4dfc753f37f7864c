/* Parts of the tables of Gemma 2 and 3 in Hugging Face's folders. */
#ifndef BP_MODELS_GEMMA2_GEMMA2_HUGGINGFACE_H
#define BP_MODELS_GEMMA2_GEMMA2_HUGGINGFACE_H

#include "models/stack/stack_huggingface.h"

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
#endif
