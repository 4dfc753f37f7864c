/* T5, versions 1.0 and 1.1, mT5, and umT5 (whose layers have a table of distances each), as folders
 * of Hugging Face's form hold them. transformers 5 marks words as tied also for models whose files
 * have a separate head; the flag then only tells whether states are scaled. Called by t5.c. */
#include "models/bert/bert.h"
#include "models/seq2seq/seq2seq.h"

/* Tables of distances: of a stack, or of each layer. */
#define SHARED_TABLE                                                                               \
    {                                                                                              \
        "relative_layers", NULL, NULL, BP_HF_FLAG, "0", .quiet = true                              \
    }
#define OWN_TABLES                                                                                 \
    {                                                                                              \
        "relative_layers", NULL, NULL, BP_HF_FLAG, "1"                                             \
    }
/* Those of config.json, with the defaults of transformers' classes; the last three of a whole model
 * are only for the rows. */
#define STACK_SIZES(L, H, I, V, gates, number, tables)                                             \
    {"width", "d_model", NULL, .older = "hidden_size", .absent = "512"},                           \
        {number, "num_layers", NULL, .older = "num_hidden_layers", .absent = L},                   \
        {"heads", "num_heads", NULL, .older = "num_attention_heads", .absent = H},                 \
        {"head_width",        "d_kv",        NULL, BP_HF_COUNT, "width/heads",                     \
         .older = "head_dim", .absent = "64"},                                                     \
        BP_HF_SIZE("inner", "d_ff", I), BP_HF_SIZE("vocab_size", "vocab_size", V),                 \
        {"context", "n_positions", NULL, BP_HF_COUNT, "512", .null_is = "512"},                    \
        {"relative_buckets", "relative_attention_num_buckets", NULL, BP_HF_COUNT, "32"},           \
        {"relative_distance", "relative_attention_max_distance", NULL, BP_HF_COUNT, "128"},        \
        tables, {"gated",         "feed_forward_proj",       NULL, BP_HF_FLAG, "0",                \
                 .absent = gates, .words = "relu|gated-gelu"},                                     \
    {                                                                                              \
        "norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-6"                             \
    }
#define T5_STACK(number)   STACK_SIZES("6", "8", "2048", "32128", "0", number, SHARED_TABLE)
#define MT5_STACK(number)  STACK_SIZES("8", "6", "1024", "250112", "1", number, SHARED_TABLE)
#define UMT5_STACK(number) STACK_SIZES("8", "6", "1024", "250112", "1", number, OWN_TABLES)
#define COMMON_SIZES(stack, ties, classes, spans, untied)                                          \
    stack("encoder_layers"),                                                                       \
        {"decoder_layers", "num_decoder_layers", NULL,                                             \
         BP_HF_COUNT,      "encoder_layers",     .null_is = "encoder_layers"},                     \
        {"layers", NULL, NULL, BP_HF_COUNT, "decoder_layers"},                                     \
        {"start_token", "decoder_start_token_id", NULL, BP_HF_COUNT, "1", .plus = "-1",            \
         .null_is = "1"},                                                                          \
        {"ties", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .only_theirs = true},               \
        {"tied", "scale_decoder_outputs", NULL, BP_HF_FLAG, "1", .absent = ties},                  \
        {"classifies", NULL, NULL, BP_HF_FLAG, classes, .quiet = true},                            \
        {"finds_spans", NULL, NULL, BP_HF_FLAG, spans, .quiet = true},                             \
    {                                                                                              \
        "has_head", NULL, NULL, BP_HF_FLAG, untied, .quiet = true                                  \
    }
