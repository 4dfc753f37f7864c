/* DeBERTa-v2 and DeBERTaV3 as Hugging Face folders hold them: every weight [out, in], as ours. */
#include "models/deberta/deberta.h"

#include "models/stack/stack_huggingface.h"

#define ENCODER_SIZES                                                                               \
    BP_HF_SIZES_OF("24", "1536", "24", "6144", "512", "128100"),                                    \
        {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},                      \
        BP_HF_NUMBER("norm_epsilon", "layer_norm_eps", "1e-7"),                                     \
        {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},                      \
        {"absolute", "position_biased_input", NULL, BP_HF_FLAG, "1"},                               \
        {"segments", "type_vocab_size", NULL, BP_HF_COUNT, "0", .quiet = true, .or_none = "0"},     \
        {"buckets", "position_buckets", NULL, BP_HF_COUNT, "0", .quiet = true, .or_none = "-1"},    \
        {"distance", "max_relative_positions", NULL, BP_HF_COUNT, "0", .or_none = "-1"},            \
        {"shared", "share_att_key", NULL, BP_HF_FLAG, "0"},                                         \
        {"embedding", "embedding_size", NULL, BP_HF_COUNT, "width", .quiet = true},                 \
        {"projected", NULL, NULL, BP_HF_FLAG, "embedding+-1*width", .quiet = true},                 \
        {"convolution", "conv_kernel_size", NULL, BP_HF_COUNT, "0", .quiet = true, .or_none = "0"}, \
        {"convolution_groups", "conv_groups", NULL, BP_HF_COUNT, "1", .quiet = true},               \
        {"convolution_activation",                                                                  \
         "conv_act",                                                                                \
         NULL,                                                                                      \
         BP_HF_CHOICE,                                                                              \
         "0",                                                                                       \
         .quiet = true,                                                                             \
         .words = BP_DEBERTA_ACTIVATIONS,                                                           \
         .written = BP_DEBERTA_ACTIVATIONS},                                                        \
    {                                                                                               \
        "distance_norm", "norm_rel_ebd", NULL, BP_HF_FLAG, "0", .words = "none|layer_norm"          \
    }
/* Microsoft's own files have the head of words under another name, which transformers reads where
 * "legacy" is false. */
static const bp_hf_size
    SIZES[] = {ENCODER_SIZES,
               {"legacy", "legacy", NULL, BP_HF_FLAG, "1", .quiet = true, .only_theirs = true},
               {0}},
    VALUE_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("2", "1"), BP_BERT_LABELS, {0}},
    CLASS_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("1", "1"), BP_BERT_LABELS, {0}},
    TAG_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
    SPAN_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

/* Both directions of distances; older files have the list as one string, with a bar. */
static const bp_hf_setting SETTINGS[] = {
    {"hidden_act", "\"gelu\""},
    {"pooler_hidden_act", "\"gelu\""},
    {"pooler_hidden_size", "width"},
    {"attention_head_size", "width/heads"},
    {"relative_attention", "true", .absent = "false"},
    {"pos_att_type", "[\"p2c\",\"c2p\"]|[\"c2p\",\"p2c\"]|\"p2c\\u007cc2p\"|\"c2p\\u007cp2c\"",
     .absent = "null"},
    {0}};

static const char *const HARMLESS[] = {"hidden_dropout_prob",
                                       "attention_probs_dropout_prob",
                                       "pooler_dropout",
                                       "cls_dropout",
                                       "legacy",
                                       NULL},
                         *const BUFFERS[] = {"embeddings.position_ids", NULL},
                         *const HEADS[] = {"cls.",        "pooler.",         "classifier.",
                                           "qa_outputs.", "lm_predictions.", "mask_predictions.",
                                           NULL},
                         *const UNREAD[] = {"lm_predictions.", "mask_predictions.", NULL};

