/* The architecture of Qwen3's mixtures: its attention, with experts in place of MLPs in all or some
 * layers. Yang et al. 2025, "Qwen3 Technical Report", section 2. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .epsilon = 1e-6, .query_norm = BP_QUERY_NORM_HEADS};

static const bp_model_size SIZES[] = {
    BP_STACK_GROUPED,       BP_STACK_EXPERTS,    BP_STACK_RENORMALISED,
    BP_STACK_EXPERT_LAYERS, BP_STACK_CONTEXT,    BP_STACK_ROTARY,
    BP_STACK_UNTIED,        BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_SMALL_EPSILON_KEY,
    BP_STACK_EXPERT_KEYS,
    BP_STACK_RENORMALISED_KEY,
    {BP_INT_KEY("model.experts_inner", NULL, 1, 1 << 22),
     .help = "inner width of an expert; model.inner if not given"},
    {BP_INT_KEY("model.experts_step", NULL, 1, 10000),
     .help = "of each group of this many layers only the last one has experts; 1 if not given"},
    {BP_STRING_KEY("model.experts_dense", NULL),
     .help = "layers without experts, a list 1,3,... from 1; none if not given"},
    {0}};

enum { DENSE = 6 }; /* of HF_SIZES: after BP_HF_SIZES_OF */

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("24", "2048", "32", "6144", "32768", "151936"),
    {"experts_dense", "mlp_only_layers", NULL, BP_HF_LAYERS, "0", .quiet = true, .null_is = "0"},
    BP_HF_LLAMA_SIZES("4", "width/heads", "1e-6", "10000", "0"),
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

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    for (int64_t layer = 0; layer < bp_hf_size_of(shape, "layers"); layer++)
        if (is_sparse(shape, layer))
            return bp_stack_hf_check(shape, path);
    return BP_FAIL(
        BP_ERR_FORMAT, "huggingface.unsupported",
        "\"decoder_sparse_step\" and \"mlp_only_layers\" leave no layer with experts: at "
        "%s; this is a model of \"model_type\" \"qwen3\"",
        path);
}

static const bp_hf_setting SETTINGS[] = {
    BP_HF_LLAMA_SETTINGS, {"use_sliding_window", "false"}, {0}};

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
    BP_HF_NORMS_BEFORE,
    BP_HF_ENDS,
    {0}};

static const bp_hf_table QWEN3_MOE = {
    BP_STACK_HF_TABLE_OF("qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM", check, bp_rope_hf_derive),
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .harmless = HARMLESS,
    .stem = "Qwen3Moe",
    .scores = true,
    .tags = "score",
    .is_sparse = is_sparse};

const bp_model_family bp_qwen3_moe_family = {
    BP_STACK_DECODER("qwen3_moe", STACK, SIZES, KEYS, &QWEN3_MOE)};