#define T5_SIZES(classes, spans, untied)   COMMON_SIZES(T5_STACK, "ties", classes, spans, untied)
#define MT5_SIZES(classes, spans, untied)  COMMON_SIZES(MT5_STACK, "0", classes, spans, untied)
#define UMT5_SIZES(classes, spans, untied) COMMON_SIZES(UMT5_STACK, "ties", classes, spans, untied)
#define ALL_SIZES(name, sizes)                                                                     \
    name[] = {sizes("0", "0", "1+-1*tied"), {0}},                                                  \
    name##_OF_VALUE[] = {sizes("1", "0", "0"), BP_SEQ2SEQ_TASK("2", "2"), {0}},                    \
    name##_OF_CLASSES[] = {sizes("1", "0", "0"), BP_SEQ2SEQ_TASK("1", "2"), {0}},                  \
    name##_OF_SPANS[] = {sizes("0", "1", "0"), BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}}
static const bp_hf_size ALL_SIZES(SIZES, T5_SIZES), ALL_SIZES(LATER_SIZES, MT5_SIZES),
    ALL_SIZES(LAYERED_SIZES, UMT5_SIZES);
#define ENCODER_SIZES(name, stack)                                                                 \
    name[] = {stack("layers"), {0}},                                                               \
    name##_OF_TAGS[] = {stack("layers"), BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}}
static const bp_hf_size ENCODER_SIZES(ENCODERS, T5_STACK), ENCODER_SIZES(LATER_ENCODERS, MT5_STACK),
    ENCODER_SIZES(LAYERED_ENCODERS, UMT5_STACK);

#define MLP_SETTINGS                                                                               \
    {"is_gated_act", "true", "gated"}, {"is_gated_act", "false", "!gated"},                        \
        {"dense_act_fn", "\"gelu_new\"", "gated"},                                                 \
    {                                                                                              \
        "dense_act_fn", "\"relu\"", "!gated"                                                       \
    }
static const bp_hf_setting SETTINGS[] = {{"is_encoder_decoder", "true"},
                                         {"tie_word_embeddings", "true", "tied"},
                                         {"tie_word_embeddings", "false|true", "!tied"},
                                         MLP_SETTINGS,
                                         {0}},
                           ENCODER_SETTINGS[] = {
                               {"is_encoder_decoder", "false|true"}, MLP_SETTINGS, {0}};

#define MATRIX(theirs, rows, columns, ours)                                                        \
    {                                                                                              \
        theirs ".weight", rows, columns, false, 1, {ours}, .layers = LAYERS                        \
    }
#define NORM(theirs, ours)                                                                         \
    {                                                                                              \
        theirs ".weight", "width", NULL, false, 1, {ours ".gain"}, .layers = LAYERS                \
    }
#define ATTENTION(theirs, ours)                                                                    \
    MATRIX(theirs ".q", "heads*head_width", "width", ours ".q.weight"),                            \
        MATRIX(theirs ".k", "heads*head_width", "width", ours ".k.weight"),                        \
        MATRIX(theirs ".v", "heads*head_width", "width", ours ".v.weight"),                        \
        MATRIX(theirs ".o", "width", "heads*head_width", ours ".out.weight")
#define DISTANCES(stack, ours, ...)                                                                \
    {                                                                                              \
        stack ".block.*.layer.0.SelfAttention.relative_attention_bias.weight", "relative_buckets", \
            "heads", false, 1, {ours}, .layers = LAYERS, __VA_ARGS__                               \
    }
#define RELATIVE(stack, ours, own)                                                                 \
    DISTANCES(stack, ours, .only_first = true, .only_if = "!relative_layers"),                     \
        DISTANCES(stack, own ".relative", .only_if = "relative_layers")
#define GATED_MLP(theirs, ours)                                                                    \
    {theirs ".wi.weight", "inner",         "width", false, 1, {ours ".up.weight"},                 \
     .only_if = "!gated", .layers = LAYERS},                                                       \
        {theirs ".wi_0.weight", "inner",         "width", false, 1, {ours ".gate.weight"},         \
         .only_if = "gated",    .layers = LAYERS},                                                 \
        {theirs ".wi_1.weight", "inner",         "width", false, 1, {ours ".up.weight"},           \
         .only_if = "gated",    .layers = LAYERS},                                                 \
        MATRIX(theirs ".wo", "width", "inner", ours ".down.weight")

