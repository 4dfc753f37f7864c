/* OLMoE as Hugging Face folders hold it. */
#include "models/olmoe/olmoe.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {
    BP_HF_SIZES_OF("16", "2048", "16", "2048", "4096", "50304"),
    BP_HF_KV_HEADS("heads"),
    {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .only_theirs = true},
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
    BP_HF_THETA("10000"),
    BP_HF_ROPE_SCALING,
    BP_HF_TIED("0"),
    {"clip", "clip_qkv", NULL, BP_HF_REAL, "0", .quiet = true, .null_is = "0"},
    BP_HF_EXPERTS("num_experts", "num_local_experts", "64", "8", "0.01"),
    BP_HF_RENORMALISED,
    {0}};

/* With attention_bias the output projection has a bias, too. */
static const bp_hf_setting SETTINGS[] = {
    BP_HF_WHOLE_HEADS, {"hidden_act", "\"silu\""}, {"attention_bias", "false"}, {0}};

static const char *const HARMLESS[] = {"attention_dropout", "output_router_logits", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    BP_HF_ATTENTION,
    BP_HF_QUERY_NORMS("heads*head_width", "kv_heads*head_width"),
    BP_HF_ROUTER("layers.*.mlp.gate.weight"),
    BP_HF_EXPERT_ROWS("layers.*.mlp.experts.#.", "gate_proj", "up_proj", "down_proj", "inner"),
    BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
    BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
    BP_HF_ENDS,
    {0}};

static const bp_hf_table OLMOE = {BP_STACK_HF_TABLE("olmoe", "olmoe", "OlmoeForCausalLM"),
                                  .sizes = SIZES, .settings = SETTINGS, .rows = ROWS,
                                  .harmless = HARMLESS};

const bp_hf_table *const bp_olmoe_huggingface[] = {&OLMOE, NULL};
