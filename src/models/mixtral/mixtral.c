/* The architecture of Mixtral: LLaMA's, with experts in place of each MLP, whose gate weights are
 * divided by their sum. Jiang et al. 2024, "Mixtral of Experts". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .renormalised = true};

static const bp_model_size SIZES[] = {
    BP_STACK_GROUPED, BP_STACK_EXPERTS, BP_STACK_CONTEXT,    BP_STACK_COUNT("window", window),
    BP_STACK_ROTARY,  BP_STACK_UNTIED,  BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {BP_STACK_EXPERT_INNER_KEY, BP_STACK_EXPERT_KEYS, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "14336", "131072", "32000"),
    BP_HF_LLAMA_SIZES("8", "width/heads", "1e-5", "1000000", "0"),
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
    BP_HF_NORMS_BEFORE,
    BP_HF_ENDS,
    {0}};

static const bp_hf_table MIXTRAL = {BP_STACK_HF_TABLE("mixtral", "mixtral", "MixtralForCausalLM"),
                                    .sizes = HF_SIZES,
                                    .settings = SETTINGS,
                                    .rows = ROWS,
                                    .harmless = HARMLESS,
                                    .stem = "Mixtral",
                                    .scores = true,
                                    .tags = "score"};

const bp_model_family bp_mixtral_family = {
    BP_STACK_DECODER("mixtral", STACK, SIZES, KEYS, &MIXTRAL)};