#define ENCODER(ours, relative)                                                                    \
    ATTENTION("encoder.block.*.layer.0.SelfAttention", ours ".attn"),                              \
        RELATIVE("encoder", relative, ours ".attn"),                                               \
        NORM("encoder.block.*.layer.0.layer_norm", ours ".ln1"),                                   \
        GATED_MLP("encoder.block.*.layer.1.DenseReluDense", ours ".mlp"),                          \
        NORM("encoder.block.*.layer.1.layer_norm", ours ".ln2")

static const bp_hf_row ROWS[] = {
#define LAYERS NULL
    MATRIX("shared", "vocab_size", "width", "wte"),
#undef LAYERS
#define LAYERS "encoder_layers"
    ENCODER("encoder.*", "encoder.relative"),
#undef LAYERS
#define LAYERS NULL
    NORM("encoder.final_layer_norm", "encoder.ln"),
#undef LAYERS
#define LAYERS "decoder_layers"
    ATTENTION("decoder.block.*.layer.0.SelfAttention", "decoder.*.attn"),
    RELATIVE("decoder", "decoder.relative", "decoder.*.attn"),
    NORM("decoder.block.*.layer.0.layer_norm", "decoder.*.ln1"),
    ATTENTION("decoder.block.*.layer.1.EncDecAttention", "decoder.*.cross"),
    NORM("decoder.block.*.layer.1.layer_norm", "decoder.*.cross.ln"),
    GATED_MLP("decoder.block.*.layer.2.DenseReluDense", "decoder.*.mlp"),
    NORM("decoder.block.*.layer.2.layer_norm", "decoder.*.ln2"),
#undef LAYERS
#define LAYERS NULL
    NORM("decoder.final_layer_norm", "decoder.ln"),
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "has_head"},
#undef LAYERS
    BP_SEQ2SEQ_HEAD_ROWS,
    {0}};

#define LAYERS NULL
#define STACK                                                                                      \
    MATRIX("shared", "vocab_size", "width", "wte"), ENCODER("h.*", "relative"),                    \
        NORM("encoder.final_layer_norm", "ln_f")
static const bp_hf_row ENCODER_ROWS[] = {STACK, {0}},
                       TAG_ROWS[] = {STACK,
                                     MATRIX("classifier", "outcomes", "width", "task.weight"),
                                     {"classifier.bias", "outcomes", NULL, false, 1, {"task.bias"}},
                                     {0}};

/* Tensors of the first T5s' files that their programs ignore; and copies of the table of words. */
static const char *const
    BUFFERS[] = {"layer.1.EncDecAttention.relative_attention_bias.weight", NULL},
    *const TWINS[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", NULL},
    *const OLDER[] = {"T5WithLMHeadModel", NULL}, *const BARE[] = {"classification_head.", NULL},
    *const HEAD[] = {"lm_head.", NULL},
    *const HARMLESS[] = {"dropout_rate", "classifier_dropout", "initializer_factor",
                         "scalable_attention", NULL},
    *const OUTCOMES[] = {"classifier.", NULL},
    *const DECODERS[] = {"dropout_rate",          "classifier_dropout",     "initializer_factor",
                         "num_decoder_layers",    "decoder_start_token_id", "tie_word_embeddings",
                         "scale_decoder_outputs", "scalable_attention",     NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t buckets = bp_hf_size_of(shape, "relative_buckets"),
            distance = bp_hf_size_of(shape, "relative_distance");

    if (buckets < 4 || buckets % 2 != 0 || distance <= buckets / 2)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_buckets",
                       "\"relative_attention_num_buckets\" %lld and "
                       "\"relative_attention_max_distance\" %lld do not go together: at %s",
                       (long long)buckets, (long long)distance, path);
    return BP_OK;
}

