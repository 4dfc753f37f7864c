/* SmolLM3 as Hugging Face folders hold it. */
#include "models/smollm3/smollm3.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("36", "2048", "16", "11008", "32768", "128256"),
                                   BP_HF_KV_HEADS("4"),
                                   BP_HF_HEAD_WIDTH("width/heads"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   BP_HF_THETA("2000000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("1"),
                                   {"rope_period", "no_rope_layers", NULL, BP_HF_PERIOD, "4",
                                    "no_rope_layer_interval", .words = "1|0", .null_is = "4"},
                                   {0}};

static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"mlp_bias", "false"},
                                         {"use_sliding_window", "false"},
                                         {"layer_types", "*\"full_attention\""},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", "sliding_window", "max_window_layers",
                                       NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_MLP,
                                 BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
                                 BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table SMOLLM3 = {BP_STACK_HF_TABLE("smollm3", "smollm3", "SmolLM3ForCausalLM"),
                                    .sizes = SIZES,
                                    .settings = SETTINGS,
                                    .rows = ROWS,
                                    .harmless = HARMLESS,
                                    .stem = "SmolLM3",
                                    .scores = true,
                                    .pad = "128004",
                                    .tags = "score"};

const bp_hf_table *const bp_smollm3_huggingface[] = {&SMOLLM3, NULL};
