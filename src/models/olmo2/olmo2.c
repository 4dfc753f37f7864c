/* The architecture of OLMo 2: LLaMA's, with norms after branches instead of before them, and norms
 * of all queries and all keys together. OLMo Team 2024, "2 OLMo 2 Furious", section 2.1. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .closing_norms = true, .closing_only = true,
                               .query_norm = BP_QUERY_NORM_WHOLE};

static const bp_model_size SIZES[] = {
    BP_STACK_LLAMA_SIZES, BP_STACK_UNTIED, BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "11008", "2048", "50304"),
    BP_HF_KV_HEADS("heads"),
    BP_HF_HEAD_WIDTH("width/heads"),
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
    BP_HF_THETA("10000"),
    /* transformers 4 wants "type", and no "rope_type" */
    BP_HF_ROPE_TYPE("type",
                    "rope_scaling.rope_type|rope_parameters.rope_type|rope_parameters.type"),
    BP_HF_ROPE_NUMBERS("rope_parameters."),
    BP_HF_ROPE_ORIGINAL("rope_parameters."),
    BP_HF_TIED("0"),
    {0}};

static const bp_hf_setting SETTINGS[] = {BP_HF_LLAMA_SETTINGS, BP_HF_NO_WINDOW, {0}};

static const char *const HARMLESS[] = {"attention_dropout", NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_QUERY_NORMS("heads*head_width", "kv_heads*head_width"),
                                 BP_HF_MLP,
                                 BP_HF_NORM("post_attention_layernorm", "h.*.attn.ln.gain"),
                                 BP_HF_NORM("post_feedforward_layernorm", "h.*.mlp.ln.gain"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table OLMO2 = {BP_STACK_HF_TABLE("olmo2", "olmo2", "Olmo2ForCausalLM"),
                                  .sizes = HF_SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .stem = "Olmo2",
                                  .scores = true,
                                  .pad = "1"};

const bp_model_family bp_olmo2_family = {BP_STACK_DECODER("olmo2", STACK, SIZES, KEYS, &OLMO2)};
