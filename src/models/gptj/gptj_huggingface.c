/* GPT-J as Hugging Face folders hold it: every weight [out, in], as ours; the two numbers of a
 * rotated pair are adjacent there. */
#include "models/gptj/gptj.h"

#define SIZE(ours, theirs, is)                                                                     \
    {                                                                                              \
        ours, theirs, NULL, .absent = is                                                           \
    }
#define MATRIX(theirs, rows, columns, ours)                                                        \
    {                                                                                              \
        theirs, rows, columns, false, 1,                                                           \
        {                                                                                          \
            ours                                                                                   \
        }                                                                                          \
    }
#define VECTOR(theirs, rows, ours) MATRIX(theirs, rows, NULL, ours)
#define TURNED(theirs, ours)                                                                       \
    {                                                                                              \
        "h.*.attn." theirs ".weight", "width", "width", false, 1, {"h.*.attn." ours ".weight"},    \
            .pairs = "rope_width", .head = "width/heads"                                           \
    }

static const bp_hf_size SIZES[] = {
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = "28"},
    {"width", "n_embd", NULL, .older = "hidden_size", .absent = "4096"},
    {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = "16"},
    {"context", "n_positions", "n_ctx", .older = "max_position_embeddings", .absent = "2048"},
    SIZE("vocab_size", "vocab_size", "50400"),
    {"inner", "n_inner", NULL, BP_HF_COUNT, "4*width", .null_is = "4*width"},
    {"rope_width", "rotary_dim", NULL, BP_HF_COUNT, "width/heads", .absent = "64"},
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5"},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "0"},
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {"scale_attn_weights", "true"},
    {"rotary", "true"},
    {0}};

static const bp_hf_row ROWS[] = {
    MATRIX("wte.weight", "vocab_size", "width", "wte"),
    VECTOR("h.*.ln_1.weight", "width", "h.*.ln1.gain"),
    VECTOR("h.*.ln_1.bias", "width", "h.*.ln1.bias"),
    TURNED("k_proj", "k"),
    MATRIX("h.*.attn.v_proj.weight", "width", "width", "h.*.attn.v.weight"),
    TURNED("q_proj", "q"),
    MATRIX("h.*.attn.out_proj.weight", "width", "width", "h.*.attn.out.weight"),
    MATRIX("h.*.mlp.fc_in.weight", "inner", "width", "h.*.mlp.up.weight"),
    VECTOR("h.*.mlp.fc_in.bias", "inner", "h.*.mlp.up.bias"),
    MATRIX("h.*.mlp.fc_out.weight", "width", "inner", "h.*.mlp.down.weight"),
    VECTOR("h.*.mlp.fc_out.bias", "width", "h.*.mlp.down.bias"),
    VECTOR("ln_f.weight", "width", "ln_f.gain"),
    VECTOR("ln_f.bias", "width", "ln_f.bias"),
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    VECTOR("lm_head.bias", "vocab_size", "head.bias"),
    {0}};

/* Masks, and tables of positions. */
static const char *const BUFFERS[] = {"attn.bias", "attn.masked_bias", "attn.embed_positions",
                                      NULL},
                         *const HEAD[] = {"lm_head.", NULL};

static const char *const HARMLESS[] = {"attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t heads = bp_hf_size_of(shape, "heads"), width = bp_hf_size_of(shape, "width"),
            turned = bp_hf_size_of(shape, "rope_width");

    if (bp_hf_check_heads(shape, path) != BP_OK)
        return BP_ERR_FORMAT;
    if (turned % 2 != 0 || turned > width / heads)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.bad_rope",
            "\"rotary_dim\" is %lld, and not an even number up to the %lld of a head: at %s",
            (long long)turned, (long long)(width / heads), path);
    return BP_OK;
}

static const bp_hf_table GPTJ = {
    .kind = "gptj",
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .prefix = "transformer.",
    .first = "wte.weight",
    .head = "lm_head.weight",
    .tied = "wte.weight",
    .stem = "GPTJ",
    .scores = true,
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .check = check,
    .bare = HEAD};

const bp_hf_table *const bp_gptj_huggingface[] = {&GPTJ, NULL};
