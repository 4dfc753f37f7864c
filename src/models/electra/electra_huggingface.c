/* ELECTRA's halves as Hugging Face folders hold them, a generator or a discriminator: every weight
 * [out, in], as ours. Called by electra.c and electra_folder.c. */
#include "models/electra/electra.h"

#include "models/bert/bert.h"

/* Those of config.json, with the defaults of transformers' class. */
#define COMMON_SIZES                                                                               \
    BP_HF_SIZE("layers", "num_hidden_layers", "12"), BP_HF_SIZE("width", "hidden_size", "256"),    \
        BP_HF_SIZE("heads", "num_attention_heads", "4"),                                           \
        BP_HF_SIZE("inner", "intermediate_size", "1024"),                                          \
        BP_HF_SIZE("context", "max_position_embeddings", "512"),                                   \
        BP_HF_SIZE("segments", "type_vocab_size", "2"),                                            \
        {"embedding", "embedding_size", NULL, BP_HF_COUNT, "width", .absent = "128"},              \
        BP_HF_SIZE("vocab_size", "vocab_size", "30522"),                                           \
        {"norm_epsilon", "layer_norm_eps", NULL, BP_HF_REAL, "1e-12"},                             \
    {                                                                                              \
        "projected", NULL, NULL, BP_HF_FLAG, "embedding+-1*width", .quiet = true                   \
    }
#define PART(number)                                                                               \
    {                                                                                              \
        "part", NULL, NULL, BP_HF_CHOICE, number, .words = BP_ELECTRA_PARTS                        \
    }
#define ALWAYS(ours, same)                                                                         \
    {                                                                                              \
        ours, NULL, NULL, BP_HF_COUNT, same                                                        \
    }

static const bp_hf_size GENERATOR_SIZES[] = {COMMON_SIZES,
                                             ALWAYS("generator_layers", "layers"),
                                             ALWAYS("generator_width", "width"),
                                             ALWAYS("generator_heads", "heads"),
                                             ALWAYS("generator_inner", "inner"),
                                             PART("1"),
                                             {0}},
                        DISCRIMINATOR_SIZES[] = {COMMON_SIZES, PART("2"), {0}};

