/* The architecture of OLMoE: LLaMA's, with norms of all queries and all keys together, then
 * optional clipping of queries, keys and values, and experts in place of each MLP. Muennighoff et
 * al. 2024, "OLMoE: Open Mixture-of-Experts Language Models", section 2. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .query_norm = BP_QUERY_NORM_WHOLE};

static const bp_model_size SIZES[] = {BP_STACK_GROUPED,
                                      BP_STACK_EXPERTS,
                                      BP_STACK_RENORMALISED,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_ROTARY,
                                      BP_STACK_UNTIED,
                                      BP_STACK_REAL("clip", clip),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_EXPERT_INNER_KEY,
    BP_STACK_EXPERT_KEYS,
    BP_STACK_RENORMALISED_KEY,
    {BP_REAL_KEY("model.clip", NULL, 0, 1e6),
     .help = "queries, keys and values are clipped to +- this; 0, as if not given: they are not"},
    {0}};

static const bp_hf_size HF_SIZES[] = {
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

static const bp_hf_setting SETTINGS[] = {BP_HF_LLAMA_SETTINGS, {0}};

static const char *const HARMLESS[] = {"attention_dropout", "output_router_logits", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    BP_HF_ATTENTION,
    BP_HF_QUERY_NORMS("heads*head_width", "kv_heads*head_width"),
    BP_HF_ROUTER("layers.*.mlp.gate.weight"),
    BP_HF_EXPERT_ROWS("layers.*.mlp.experts.#.", "gate_proj", "up_proj", "down_proj", "inner"),
    BP_HF_NORMS_BEFORE,
    BP_HF_ENDS,
    {0}};

static const bp_hf_table OLMOE = {BP_STACK_HF_TABLE("olmoe", "olmoe", "OlmoeForCausalLM"),
                                  .sizes = HF_SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .pad = "1"};

const bp_model_family bp_olmoe_family = {BP_STACK_DECODER("olmoe", STACK, SIZES, KEYS, &OLMOE)};
