/* Qwen3's mixtures of experts as Hugging Face folders hold them. */
#include "models/qwen3_moe/qwen3_moe.h"

#include "models/stack/stack_huggingface.h"

enum { DENSE = 6 }; /* of SIZES: after BP_HF_SIZES_OF */

static const bp_hf_size SIZES[] = {
    BP_HF_SIZES_OF("24", "2048", "32", "6144", "32768", "151936"),
    {"experts_dense", "mlp_only_layers", NULL, BP_HF_LAYERS, "0", .quiet = true, .null_is = "0"},
    BP_HF_KV_HEADS("4"),
    BP_HF_HEAD_WIDTH("width/heads"),
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
    BP_HF_THETA("10000"),
    BP_HF_ROPE_SCALING,
    BP_HF_TIED("0"),
    BP_HF_EXPERTS("num_experts", "num_local_experts", "128", "8", "0.001"),
    BP_HF_RENORMALISED,
    {"experts_inner", "moe_intermediate_size", NULL, BP_HF_COUNT, "inner", .absent = "768",
     .quiet = true},
    {"experts_step", "decoder_sparse_step", NULL, BP_HF_COUNT, "1", .quiet = true},
    {0}};

static bool is_sparse(const bp_hf_shape *shape, int64_t layer)
{
    const double *dense = bp_hf_list_of(shape, DENSE);
    bool sparse = (layer + 1) % bp_hf_size_of(shape, "experts_step") == 0;

    for (int64_t k = 0; k < bp_hf_size_of(shape, "experts_dense"); k++)
        sparse = sparse && (int64_t)dense[k] != layer + 1;
    return sparse;
}

/* With attention_bias the output projection has a bias, too. */
static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"use_sliding_window", "false"},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", "sliding_window", "max_window_layers",
                                       "output_router_logits", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    BP_HF_ATTENTION,
    BP_HF_QUERY_NORMS("head_width", "head_width"),
    BP_HF_ROUTER("layers.*.mlp.gate.weight"),
    BP_HF_EXPERT_ROWS("layers.*.mlp.experts.#.", "gate_proj", "up_proj", "down_proj",
                      "experts_inner"),
    BP_HF_DENSE_MATRIX("layers.*.mlp.gate_proj.weight", "inner", "width", "h.*.mlp.gate.weight"),
    BP_HF_DENSE_MATRIX("layers.*.mlp.up_proj.weight", "inner", "width", "h.*.mlp.up.weight"),
    BP_HF_DENSE_MATRIX("layers.*.mlp.down_proj.weight", "width", "inner", "h.*.mlp.down.weight"),
    BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
    BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
    BP_HF_ENDS,
    {0}};

static const bp_hf_table QWEN3_MOE = {
    BP_STACK_HF_TABLE("qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM"),
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .harmless = HARMLESS,
    .stem = "Qwen3Moe",
    .scores = true,
    .tags = "score",
    .is_sparse = is_sparse};

const bp_hf_table *const bp_qwen3_moe_huggingface[] = {&QWEN3_MOE, NULL};
