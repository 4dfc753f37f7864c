/* Granite as Hugging Face folders hold it. */
#include "models/granite/granite.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("32", "4096", "32", "11008", "2048", "32000"),
                                   BP_HF_KV_HEADS("heads"),
                                   BP_HF_HEAD_WIDTH("width/heads"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   BP_HF_THETA("10000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("0"),
                                   BP_HF_MULTIPLIERS,
                                   {0}};

static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"mlp_bias", "false"},
                                         {"layer_types", "*\"full_attention\""},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_MLP,
                                 BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
                                 BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table GRANITE = {
    BP_STACK_HF_TABLE_DERIVED("granite", "granite", "GraniteForCausalLM",
                              bp_stack_hf_derive_scores),
    .sizes = SIZES, .settings = SETTINGS, .rows = ROWS, .harmless = HARMLESS};

const bp_hf_table *const bp_granite_huggingface[] = {&GRANITE, NULL};