#define TABLE(type, class, others, before, sizes_of, bare_of)                                      \
    {                                                                                              \
        .kind = "t5", .model_type = type, .architecture = class, .prefix = before,                 \
        .first = "shared.weight", .head = "lm_head.weight", .tied = "shared.weight",               \
        .sizes = sizes_of, .settings = SETTINGS, .rows = ROWS, .buffers = BUFFERS,                 \
        .harmless = HARMLESS,                                                                      \
        .more = "{\"dropout_rate\": 0.0, \"pad_token_id\": 0, \"torch_dtype\": \"float32\", "      \
                "\"use_cache\": true}",                                                            \
        .check = check, .bare = bare_of, .twins = TWINS, .classes = others                         \
    }
#define TABLES(name, type, class, sizes)                                                           \
    name = TABLE(type, class "ForConditionalGeneration", OLDER, "", sizes, HEAD),                  \
    name##_OF_VALUE = TABLE(type, class "ForSequenceClassification", NULL, "transformer.",         \
                            sizes##_OF_VALUE, BARE),                                               \
    name##_OF_CLASSES = TABLE(type, class "ForSequenceClassification", NULL, "transformer.",       \
                              sizes##_OF_CLASSES, BARE),                                           \
    name##_OF_SPANS = TABLE(type, class "ForQuestionAnswering", NULL, "", sizes##_OF_SPANS, NULL)

static const bp_hf_table TABLES(T5, "t5", "T5", SIZES), TABLES(MT5, "mt5", "MT5", LATER_SIZES),
    TABLES(UMT5, "umt5", "UMT5", LAYERED_SIZES);

/* The first ones are used for export. */
const bp_hf_table *const bp_t5_huggingface[] = {
    &T5,   &T5_OF_VALUE,   &T5_OF_CLASSES,   &T5_OF_SPANS,
    &MT5,  &MT5_OF_VALUE,  &MT5_OF_CLASSES,  &MT5_OF_SPANS,
    &UMT5, &UMT5_OF_VALUE, &UMT5_OF_CLASSES, &UMT5_OF_SPANS,
    NULL};

/* The encoder alone, and with the head of tokens; a file may hold the whole model. */
static const char *const ENCODER_BUFFERS[] = {"decoder.embed_tokens.weight", NULL},
                         *const ENCODER_TWINS[] = {"encoder.embed_tokens.weight", NULL};

#define ENCODER_TABLE(type, class, before, sizes_of, rows_of, ...)                                 \
    {                                                                                              \
        .kind = "t5_encoder", .model_type = type, .architecture = class, .prefix = before,         \
        .first = "shared.weight", .tied = "shared.weight", .sizes = sizes_of,                      \
        .settings = ENCODER_SETTINGS, .rows = rows_of, .buffers = ENCODER_BUFFERS,                 \
        .harmless = DECODERS,                                                                      \
        .more = "{\"dropout_rate\": 0.0, \"pad_token_id\": 0, \"torch_dtype\": \"float32\"}",      \
        .check = check, .twins = ENCODER_TWINS, __VA_ARGS__                                        \
    }
#define ENCODER_TABLES(name, type, class, sizes)                                                   \
    name = ENCODER_TABLE(type, class "EncoderModel", "", sizes, ENCODER_ROWS,                      \
                         .stem = class "Encoder", .headless = true),                               \
    name##_OF_TAGS = ENCODER_TABLE(type, class "ForTokenClassification", "transformer.",           \
                                   sizes##_OF_TAGS, TAG_ROWS, .bare = OUTCOMES)

static const bp_hf_table ENCODER_TABLES(T5_ENCODER, "t5", "T5", ENCODERS),
    ENCODER_TABLES(MT5_ENCODER, "mt5", "MT5", LATER_ENCODERS),
    ENCODER_TABLES(UMT5_ENCODER, "umt5", "UMT5", LAYERED_ENCODERS);

const bp_hf_table *const bp_t5_encoder_huggingface[] = {
    &T5_ENCODER,   &T5_ENCODER_OF_TAGS,   &MT5_ENCODER, &MT5_ENCODER_OF_TAGS,
    &UMT5_ENCODER, &UMT5_ENCODER_OF_TAGS, NULL};
