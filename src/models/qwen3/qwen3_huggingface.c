/* Qwen3 as Hugging Face folders hold it. */
#include "models/qwen3/qwen3.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("32", "4096", "32", "22016", "32768", "151936"),
                                   BP_HF_KV_HEADS("32"),
                                   BP_HF_HEAD_WIDTH("128"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   BP_HF_THETA("10000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("0"),
                                   {0}};

/* With attention_bias the output projection has a bias, too. */
static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"use_sliding_window", "false"},
                                         {"layer_types", "*\"full_attention\""},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", "sliding_window", "max_window_layers",
                                       NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_QUERY_NORMS("head_width", "head_width"),
                                 BP_HF_MLP,
                                 BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
                                 BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table QWEN3 = {BP_STACK_HF_TABLE("qwen3", "qwen3", "Qwen3ForCausalLM"),
                                  .sizes = SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .stem = "Qwen3",
                                  .scores = true,
                                  .tags = "score"};

const bp_hf_table *const bp_qwen3_huggingface[] = {&QWEN3, NULL};