#define LAYER     "encoder.layer.*."
#define ATTENTION LAYER "attention."
#define ENCODER                                                                                    \
    BP_HF_MATRIX("embeddings.word_embeddings.weight", "vocab_size", "embedding", "wte"),           \
        BP_HF_IF("absolute", "embeddings.position_embeddings.weight", "context", "embedding",      \
                 "wpe"),                                                                           \
        BP_HF_IF("segments", "embeddings.token_type_embeddings.weight", "segments", "embedding",   \
                 "segments"),                                                                      \
        BP_HF_IF("projected", "embeddings.embed_proj.weight", "width", "embedding",                \
                 "embedding.weight"),                                                              \
        BP_HF_LAYER_NORM("embeddings.LayerNorm", "embedding.ln"),                                  \
        {"encoder.conv.conv.weight",                                                               \
         "width",                                                                                  \
         "convolution",                                                                            \
         false,                                                                                    \
         1,                                                                                        \
         {"conv.weight"},                                                                          \
         .only_if = "convolution",                                                                 \
         .middle = "width/convolution_groups"},                                                    \
        BP_HF_IF("convolution", "encoder.conv.conv.bias", "width", NULL, "conv.bias"),             \
        BP_HF_IF("convolution", "encoder.conv.LayerNorm.weight", "width", NULL, "conv.ln.gain"),   \
        BP_HF_IF("convolution", "encoder.conv.LayerNorm.bias", "width", NULL, "conv.ln.bias"),     \
        BP_HF_IF("buckets", "encoder.rel_embeddings.weight", "2*buckets", "width", "distances"),   \
        BP_HF_IF("!buckets", "encoder.rel_embeddings.weight", "2*distance", "width", "distances"), \
        BP_HF_IF("distance_norm", "encoder.LayerNorm.weight", "width", NULL, "distances.ln.gain"), \
        BP_HF_IF("distance_norm", "encoder.LayerNorm.bias", "width", NULL, "distances.ln.bias"),   \
        BP_HF_LINEAR(ATTENTION "self.query_proj", "width", "width", "h.*.attn.q"),                 \
        BP_HF_LINEAR(ATTENTION "self.key_proj", "width", "width", "h.*.attn.k"),                   \
        BP_HF_LINEAR(ATTENTION "self.value_proj", "width", "width", "h.*.attn.v"),                 \
        BP_HF_IF("!shared", ATTENTION "self.pos_key_proj.weight", "width", "width",                \
                 "h.*.attn.position.k.weight"),                                                    \
        BP_HF_IF("!shared", ATTENTION "self.pos_key_proj.bias", "width", NULL,                     \
                 "h.*.attn.position.k.bias"),                                                      \
        BP_HF_IF("!shared", ATTENTION "self.pos_query_proj.weight", "width", "width",              \
                 "h.*.attn.position.q.weight"),                                                    \
        BP_HF_IF("!shared", ATTENTION "self.pos_query_proj.bias", "width", NULL,                   \
                 "h.*.attn.position.q.bias"),                                                      \
        BP_HF_LINEAR(ATTENTION "output.dense", "width", "width", "h.*.attn.out"),                  \
        BP_HF_LAYER_NORM(ATTENTION "output.LayerNorm", "h.*.ln1"),                                 \
        BP_HF_LINEAR(LAYER "intermediate.dense", "inner", "width", "h.*.mlp.up"),                  \
        BP_HF_LINEAR(LAYER "output.dense", "width", "inner", "h.*.mlp.down"),                      \
        BP_HF_LAYER_NORM(LAYER "output.LayerNorm", "h.*.ln2")

#define WORDS(flag, bias, transform)                                                               \
    BP_HF_IF(flag, bias, "vocab_size", NULL, "head.bias"),                                         \
        BP_HF_IF(flag, transform "dense.weight", "embedding", "width", "transform.weight"),        \
        BP_HF_IF(flag, transform "dense.bias", "embedding", NULL, "transform.bias"),               \
        BP_HF_IF(flag, transform "LayerNorm.weight", "embedding", NULL, "transform.ln.gain"),      \
        BP_HF_IF(flag, transform "LayerNorm.bias", "embedding", NULL, "transform.ln.bias")
static const bp_hf_row
    ROWS[] = {ENCODER,
              WORDS("legacy", "cls.predictions.bias", "cls.predictions.transform."),
              WORDS("!legacy", "lm_predictions.lm_head.bias", "lm_predictions.lm_head."),
              BP_HF_IF("!tied", "cls.predictions.decoder.weight", "vocab_size", "embedding",
                       "head"),
              {0}},
    CLASS_ROWS[] = {ENCODER,
                    BP_HF_LINEAR("pooler.dense", "width", "width", "pooler"),
                    BP_HF_LINEAR("classifier", "outcomes", "width", "task"),
                    {0}},
    TAG_ROWS[] = {ENCODER, BP_HF_LINEAR("classifier", "outcomes", "width", "task"), {0}},
    SPAN_ROWS[] = {ENCODER, BP_HF_LINEAR("qa_outputs", "2", "width", "task"), {0}};

