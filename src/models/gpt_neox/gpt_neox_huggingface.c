/* GPT-NeoX as Hugging Face folders hold it: every weight [out, in], as ours; the rows of
 * `query_key_value` are q, k and v of one head after the other. */
#include "models/gpt_neox/gpt_neox.h"

#include "models/stack/rotary_huggingface.h"

static const bp_hf_size SIZES[] = {
    {"layers", "num_hidden_layers", NULL, .absent = "44"},
    {"width", "hidden_size", NULL, .absent = "6144"},
    {"heads", "num_attention_heads", NULL, .absent = "64"},
    {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads"},
    {"inner", "intermediate_size", NULL, .absent = "24576"},
    {"context", "max_position_embeddings", NULL, .absent = "2048"},
    {"norm_epsilon", "layer_norm_eps", NULL, BP_HF_REAL, "1e-5"},
    {"rope_theta", "rotary_emb_base", NULL, BP_HF_REAL, "10000",
     "rope_theta|rope_parameters.rope_theta"},
    {"rope_fraction", "rotary_pct", NULL, BP_HF_REAL, "0.25",
     "partial_rotary_factor|rope_parameters.partial_rotary_factor"},
    BP_HF_ROPE_SCALING,
    {"parallel_residual", "use_parallel_residual", NULL, BP_HF_FLAG, "1"},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "0"},
    {"vocab_size", "vocab_size", NULL, .absent = "50432"},
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"hidden_act", "\"gelu\"|\"gelu_python\""}, {"attention_bias", "true"}, {0}};

#define MATRIX(theirs, rows, columns, ours)                                                        \
    {                                                                                              \
        theirs, rows, columns, false, 1,                                                           \
        {                                                                                          \
            ours                                                                                   \
        }                                                                                          \
    }
#define VECTOR(theirs, rows, ours) MATRIX(theirs, rows, NULL, ours)
#define LAYER                      "layers.*."

static const bp_hf_row ROWS[] = {
    MATRIX("embed_in.weight", "vocab_size", "width", "wte"),
    VECTOR(LAYER "input_layernorm.weight", "width", "h.*.ln1.gain"),
    VECTOR(LAYER "input_layernorm.bias", "width", "h.*.ln1.bias"),
    VECTOR(LAYER "post_attention_layernorm.weight", "width", "h.*.ln2.gain"),
    VECTOR(LAYER "post_attention_layernorm.bias", "width", "h.*.ln2.bias"),
    {LAYER "attention.query_key_value.weight",
     "3*heads*head_width",
     "width",
     false,
     3,
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"},
     .blocks = "heads"},
    {LAYER "attention.query_key_value.bias",
     "3*heads*head_width",
     NULL,
     false,
     3,
     {"h.*.attn.q.bias", "h.*.attn.k.bias", "h.*.attn.v.bias"},
     .blocks = "heads"},
    MATRIX(LAYER "attention.dense.weight", "width", "heads*head_width", "h.*.attn.out.weight"),
    VECTOR(LAYER "attention.dense.bias", "width", "h.*.attn.out.bias"),
    MATRIX(LAYER "mlp.dense_h_to_4h.weight", "inner", "width", "h.*.mlp.up.weight"),
    VECTOR(LAYER "mlp.dense_h_to_4h.bias", "inner", "h.*.mlp.up.bias"),
    MATRIX(LAYER "mlp.dense_4h_to_h.weight", "width", "inner", "h.*.mlp.down.weight"),
    VECTOR(LAYER "mlp.dense_4h_to_h.bias", "width", "h.*.mlp.down.bias"),
    VECTOR("final_layer_norm.weight", "width", "ln_f.gain"),
    VECTOR("final_layer_norm.bias", "width", "ln_f.bias"),
    {"embed_out.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
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
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attention_dropout\": 0.0, \"hidden_dropout\": 0.0, \"classifier_dropout\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .derive = bp_rope_hf_derive,
    .check = check,
    .bare = HEAD};

const bp_hf_table *const bp_gpt_neox_huggingface[] = {&GPT_NEOX, NULL};
