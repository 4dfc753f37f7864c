/* MPNet as Hugging Face folders hold it: every weight [out, in], as ours; heads are named as
 * RoBERTa's. */
#include "models/mpnet/mpnet.h"

/* Those of config.json, with the defaults of transformers' class, which counts positions from 2 on
 * whatever its padding is, and puts distances into 32 buckets whatever the table has. */
#define ENCODER_SIZES                                                                              \
    BP_HF_SIZE("layers", "num_hidden_layers", "12"), BP_HF_SIZE("width", "hidden_size", "768"),    \
        BP_HF_SIZE("heads", "num_attention_heads", "12"),                                          \
        BP_HF_SIZE("inner", "intermediate_size", "3072"),                                          \
        BP_HF_SIZE("vocab_size", "vocab_size", "30527"),                                           \
        {"context", "max_position_embeddings", NULL, .plus = "2", .absent = "510"},                \
        {"norm_epsilon", "layer_norm_eps", NULL, BP_HF_REAL, "1e-12"},                             \
        {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},                     \
        {"relative_buckets", NULL, NULL, BP_HF_COUNT, "32"},                                       \
        {"relative_distance", NULL, NULL, BP_HF_COUNT, "128"},                                     \
    {                                                                                              \
        "tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true                        \
    }
static const bp_hf_size
    SIZES[] = {ENCODER_SIZES, {0}},
    VALUE_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("2", "1"), BP_BERT_LABELS, {0}},
    CLASS_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("1", "1"), BP_BERT_LABELS, {0}},
    TAG_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
    SPAN_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

static const bp_hf_setting SETTINGS[] = {
    {"hidden_act", "\"gelu\""}, {"relative_attention_num_buckets", "32"}, {0}};

#define LAYER     "encoder.layer.*."
#define ATTENTION LAYER "attention."
#define ENCODER                                                                                    \
    BP_HF_MATRIX("embeddings.word_embeddings.weight", "vocab_size", "width", "wte"),               \
        BP_HF_MATRIX("embeddings.position_embeddings.weight", "context+2", "width", "wpe"),        \
        BP_HF_LAYER_NORM("embeddings.LayerNorm", "embedding.ln"),                                  \
        BP_HF_LINEAR(ATTENTION "attn.q", "heads*head_width", "width", "h.*.attn.q"),               \
        BP_HF_LINEAR(ATTENTION "attn.k", "heads*head_width", "width", "h.*.attn.k"),               \
        BP_HF_LINEAR(ATTENTION "attn.v", "heads*head_width", "width", "h.*.attn.v"),               \
        BP_HF_LINEAR(ATTENTION "attn.o", "width", "heads*head_width", "h.*.attn.out"),             \
        BP_HF_LAYER_NORM(ATTENTION "LayerNorm", "h.*.ln1"),                                        \
        BP_HF_LINEAR(LAYER "intermediate.dense", "inner", "width", "h.*.mlp.up"),                  \
        BP_HF_LINEAR(LAYER "output.dense", "width", "inner", "h.*.mlp.down"),                      \
        BP_HF_LAYER_NORM(LAYER "output.LayerNorm", "h.*.ln2"),                                     \
        BP_HF_MATRIX("encoder.relative_attention_bias.weight", "relative_buckets", "heads",        \
                     "relative")

static const bp_hf_row
    ROWS[] =
        {ENCODER,
         BP_HF_VECTOR("lm_head.bias", "vocab_size", "head.bias"),
         BP_HF_LINEAR("lm_head.dense", "width", "width", "transform"),
         BP_HF_LAYER_NORM("lm_head.layer_norm", "transform.ln"),
         {"lm_head.decoder.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
         {0}},
    CLASS_ROWS[] = {ENCODER,
                    BP_HF_LINEAR("classifier.dense", "width", "width", "pooler"),
                    BP_HF_LINEAR("classifier.out_proj", "outcomes", "width", "task"),
                    {0}},
    TAG_ROWS[] = {ENCODER, BP_HF_LINEAR("classifier", "outcomes", "width", "task"), {0}},
    SPAN_ROWS[] = {ENCODER, BP_HF_LINEAR("qa_outputs", "2", "width", "task"), {0}};

/* Position numbers. */
static const char *const BUFFERS[] = {"embeddings.position_ids", NULL},
                         *const HARMLESS[] = {"hidden_dropout_prob", "attention_probs_dropout_prob",
                                              "classifier_dropout", NULL},
                         *const HEADS[] = {"lm_head.", "classifier.", "qa_outputs.", NULL};
static const bp_hf_alias ALIASES[] = {{"lm_head.bias", "lm_head.decoder.bias", .computes = true},
                                      {0}};

#define TABLE(class, head_of, sizes_of, rows_of)                                                   \
    {                                                                                              \
        .kind = "mpnet", .model_type = "mpnet", .architecture = "MPNetFor" class,                  \
        .prefix = "mpnet.", .first = "embeddings.word_embeddings.weight", .head = head_of,         \
        .tied = "embeddings.word_embeddings.weight", .sizes = sizes_of, .settings = SETTINGS,      \
        .rows = rows_of, .buffers = BUFFERS, .harmless = HARMLESS,                                 \
        .more = "{\"hidden_dropout_prob\": 0.0, \"attention_probs_dropout_prob\": 0.0,"            \
                " \"torch_dtype\": \"float32\"}",                                                  \
        .check = bp_hf_check_heads, .bare = HEADS, .aliases = ALIASES,                             \
        .members = "{\"separators\": 2}"                                                           \
    }
static const bp_hf_table MASKED = TABLE("MaskedLM", "lm_head.decoder.weight", SIZES, ROWS),
                         VALUE = TABLE("SequenceClassification", NULL, VALUE_SIZES, CLASS_ROWS),
                         CLASS = TABLE("SequenceClassification", NULL, CLASS_SIZES, CLASS_ROWS),
                         TAG = TABLE("TokenClassification", NULL, TAG_SIZES, TAG_ROWS),
                         SPAN_ENDS = TABLE("QuestionAnswering", NULL, SPAN_SIZES, SPAN_ROWS);

const bp_hf_table *const bp_mpnet_huggingface[] = {&MASKED, &VALUE, &CLASS, &TAG, &SPAN_ENDS, NULL};