#define MORE                                                                                       \
    "{\"hidden_dropout_prob\": 0.0, \"attention_probs_dropout_prob\": 0.0,"                        \
    " \"pooler_dropout\": 0, \"pos_att_type\": [\"p2c\", \"c2p\"], \"torch_dtype\": \"float32\"}"

static int64_t distance_of(const bp_hf_shape *shape)
{
    int64_t distance = bp_hf_size_of(shape, "distance");

    return distance > 0 ? distance : bp_hf_size_of(shape, "context");
}

static void fill(bp_hf_shape *shape, bool written)
{
    (void)written;
    bp_hf_set_size(shape, "distance", (double)distance_of(shape));
    if (bp_hf_size_of(shape, "convolution") == 0) {
        bp_hf_set_size(shape, "convolution_groups", 1);
        bp_hf_set_size(shape, "convolution_activation", 0);
    }
}

/* Its result is as long as the text only if both sides are padded equally. */
static bp_err check_convolution(const bp_hf_shape *shape, const char *path)
{
    int64_t taps = bp_hf_size_of(shape, "convolution");

    if (taps > 0 && taps % 2 == 0)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                       "\"conv_kernel_size\" is %lld, and an odd number is possible: at %s",
                       (long long)taps, path);
    return bp_hf_check_divides(shape, "convolution_groups", "width", path);
}

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t buckets = bp_hf_size_of(shape, "buckets");
    bp_err err = bp_hf_check_heads(shape, path);

    if (err == BP_OK)
        err = check_convolution(shape, path);
    if (err == BP_OK && buckets > 0 && (buckets % 2 != 0 || distance_of(shape) <= buckets / 2 + 1))
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                      "\"position_buckets\" is %lld, and \"max_relative_positions\" %lld: an even "
                      "number with a half below the other one - 1 is possible: at %s",
                      (long long)buckets, (long long)distance_of(shape), path);
    if (err == BP_OK && bp_hf_size_of(shape, "segments") > 0 && !bp_hf_size_of(shape, "absolute"))
        err =
            BP_FAIL(BP_ERR_FORMAT, "huggingface.unsupported",
                    "\"type_vocab_size\" is %lld, and \"position_biased_input\" false; this "
                    "program's %s knows segments only beside positions: at %s; give another model",
                    (long long)bp_hf_size_of(shape, "segments"), shape->table->kind, path);
    return err;
}

static const bp_hf_alias ALIASES[] = {
    {"cls.predictions.bias", "cls.predictions.decoder.bias", .computes = true}, {0}};

#define TABLE(class, head_of, sizes_of, rows_of)                                                   \
    {                                                                                              \
        .kind = "deberta", .model_type = "deberta-v2", .architecture = "DebertaV2For" class,       \
        .prefix = "deberta.", .first = "embeddings.word_embeddings.weight", .head = head_of,       \
        .tied = "embeddings.word_embeddings.weight", .sizes = sizes_of, .settings = SETTINGS,      \
        .rows = rows_of, .buffers = BUFFERS, .harmless = HARMLESS, .more = MORE, .derive = fill,   \
        .check = check, .bare = HEADS, .unread = UNREAD, .aliases = ALIASES                        \
    }
static const bp_hf_table MASKED = TABLE("MaskedLM", "cls.predictions.decoder.weight", SIZES, ROWS),
                         VALUE = TABLE("SequenceClassification", NULL, VALUE_SIZES, CLASS_ROWS),
                         CLASS = TABLE("SequenceClassification", NULL, CLASS_SIZES, CLASS_ROWS),
                         TAG = TABLE("TokenClassification", NULL, TAG_SIZES, TAG_ROWS),
                         SPAN_ENDS = TABLE("QuestionAnswering", NULL, SPAN_SIZES, SPAN_ROWS);

const bp_hf_table *const bp_deberta_huggingface[] = {&MASKED, &VALUE,     &CLASS,
                                                     &TAG,    &SPAN_ENDS, NULL};
