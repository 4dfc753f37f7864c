/* BERT and RoBERTa as Hugging Face folders hold them: every weight [out, in], as ours. Models that
 * were made only for masked words have neither pooler nor a head of next sentences; BERT's own have
 * both, with any class in their config.json. */
#include "models/bert/bert.h"

/* Those of config.json, with the defaults of transformers' class. */
#define ENCODER_SIZES(words)                                                                       \
    BP_HF_SIZE("layers", "num_hidden_layers", "12"), BP_HF_SIZE("width", "hidden_size", "768"),    \
        BP_HF_SIZE("heads", "num_attention_heads", "12"),                                          \
        BP_HF_SIZE("inner", "intermediate_size", "3072"),                                          \
        BP_HF_SIZE("segments", "type_vocab_size", "2"),                                            \
        BP_HF_SIZE("vocab_size", "vocab_size", words),                                             \
        {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},                     \
    {                                                                                              \
        "tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true                        \
    }

#define BERT_SIZES                                                                                 \
    ENCODER_SIZES("30522"), BP_HF_SIZE("context", "max_position_embeddings", "512"),               \
    {                                                                                              \
        "norm_epsilon", "layer_norm_eps", NULL, BP_HF_REAL, "1e-12"                                \
    }
#define ROBERTA_ENCODER_SIZES(words)                                                               \
    ENCODER_SIZES(words),                                                                          \
        {"first_position", "pad_token_id", NULL, BP_HF_COUNT, "2", .plus = "-1"},                  \
        {"context", "max_position_embeddings", NULL, .plus = "first_position",                     \
         .absent = "512+-1*first_position"},                                                       \
    {                                                                                              \
        "norm_epsilon", "layer_norm_eps", NULL, BP_HF_REAL, "1e-12"                                \
    }

static const bp_hf_size PRETRAINING_SIZES[] = {BERT_SIZES,
                                               {"pooler", NULL, NULL, BP_HF_FLAG, "1"},
                                               {0}},
                        MASKED_SIZES[] = {BERT_SIZES, {"pooler", NULL, NULL, BP_HF_FLAG, "0"}, {0}};

/* Models with a task's head. */
static const bp_hf_size VALUE_SIZES[] = {BERT_SIZES, BP_BERT_TASK("2", "1"), BP_BERT_LABELS, {0}},
                        CLASS_SIZES[] = {BERT_SIZES, BP_BERT_TASK("1", "1"), BP_BERT_LABELS, {0}},
                        TAG_SIZES[] = {BERT_SIZES, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
                        SPAN_SIZES[] = {BERT_SIZES, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

static const bp_hf_setting SETTINGS[] = {{"hidden_act", "\"gelu\""},
                                         {"position_embedding_type", "\"absolute\""},
                                         {"is_decoder", "false"},
                                         {0}};

#define LAYER     "encoder.layer.*."
#define ATTENTION LAYER "attention."
#define ENCODER(positions)                                                                         \
    BP_HF_MATRIX("embeddings.word_embeddings.weight", "vocab_size", "width", "wte"),               \
        BP_HF_MATRIX("embeddings.position_embeddings.weight", positions, "width", "wpe"),          \
        BP_HF_MATRIX("embeddings.token_type_embeddings.weight", "segments", "width", "segments"),  \
        BP_HF_LAYER_NORM("embeddings.LayerNorm", "embedding.ln"),                                  \
        BP_HF_LINEAR(ATTENTION "self.query", "heads*head_width", "width", "h.*.attn.q"),           \
        BP_HF_LINEAR(ATTENTION "self.key", "heads*head_width", "width", "h.*.attn.k"),             \
        BP_HF_LINEAR(ATTENTION "self.value", "heads*head_width", "width", "h.*.attn.v"),           \
        BP_HF_LINEAR(ATTENTION "output.dense", "width", "heads*head_width", "h.*.attn.out"),       \
        BP_HF_LAYER_NORM(ATTENTION "output.LayerNorm", "h.*.ln1"),                                 \
        BP_HF_LINEAR(LAYER "intermediate.dense", "inner", "width", "h.*.mlp.up"),                  \
        BP_HF_LINEAR(LAYER "output.dense", "width", "inner", "h.*.mlp.down"),                      \
        BP_HF_LAYER_NORM(LAYER "output.LayerNorm", "h.*.ln2")
#define BERT_HEAD                                                                                  \
    BP_HF_VECTOR("cls.predictions.bias", "vocab_size", "head.bias"),                               \
        BP_HF_LINEAR("cls.predictions.transform.dense", "width", "width", "transform"),            \
        BP_HF_LAYER_NORM("cls.predictions.transform.LayerNorm", "transform.ln"),                   \
        BP_HF_UNTIED("cls.predictions.decoder.weight")

static const bp_hf_row PRETRAINING_ROWS[] = {ENCODER("context"),
                                             BP_HF_LINEAR("pooler.dense", "width", "width",
                                                          "pooler"),
                                             BERT_HEAD,
                                             BP_HF_LINEAR("cls.seq_relationship", "2", "width",
                                                          "class"),
                                             {0}},
                       MASKED_ROWS[] = {ENCODER("context"), BERT_HEAD, {0}},
                       ROBERTA_ROWS[] = {
                           ENCODER("context+first_position"),
                           BP_HF_VECTOR("lm_head.bias", "vocab_size", "head.bias"),
                           BP_HF_LINEAR("lm_head.dense", "width", "width", "transform"),
                           BP_HF_LAYER_NORM("lm_head.layer_norm", "transform.ln"),
                           BP_HF_UNTIED("lm_head.decoder.weight"),
                           {0}};

#define POOLED  BP_HF_LINEAR("pooler.dense", "width", "width", "pooler")
#define OUTCOME BP_HF_LINEAR("classifier", "outcomes", "width", "task")
#define SPAN    BP_HF_LINEAR("qa_outputs", "2", "width", "task")
static const bp_hf_row CLASS_ROWS[] = {ENCODER("context"), POOLED, OUTCOME, {0}},
                       TAG_ROWS[] = {ENCODER("context"), OUTCOME, {0}},
                       SPAN_ROWS[] = {ENCODER("context"), SPAN, {0}},
                       ROBERTA_CLASS_ROWS[] = {ENCODER("context+first_position"),
                                               BP_HF_LINEAR("classifier.dense", "width", "width",
                                                            "pooler"),
                                               BP_HF_LINEAR("classifier.out_proj", "outcomes",
                                                            "width", "task"),
                                               {0}},
                       ROBERTA_TAG_ROWS[] = {ENCODER("context+first_position"), OUTCOME, {0}},
                       ROBERTA_SPAN_ROWS[] = {ENCODER("context+first_position"), SPAN, {0}};

/* Position numbers. */
static const char *const BUFFERS[] = {"embeddings.position_ids", "embeddings.token_type_ids", NULL},
                         *const HARMLESS[] = {"hidden_dropout_prob",
                                              "attention_probs_dropout_prob",
                                              "classifier_dropout",
                                              "gradient_checkpointing",
                                              "directionality",
                                              "pooler_fc_size",
                                              "pooler_num_attention_heads",
                                              "pooler_num_fc_layers",
                                              "pooler_size_per_head",
                                              "pooler_type",
                                              NULL},
                         *const HEADS[] = {"cls.", "lm_head.", "classifier.", "qa_outputs.", NULL};

/* In files converted from TensorFlow's; and the bias of the head. */
static const bp_hf_alias ALIASES[] = {
    {"LayerNorm.weight", "LayerNorm.gamma"},
    {"LayerNorm.bias", "LayerNorm.beta"},
    {"cls.predictions.bias", "cls.predictions.decoder.bias", .computes = true},
    {"lm_head.bias", "lm_head.decoder.bias", .computes = true},
    {0}};

#define MORE                                                                                       \
    "{\"hidden_dropout_prob\": 0.0, \"attention_probs_dropout_prob\": 0.0,"                        \
    " \"torch_dtype\": \"float32\", \"use_cache\": true}"

#define TABLE(of, type, class, own, before, head_of, sizes_of, rows_of, framed)                    \
    {                                                                                              \
        .kind = of, .model_type = type, .architecture = class, .identified_by = own,               \
        .prefix = before, .first = "embeddings.word_embeddings.weight", .head = head_of,           \
        .tied = "embeddings.word_embeddings.weight", .sizes = sizes_of, .settings = SETTINGS,      \
        .rows = rows_of, .buffers = BUFFERS, .harmless = HARMLESS, .more = MORE,                   \
        .check = bp_hf_check_heads, .bare = HEADS, .aliases = ALIASES, .members = framed           \
    }

static const bp_hf_table PRETRAINING = TABLE("bert", "bert", "BertForPreTraining",
                                             "cls.seq_relationship.weight", "bert.",
                                             "cls.predictions.decoder.weight", PRETRAINING_SIZES,
                                             PRETRAINING_ROWS, NULL),
                         MASKED = TABLE("bert", "bert", "BertForMaskedLM", NULL, "bert.",
                                        "cls.predictions.decoder.weight", MASKED_SIZES, MASKED_ROWS,
                                        NULL);

#define TASK_TABLE(of, class, sizes_of, rows_of)                                                   \
    TABLE(of, of, class, NULL, of ".", NULL, sizes_of, rows_of, NULL)
static const bp_hf_table VALUE = TASK_TABLE("bert", "BertForSequenceClassification", VALUE_SIZES,
                                            CLASS_ROWS),
                         CLASS = TASK_TABLE("bert", "BertForSequenceClassification", CLASS_SIZES,
                                            CLASS_ROWS),
                         TAG =
                             TASK_TABLE("bert", "BertForTokenClassification", TAG_SIZES, TAG_ROWS),
                         SPAN_ENDS =
                             TASK_TABLE("bert", "BertForQuestionAnswering", SPAN_SIZES, SPAN_ROWS);

/* RoBERTa's kind, and types that are RoBERTas with other names. */
#define ROBERTA_TABLES(name, type, class, words)                                                   \
    static const bp_hf_size name##_SIZES[] = {ROBERTA_ENCODER_SIZES(words), {0}},                  \
                            name##_VALUE_SIZES[] = {ROBERTA_ENCODER_SIZES(words),                  \
                                                    BP_BERT_TASK("2", "1"),                        \
                                                    BP_BERT_LABELS,                                \
                                                    {0}},                                          \
                            name##_CLASS_SIZES[] = {ROBERTA_ENCODER_SIZES(words),                  \
                                                    BP_BERT_TASK("1", "1"),                        \
                                                    BP_BERT_LABELS,                                \
                                                    {0}},                                          \
                            name##_TAG_SIZES[] = {ROBERTA_ENCODER_SIZES(words),                    \
                                                  BP_BERT_TASK("3", "0"),                          \
                                                  BP_BERT_LABELS,                                  \
                                                  {0}},                                            \
                            name##_SPAN_SIZES[] = {ROBERTA_ENCODER_SIZES(words),                   \
                                                   BP_BERT_TASK("4", "0"),                         \
                                                   BP_BERT_ENDS,                                   \
                                                   {0}};                                           \
    static const bp_hf_table name = ROBERTA_TABLE(type, class "ForMaskedLM",                       \
                                                  "lm_head.decoder.weight", name##_SIZES,          \
                                                  ROBERTA_ROWS),                                   \
                             name##_VALUE =                                                        \
                                 ROBERTA_TABLE(type, class "ForSequenceClassification", NULL,      \
                                               name##_VALUE_SIZES, ROBERTA_CLASS_ROWS),            \
                             name##_CLASS =                                                        \
                                 ROBERTA_TABLE(type, class "ForSequenceClassification", NULL,      \
                                               name##_CLASS_SIZES, ROBERTA_CLASS_ROWS),            \
                             name##_TAG = ROBERTA_TABLE(type, class "ForTokenClassification",      \
                                                        NULL, name##_TAG_SIZES, ROBERTA_TAG_ROWS), \
                             name##_SPAN = ROBERTA_TABLE(type, class "ForQuestionAnswering", NULL, \
                                                         name##_SPAN_SIZES, ROBERTA_SPAN_ROWS)
#define ROBERTA_TABLE(type, class, head_of, sizes_of, rows_of)                                     \
    TABLE("roberta", type, class, NULL, "roberta.", head_of, sizes_of, rows_of,                    \
          "{\"separators\": 2, \"one_segment\": true}")

ROBERTA_TABLES(ROBERTA, "roberta", "Roberta", "50265");
ROBERTA_TABLES(XLM, "xlm-roberta", "XLMRoberta", "30522");
ROBERTA_TABLES(CAMEMBERT, "camembert", "Camembert", "30522");
#define ROBERTA_LIST(name) &name, &name##_VALUE, &name##_CLASS, &name##_TAG, &name##_SPAN

/* If two have one class, the last one reads it. */
const bp_hf_table *const bp_bert_huggingface[] = {&PRETRAINING, &MASKED,    &VALUE, &CLASS,
                                                  &TAG,         &SPAN_ENDS, NULL},
                         *const bp_roberta_huggingface[] = {ROBERTA_LIST(ROBERTA),
                                                            ROBERTA_LIST(XLM),
                                                            ROBERTA_LIST(CAMEMBERT), NULL};

/* ---- DistilBERT: no segments, and names of its own ---- */

#define DISTILBERT_SHAPE                                                                           \
    BP_HF_SIZE("layers", "n_layers", "6"), BP_HF_SIZE("width", "dim", "768"),                      \
        BP_HF_SIZE("heads", "n_heads", "12"), BP_HF_SIZE("inner", "hidden_dim", "3072"),           \
        BP_HF_SIZE("vocab_size", "vocab_size", "30522"),                                           \
        BP_HF_SIZE("context", "max_position_embeddings", "512"),                                   \
        {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},                     \
        {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},                     \
    {                                                                                              \
        "norm_epsilon", NULL, NULL, BP_HF_REAL, "1e-12"                                            \
    }
static const bp_hf_size
    DISTILBERT_SIZES[] = {DISTILBERT_SHAPE, {0}},
    DISTILBERT_VALUE_SIZES[] = {DISTILBERT_SHAPE, BP_BERT_TASK("2", "1"), BP_BERT_LABELS, {0}},
    DISTILBERT_CLASS_SIZES[] = {DISTILBERT_SHAPE, BP_BERT_TASK("1", "1"), BP_BERT_LABELS, {0}},
    DISTILBERT_TAG_SIZES[] = {DISTILBERT_SHAPE, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
    DISTILBERT_SPAN_SIZES[] = {DISTILBERT_SHAPE, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

/* The initial values of positions do not matter once they are learned. */
static const bp_hf_setting DISTILBERT_SETTINGS[] = {{"activation", "\"gelu\""}, {0}};
static const char *const DISTILBERT_HARMLESS[] =
    {"sinusoidal_pos_embds", "dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout",
     "tie_weights_",         NULL},
                         *const DISTILBERT_HEADS[] = {"vocab_", "pre_classifier.", "classifier.",
                                                      "qa_outputs.", NULL};

#define DISTILBERT_LAYER "transformer.layer.*."
#define DISTILBERT_ENCODER                                                                         \
    BP_HF_MATRIX("embeddings.word_embeddings.weight", "vocab_size", "width", "wte"),               \
        BP_HF_MATRIX("embeddings.position_embeddings.weight", "context", "width", "wpe"),          \
        BP_HF_LAYER_NORM("embeddings.LayerNorm", "embedding.ln"),                                  \
        BP_HF_LINEAR(DISTILBERT_LAYER "attention.q_lin", "heads*head_width", "width",              \
                     "h.*.attn.q"),                                                                \
        BP_HF_LINEAR(DISTILBERT_LAYER "attention.k_lin", "heads*head_width", "width",              \
                     "h.*.attn.k"),                                                                \
        BP_HF_LINEAR(DISTILBERT_LAYER "attention.v_lin", "heads*head_width", "width",              \
                     "h.*.attn.v"),                                                                \
        BP_HF_LINEAR(DISTILBERT_LAYER "attention.out_lin", "width", "heads*head_width",            \
                     "h.*.attn.out"),                                                              \
        BP_HF_LAYER_NORM(DISTILBERT_LAYER "sa_layer_norm", "h.*.ln1"),                             \
        BP_HF_LINEAR(DISTILBERT_LAYER "ffn.lin1", "inner", "width", "h.*.mlp.up"),                 \
        BP_HF_LINEAR(DISTILBERT_LAYER "ffn.lin2", "width", "inner", "h.*.mlp.down"),               \
        BP_HF_LAYER_NORM(DISTILBERT_LAYER "output_layer_norm", "h.*.ln2")

static const bp_hf_row DISTILBERT_ROWS[] = {DISTILBERT_ENCODER,
                                            BP_HF_LINEAR("vocab_transform", "width", "width",
                                                         "transform"),
                                            BP_HF_LAYER_NORM("vocab_layer_norm", "transform.ln"),
                                            BP_HF_VECTOR("vocab_projector.bias", "vocab_size",
                                                         "head.bias"),
                                            BP_HF_UNTIED("vocab_projector.weight"),
                                            {0}},
                       DISTILBERT_CLASS_ROWS[] = {DISTILBERT_ENCODER,
                                                  BP_HF_LINEAR("pre_classifier", "width", "width",
                                                               "pooler"),
                                                  OUTCOME,
                                                  {0}},
                       DISTILBERT_TAG_ROWS[] = {DISTILBERT_ENCODER, OUTCOME, {0}},
                       DISTILBERT_SPAN_ROWS[] = {DISTILBERT_ENCODER, SPAN, {0}};

#define DISTILBERT_MORE                                                                            \
    "{\"dropout\": 0.0, \"attention_dropout\": 0.0, \"qa_dropout\": 0.0,"                          \
    " \"seq_classif_dropout\": 0.0, \"torch_dtype\": \"float32\"}"
#define DISTILBERT_TABLE(class, head_of, sizes_of, rows_of)                                        \
    {                                                                                              \
        .kind = "distilbert", .model_type = "distilbert", .architecture = "DistilBertFor" class,   \
        .prefix = "distilbert.", .first = "embeddings.word_embeddings.weight", .head = head_of,    \
        .tied = "embeddings.word_embeddings.weight", .sizes = sizes_of,                            \
        .settings = DISTILBERT_SETTINGS, .rows = rows_of, .buffers = BUFFERS,                      \
        .harmless = DISTILBERT_HARMLESS, .more = DISTILBERT_MORE, .check = bp_hf_check_heads,      \
        .bare = DISTILBERT_HEADS, .aliases = ALIASES                                               \
    }
static const bp_hf_table DISTILBERT_MASKED = DISTILBERT_TABLE("MaskedLM", "vocab_projector.weight",
                                                              DISTILBERT_SIZES, DISTILBERT_ROWS),
                         DISTILBERT_VALUE =
                             DISTILBERT_TABLE("SequenceClassification", NULL,
                                              DISTILBERT_VALUE_SIZES, DISTILBERT_CLASS_ROWS),
                         DISTILBERT_CLASS =
                             DISTILBERT_TABLE("SequenceClassification", NULL,
                                              DISTILBERT_CLASS_SIZES, DISTILBERT_CLASS_ROWS),
                         DISTILBERT_TAG =
                             DISTILBERT_TABLE("TokenClassification", NULL, DISTILBERT_TAG_SIZES,
                                              DISTILBERT_TAG_ROWS),
                         DISTILBERT_SPAN =
                             DISTILBERT_TABLE("QuestionAnswering", NULL, DISTILBERT_SPAN_SIZES,
                                              DISTILBERT_SPAN_ROWS);
const bp_hf_table *const bp_distilbert_huggingface[] = {&DISTILBERT_MASKED, &DISTILBERT_VALUE,
                                                        &DISTILBERT_CLASS,  &DISTILBERT_TAG,
                                                        &DISTILBERT_SPAN,   NULL};
