/* Mixtral as Hugging Face folders hold it. */
#include "models/mixtral/mixtral.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "14336", "131072", "32000"),
    BP_HF_KV_HEADS("8"),
    BP_HF_HEAD_WIDTH("width/heads"),
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
    BP_HF_THETA("1000000"),
    BP_HF_ROPE_SCALING,
    BP_HF_TIED("0"),
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .absent = "0", .null_is = "0"},
    BP_HF_EXPERTS("num_local_experts", "num_experts", "8", "2", "0.001"),
    {0}};

static const bp_hf_setting SETTINGS[] = {
    BP_HF_WHOLE_HEADS, {"hidden_act", "\"silu\""}, {"router_jitter_noise", "0.0"}, {0}};

static const char *const HARMLESS[] = {"attention_dropout", "output_router_logits", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    BP_HF_ATTENTION,
    BP_HF_ROUTER("layers.*.block_sparse_moe.gate.weight"),
    BP_HF_EXPERT_ROWS("layers.*.block_sparse_moe.experts.#.", "w1", "w3", "w2", "inner"),
    BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
    BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
    BP_HF_ENDS,
    {0}};

static const bp_hf_table MIXTRAL = {BP_STACK_HF_TABLE("mixtral", "mixtral", "MixtralForCausalLM"),
                                    .sizes = SIZES,
                                    .settings = SETTINGS,
                                    .rows = ROWS,
                                    .harmless = HARMLESS,
                                    .stem = "Mixtral",
                                    .scores = true,
                                    .tags = "score"};

const bp_hf_table *const bp_mixtral_huggingface[] = {&MIXTRAL, NULL};