/* Models with the head of a task have the discriminator's encoder. */
static const bp_hf_size VALUE_SIZES[] = {COMMON_SIZES, BP_BERT_TASK("2", "1"), BP_BERT_LABELS, {0}},
                        CLASS_SIZES[] = {COMMON_SIZES, BP_BERT_TASK("1", "1"), BP_BERT_LABELS, {0}},
                        TAG_SIZES[] = {COMMON_SIZES, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
                        SPAN_SIZES[] = {COMMON_SIZES, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

static const bp_hf_setting SETTINGS[] = {{"hidden_act", "\"gelu\""},
                                         {"position_embedding_type", "\"absolute\""},
                                         {"is_decoder", "false"},
                                         {"tie_word_embeddings", "true"},
                                         {0}};

#define NORM(theirs, columns, ours)                                                                \
    BP_HF_VECTOR(theirs ".weight", columns, ours ".gain"),                                         \
        BP_HF_VECTOR(theirs ".bias", columns, ours ".bias")

#define LAYER     "encoder.layer.*."
#define ATTENTION LAYER "attention."
#define ENCODER(stack, project)                                                                    \
    BP_HF_MATRIX("embeddings.word_embeddings.weight", "vocab_size", "embedding", "wte"),           \
        BP_HF_MATRIX("embeddings.position_embeddings.weight", "context", "embedding", "wpe"),      \
        BP_HF_MATRIX("embeddings.token_type_embeddings.weight", "segments", "embedding",           \
                     "segments"),                                                                  \
        NORM("embeddings.LayerNorm", "embedding", "embedding.ln"),                                 \
        BP_HF_IF("projected", "embeddings_project.weight", "width", "embedding",                   \
                 project ".weight"),                                                               \
        BP_HF_IF("projected", "embeddings_project.bias", "width", NULL, project ".bias"),          \
        BP_HF_LINEAR(ATTENTION "self.query", "width", "width", stack ".*.attn.q"),                 \
        BP_HF_LINEAR(ATTENTION "self.key", "width", "width", stack ".*.attn.k"),                   \
        BP_HF_LINEAR(ATTENTION "self.value", "width", "width", stack ".*.attn.v"),                 \
        BP_HF_LINEAR(ATTENTION "output.dense", "width", "width", stack ".*.attn.out"),             \
        NORM(ATTENTION "output.LayerNorm", "width", stack ".*.ln1"),                               \
        BP_HF_LINEAR(LAYER "intermediate.dense", "inner", "width", stack ".*.mlp.up"),             \
        BP_HF_LINEAR(LAYER "output.dense", "width", "inner", stack ".*.mlp.down"),                 \
        NORM(LAYER "output.LayerNorm", "width", stack ".*.ln2")

static const bp_hf_row
    GENERATOR_ROWS[] = {ENCODER("g", "g.project"),
                        NORM("generator_predictions.LayerNorm", "embedding", "transform.ln"),
                        BP_HF_LINEAR("generator_predictions.dense", "embedding", "width",
                                     "transform"),
                        BP_HF_VECTOR("generator_lm_head.bias", "vocab_size", "head.bias"),
                        {0}},
    DISCRIMINATOR_ROWS[] = {ENCODER("h", "project"),
                            BP_HF_LINEAR("discriminator_predictions.dense", "width", "width",
                                         "judge"),
                            BP_HF_LINEAR("discriminator_predictions.dense_prediction", "1", "width",
                                         "replaced"),
                            {0}},
    CLASS_ROWS[] = {ENCODER("h", "project"),
                    BP_HF_LINEAR("classifier.dense", "width", "width", "pooler"),
                    BP_HF_LINEAR("classifier.out_proj", "outcomes", "width", "task"),
                    {0}},
    TAG_ROWS[] = {ENCODER("h", "project"),
                  BP_HF_LINEAR("classifier", "outcomes", "width", "task"),
                  {0}},
    SPAN_ROWS[] = {ENCODER("h", "project"), BP_HF_LINEAR("qa_outputs", "2", "width", "task"), {0}};

static const char *const BUFFERS[] = {"embeddings.position_ids", "embeddings.token_type_ids", NULL},
                         *const HARMLESS[] = {"hidden_dropout_prob",
                                              "attention_probs_dropout_prob",
                                              "classifier_dropout",
                                              "summary_activation",
                                              "summary_last_dropout",
                                              "summary_type",
                                              "summary_use_proj",
                                              NULL},
                         *const HEADS[] = {"generator_predictions.",
                                           "generator_lm_head.",
                                           "discriminator_predictions.",
                                           "classifier.",
                                           "qa_outputs.",
                                           NULL};

#define TABLE(class, own, sizes_of, rows_of)                                                       \
    {                                                                                              \
        .kind = "electra", .model_type = "electra", .architecture = class, .identified_by = own,   \
        .prefix = "electra.", .first = "embeddings.word_embeddings.weight",                        \
        .head = "generator_lm_head.weight", .tied = "embeddings.word_embeddings.weight",           \
        .sizes = sizes_of, .settings = SETTINGS, .rows = rows_of, .buffers = BUFFERS,              \
        .harmless = HARMLESS,                                                                      \
        .more = "{\"hidden_dropout_prob\": 0.0, \"attention_probs_dropout_prob\": 0.0,"            \
                " \"torch_dtype\": \"float32\", \"use_cache\": true}",                             \
        .check = bp_hf_check_heads, .bare = HEADS                                                  \
    }

static const bp_hf_table DISCRIMINATOR = TABLE("ElectraForPreTraining",
                                               "discriminator_predictions.dense_prediction.weight",
                                               DISCRIMINATOR_SIZES, DISCRIMINATOR_ROWS),
                         GENERATOR = TABLE("ElectraForMaskedLM", "generator_lm_head.bias",
                                           GENERATOR_SIZES, GENERATOR_ROWS),
                         VALUE = TABLE("ElectraForSequenceClassification", NULL, VALUE_SIZES,
                                       CLASS_ROWS),
                         CLASS = TABLE("ElectraForSequenceClassification", NULL, CLASS_SIZES,
                                       CLASS_ROWS),
                         TAG = TABLE("ElectraForTokenClassification", NULL, TAG_SIZES, TAG_ROWS),
                         SPAN_ENDS =
                             TABLE("ElectraForQuestionAnswering", NULL, SPAN_SIZES, SPAN_ROWS);

const bp_hf_table *const bp_electra_huggingface[] = {&DISCRIMINATOR, &GENERATOR, &VALUE, &CLASS,
                                                     &TAG,           &SPAN_ENDS, NULL};
