/* The architecture of GPT-NeoX and Pythia: parallel attention and MLP, rotary positions on a part
 * of each head, the exact GELU, a head of its own. Black et al. 2022; Biderman et al. 2023.
 *
 * In Hugging Face's folders every weight is [out, in], as ours; the rows of `query_key_value` are
 * q, k and v of one head after the other. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {
    .rotary = true, .rope_fraction = 0.25, .parallel = true, .activation = BP_GELU_EXACT};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("head_width", head_width),
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_REAL("rope_fraction", rope_fraction),
                                      BP_STACK_SCALING,
                                      {.name = "parallel_residual",
                                       .at = BP_SIZE_AT(stack.in_turn),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .inverse = true},
                                      BP_STACK_UNTIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {BP_BOOL_KEY("model.parallel_residual", NULL),
     .help = "attention and MLP read the same, and are added together; yes if not given"},
    {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZE("layers", "num_hidden_layers", "44"),
    BP_HF_SIZE("width", "hidden_size", "6144"),
    BP_HF_SIZE("heads", "num_attention_heads", "64"),
    {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads"},
    BP_HF_SIZE("inner", "intermediate_size", "24576"),
    BP_HF_SIZE("context", "max_position_embeddings", "2048"),
    BP_HF_NUMBER("norm_epsilon", "layer_norm_eps", "1e-5"),
    {"rope_theta", "rotary_emb_base", NULL, BP_HF_REAL, "10000",
     "rope_theta|rope_parameters.rope_theta"},
    {"rope_fraction", "rotary_pct", NULL, BP_HF_REAL, "0.25",
     "partial_rotary_factor|rope_parameters.partial_rotary_factor"},
    BP_HF_ROPE_SCALING,
    {"parallel_residual", "use_parallel_residual", NULL, BP_HF_FLAG, "1"},
    BP_HF_TIED("0"),
    BP_HF_SIZE("vocab_size", "vocab_size", "50432"),
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"hidden_act", "\"gelu\"|\"gelu_python\""}, {"attention_bias", "true"}, {0}};

#define LAYER "layers.*."

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("embed_in.weight", "vocab_size", "width", "wte"),
    BP_HF_LAYER_NORM(LAYER "input_layernorm", "h.*.ln1"),
    BP_HF_LAYER_NORM(LAYER "post_attention_layernorm", "h.*.ln2"),
    BP_HF_HEADS_JOINED(LAYER "attention.query_key_value", "3*heads*head_width"),
    BP_HF_LINEAR(LAYER "attention.dense", "width", "heads*head_width", "h.*.attn.out"),
    BP_HF_LINEAR(LAYER "mlp.dense_h_to_4h", "inner", "width", "h.*.mlp.up"),
    BP_HF_LINEAR(LAYER "mlp.dense_4h_to_h", "width", "inner", "h.*.mlp.down"),
    BP_HF_LAYER_NORM("final_layer_norm", "ln_f"),
    BP_HF_UNTIED("embed_out.weight"),
    {0}};

/* Masks, and the buffers of rotary positions. */
static const char *const BUFFERS[] = {"attention.bias", "attention.masked_bias",
                                      "attention.rotary_emb.inv_freq", NULL},
                         *const HEAD[] = {"embed_out.", NULL};

static const char *const HARMLESS[] = {"attention_dropout",   "classifier_dropout",
                                       "hidden_dropout",      "attention_probs_dropout_prob",
                                       "hidden_dropout_prob", NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t heads = bp_hf_size_of(shape, "heads"), width = bp_hf_size_of(shape, "width"), rotated;
    double fraction = bp_hf_value_of(shape, "rope_fraction");

    if (bp_hf_check_heads(shape, path) != BP_OK)
        return BP_ERR_FORMAT;
    rotated = (int64_t)((double)(width / heads) * fraction);
    if (rotated < 2 || rotated % 2 != 0 || rotated > width / heads)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.bad_rope",
            "\"rotary_pct\" %g turns %lld of the %lld numbers of a head, and not an even "
            "number of 2 or more: at %s",
            fraction, (long long)rotated, (long long)(width / heads), path);
    return bp_rope_hf_check(shape, rotated, path);
}

static const bp_hf_table GPT_NEOX = {
    .kind = "gpt_neox",
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .prefix = "gpt_neox.",
    .first = "embed_in.weight",
    .head = "embed_out.weight",
    .tied = "embed_in.weight",
    .stem = "GPTNeoX",
    .scores = true,
    .tags = "classifier",
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attention_dropout\": 0.0, \"hidden_dropout\": 0.0, \"classifier_dropout\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .derive = bp_rope_hf_derive,
    .check = check,
    .bare = HEAD};

const bp_model_family bp_gpt_neox_family = {
    BP_STACK_DECODER("gpt_neox", STACK, SIZES, KEYS, &GPT_NEOX)};
