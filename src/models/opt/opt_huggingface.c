/* OPT as Hugging Face folders hold it: every weight [out, in], as ours; the table of positions has
 * two extra rows. */
#include "models/opt/opt.h"

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
#define IF(flag, theirs, rows, columns, ours)                                                      \
    {                                                                                              \
        theirs, rows, columns, false, 1, {ours}, .only_if = flag                                   \
    }
#define LAYER "decoder.layers.*."
#define LINEAR(theirs, rows, columns, ours)                                                        \
    MATRIX(LAYER theirs ".weight", rows, columns, "h.*." ours ".weight"),                          \
        VECTOR(LAYER theirs ".bias", rows, "h.*." ours ".bias")
#define NORM(theirs, ours)                                                                         \
    VECTOR(LAYER theirs ".weight", "width", "h.*." ours ".gain"),                                  \
        VECTOR(LAYER theirs ".bias", "width", "h.*." ours ".bias")

static const bp_hf_size SIZES[] = {
    SIZE("layers", "num_hidden_layers", "12"),
    SIZE("width", "hidden_size", "768"),
    SIZE("heads", "num_attention_heads", "12"),
    SIZE("inner", "ffn_dim", "3072"),
    SIZE("context", "max_position_embeddings", "2048"),
    SIZE("vocab_size", "vocab_size", "50272"),
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {"embedding", "word_embed_proj_dim", NULL, BP_HF_COUNT, "width", .null_is = "width",
     .quiet = true},
    {"projected", NULL, NULL, BP_HF_FLAG, "embedding+-1*width", .quiet = true},
    {"norms_first", "do_layer_norm_before", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"activation_function", "\"relu\""},
                                         {"enable_bias", "true"},
                                         {"layer_norm_elementwise_affine", "true"},
                                         {"_remove_final_layer_norm", "false"},
                                         {0}};

static const bp_hf_row ROWS[] = {
    MATRIX("decoder.embed_tokens.weight", "vocab_size", "embedding", "wte"),
    MATRIX("decoder.embed_positions.weight", "context+2", "width", "wpe"),
    IF("projected", "decoder.project_out.weight", "embedding", "width", "transform.weight"),
    IF("projected", "decoder.project_in.weight", "width", "embedding", "embedding.weight"),
    IF("norms_first", "decoder.final_layer_norm.weight", "width", NULL, "ln_f.gain"),
    IF("norms_first", "decoder.final_layer_norm.bias", "width", NULL, "ln_f.bias"),
    LINEAR("self_attn.k_proj", "width", "width", "attn.k"),
    LINEAR("self_attn.v_proj", "width", "width", "attn.v"),
    LINEAR("self_attn.q_proj", "width", "width", "attn.q"),
    LINEAR("self_attn.out_proj", "width", "width", "attn.out"),
    NORM("self_attn_layer_norm", "ln1"),
    LINEAR("fc1", "inner", "width", "mlp.up"),
    LINEAR("fc2", "width", "inner", "mlp.down"),
    NORM("final_layer_norm", "ln2"),
    {"lm_head.weight", "vocab_size", "embedding", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"", NULL}, *const HEAD[] = {"lm_head.", NULL};

static const char *const HARMLESS[] = {"dropout",   "attention_dropout", "activation_dropout",
                                       "layerdrop", "init_std",          NULL};

static const bp_hf_table OPT = {
    .kind = "opt",
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .prefix = "model.",
    .first = "decoder.embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = "decoder.embed_tokens.weight",
    .stem = "OPT",
    .scores = true,
    .pad = "1",
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"dropout\": 0.0, \"attention_dropout\": 0.0, \"layerdrop\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .check = bp_hf_check_heads,
    .bare = HEAD};

const bp_hf_table *const bp_opt_huggingface[] = {&OPT, NULL};
