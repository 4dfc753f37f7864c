/* BLOOM as Hugging Face folders hold it: every weight [out, in], as ours; the rows of
 * `query_key_value` are q, k and v of one head after the other. */
#include "models/bloom/bloom.h"

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
#define LAYER                      "h.*."
#define LINEAR(theirs, rows, columns, ours)                                                        \
    MATRIX(LAYER theirs ".weight", rows, columns, "h.*." ours ".weight"),                          \
        VECTOR(LAYER theirs ".bias", rows, "h.*." ours ".bias")
#define NORM(theirs, ours)                                                                         \
    VECTOR(theirs ".weight", "width", ours ".gain"), VECTOR(theirs ".bias", "width", ours ".bias")

/* Positions have no parameters: files have the length of training texts, if anything. */
static const bp_hf_size SIZES[] = {
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = "2"},
    {"width", "hidden_size", NULL, .older = "n_embed", .absent = "64"},
    {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = "8"},
    SIZE("context", "seq_length", "2048"),
    SIZE("vocab_size", "vocab_size", "250880"),
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5"},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"apply_residual_connection_post_layernorm", "false"},
                                         {0}};

static const bp_hf_row ROWS[] = {
    MATRIX("word_embeddings.weight", "vocab_size", "width", "wte"),
    NORM("word_embeddings_layernorm", "embedding.ln"),
    NORM(LAYER "input_layernorm", "h.*.ln1"),
    {LAYER "self_attention.query_key_value.weight",
     "3*width",
     "width",
     false,
     3,
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"},
     .blocks = "heads"},
    {LAYER "self_attention.query_key_value.bias",
     "3*width",
     NULL,
     false,
     3,
     {"h.*.attn.q.bias", "h.*.attn.k.bias", "h.*.attn.v.bias"},
     .blocks = "heads"},
    LINEAR("self_attention.dense", "width", "width", "attn.out"),
    NORM(LAYER "post_attention_layernorm", "h.*.ln2"),
    LINEAR("mlp.dense_h_to_4h", "4*width", "width", "mlp.up"),
    LINEAR("mlp.dense_4h_to_h", "width", "4*width", "mlp.down"),
    NORM("ln_f", "ln_f"),
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"", NULL}, *const HEAD[] = {"lm_head.", NULL};

/* How training partitioned and rounded its matrix products. */
static const char *const HARMLESS[] = {
    "hidden_dropout", "attention_dropout",     "pretraining_tp",
    "slow_but_exact", "masked_softmax_fusion", "bias_dropout_fusion",
    "skip_bias_add",  "skip_bias_add_qkv",     "attention_softmax_in_fp32",
    "unk_token_id",   "offset_alibi",          NULL};

static const bp_hf_table BLOOM = {
    .kind = "bloom",
    .model_type = "bloom",
    .architecture = "BloomForCausalLM",
    .prefix = "transformer.",
    .first = "word_embeddings.weight",
    .head = "lm_head.weight",
    .tied = "word_embeddings.weight",
    .stem = "Bloom",
    .scores = true,
    .tags = "classifier",
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"hidden_dropout\": 0.0, \"attention_dropout\": 0.0, \"torch_dtype\": \"float32\","
            " \"use_cache\": true}",
    .check = bp_hf_check_heads,
    .bare = HEAD};

const bp_hf_table *const bp_bloom_huggingface[] = {&BLOOM, NULL};
