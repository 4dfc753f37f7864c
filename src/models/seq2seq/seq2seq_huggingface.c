/* BART, Marian, mBART and M2M-100 (NLLB), and the Transformer of 2017, as folders of Hugging Face's
 * form hold them; the Transformer's tensors have the names of torch.nn. Called by bart.c. */
#include "models/bert/bert.h"
#include "models/seq2seq/seq2seq.h"

#define MATRIX(theirs, rows, columns, ours)                                                        \
    {                                                                                              \
        theirs, rows, columns, false, 1, {ours}, .layers = LAYERS                                  \
    }
#define VECTOR(theirs, rows, ours)                                                                 \
    {                                                                                              \
        theirs, rows, NULL, false, 1, {ours}, .layers = LAYERS                                     \
    }
#define NORM(theirs, ours)                                                                         \
    VECTOR(theirs ".weight", "width", ours ".gain"), VECTOR(theirs ".bias", "width", ours ".bias")
#define LINEAR(theirs, rows, columns, ours)                                                        \
    MATRIX(theirs ".weight", rows, columns, ours ".weight"),                                       \
        VECTOR(theirs ".bias", rows, ours ".bias")

/* `is`: the default of transformers' class for BART; NULL for the Transformer, which has none. */
#define SIZES_BEFORE_CONTEXT(C, L, H, I, V, start)                                                 \
    {"width", "d_model", NULL, .older = "hidden_size", .absent = C},                               \
        BP_HF_SIZE("encoder_layers", "encoder_layers", L),                                         \
        BP_HF_SIZE("decoder_layers", "decoder_layers", L),                                         \
        {"layers", NULL, NULL, BP_HF_COUNT, "decoder_layers"},                                     \
        {"heads", "encoder_attention_heads", NULL, .older = "num_attention_heads", .absent = H},   \
        BP_HF_SIZE("inner", "encoder_ffn_dim", I), BP_HF_SIZE("vocab_size", "vocab_size", V),      \
        {"start_token", "decoder_start_token_id", NULL,          BP_HF_COUNT, "0",                 \
         .plus = "-1",  .absent = start,          .null_is = "0"},                                 \
        {"norm_epsilon", NULL, NULL, BP_HF_REAL, "1e-5"},                                          \
    {                                                                                              \
        "head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true                        \
    }
/* Only for the rows: the kind of head, and the parts present. */
#define FLAG(name, is)                                                                             \
    {                                                                                              \
        name, NULL, NULL, BP_HF_FLAG, is, .quiet = true                                            \
    }
#define PARTS(learns, after_embeddings, after_stacks)                                              \
    FLAG("learned", learns), FLAG("embedding_norms", after_embeddings),                            \
        FLAG("stack_norms", after_stacks)
#define HEAD_OF(classes, spans)                                                                    \
    FLAG("classifies", classes), FLAG("finds_spans", spans),                                       \
        FLAG("writes", "1+-1*classifies+-1*finds_spans")
#define CONTEXT                                                                                    \
    {                                                                                              \
        "context", "max_position_embeddings", NULL, .absent = "1024"                               \
    }
/* With the defaults of a class for activations (a number of the list) and scaling. */
#define CHOSEN_SIZES(V, start, activation, scales)                                                 \
    SIZES_BEFORE_CONTEXT("1024", "12", "16", "4096", V, start), CONTEXT,                           \
        {"activation",                                                                             \
         "activation_function",                                                                    \
         NULL,                                                                                     \
         BP_HF_CHOICE,                                                                             \
         "0",                                                                                      \
         .words = "gelu|relu|silu|gelu_tanh",                                                      \
         .written = "gelu|relu|swish|gelu_new",                                                    \
         .absent = activation},                                                                    \
    {                                                                                              \
        "scale_embedding", "scale_embedding", NULL, BP_HF_FLAG, "1", .absent = scales              \
    }
/* With any head; task heads have default numbers of labels. */
#define OF_ALL_HEADS(name, sizes)                                                                  \
    name##_SIZES[] = {sizes, HEAD_OF("0", "0"), {0}},                                              \
    name##_VALUE_SIZES[] = {sizes, HEAD_OF("1", "0"), BP_SEQ2SEQ_TASK("2", "3"), {0}},             \
    name##_CLASS_SIZES[] = {sizes, HEAD_OF("1", "0"), BP_SEQ2SEQ_TASK("1", "3"), {0}},             \
    name##_SPAN_SIZES[] = {sizes, HEAD_OF("0", "1"), BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}}
#define OF_BART                                                                                    \
    SIZES_BEFORE_CONTEXT("1024", "12", "16", "4096", "50265", "3"), CONTEXT, PARTS("1", "1", "0")
#define OF_MBART CHOSEN_SIZES("50265", "0", "0", "0"), PARTS("1", "1", "1")
static const bp_hf_size
    TRANSFORMER_SIZES[] = {SIZES_BEFORE_CONTEXT(NULL, NULL, NULL, NULL, NULL, NULL),
                           {"context", "max_position_embeddings", NULL, BP_HF_COUNT, "1024"},
                           {"decoder_heads", NULL, NULL, BP_HF_COUNT, "heads", .quiet = true},
                           {"decoder_inner", NULL, NULL, BP_HF_COUNT, "inner", .quiet = true},
                           {0}},
    OF_ALL_HEADS(BART, OF_BART), OF_ALL_HEADS(MBART, OF_MBART),
    MARIAN_SIZES[] = {CHOSEN_SIZES("58101", "58101", "0", "0"),
                      PARTS("0", "0", "0"),
                      HEAD_OF("0", "0"),
                      {0}},
    M2M_100_SIZES[] = {CHOSEN_SIZES("128112", "3", "1", "1"),
                       PARTS("0", "0", "1"),
                       FLAG("classifies", "0"),
                       FLAG("finds_spans", "0"),
                       FLAG("writes", "0"),
                       {0}};

#define COMMON_SETTINGS(H, I)                                                                      \
    {"decoder_attention_heads", "heads", .absent = H}, {"decoder_ffn_dim", "inner", .absent = I},  \
        {"tie_word_embeddings", "true"},                                                           \
    {                                                                                              \
        "is_encoder_decoder", "true"                                                               \
    }
static const bp_hf_setting TRANSFORMER_SETTINGS[] = {COMMON_SETTINGS(NULL, NULL),
                                                     {"activation_function", "\"relu\""},
                                                     {"scale_embedding", "true"},
                                                     {"position_embedding_type", "\"sinusoidal\""},
                                                     {0}},
                           BART_SETTINGS[] = {COMMON_SETTINGS("16", "4096"),
                                              {"activation_function", "\"gelu\""},
                                              {"scale_embedding", "false"},
                                              {"normalize_before", "false"},
                                              {"add_final_layer_norm", "false"},
                                              {"add_bias_logits", "false"},
                                              {"do_blenderbot_90_layernorm", "false"},
                                              {"normalize_embedding", "true"},
                                              {"static_position_embeddings", "false"},
                                              {"extra_pos_embeddings", "2"},
                                              {0}};

/* Marian's targets begin with padding; fairseq's positions begin after the padding's. */
#define MARIAN_PADDING "start_token+-1"
#define MORE_SETTINGS(pre_norm, embedding_norms, sinusoids)                                        \
    COMMON_SETTINGS("16", "4096"), {"normalize_before", pre_norm},                                 \
        {"add_final_layer_norm", pre_norm}, {"add_bias_logits", "false"},                          \
        {"normalize_embedding", embedding_norms},                                                  \
    {                                                                                              \
        "static_position_embeddings", sinusoids                                                    \
    }
static const bp_hf_setting MARIAN_SETTINGS[] = {MORE_SETTINGS("false", "false", "true"),
                                                {"share_encoder_decoder_embeddings", "true"},
                                                {"decoder_vocab_size", "vocab_size|null"},
                                                {"pad_token_id", MARIAN_PADDING, .absent = "58100"},
                                                {0}},
                           MBART_SETTINGS[] = {MORE_SETTINGS("true", "true", "false"),
                                               {"extra_pos_embeddings", "2"},
                                               {0}},
                           M2M_100_SETTINGS[] = {
                               MORE_SETTINGS("true", "false", "true"), {"pad_token_id", "1"}, {0}};

/* ---- torch.nn's names ---- */

#define JOINED(theirs, ours)                                                                       \
    {theirs "in_proj_weight",                                                                      \
     "3*heads*head_width",                                                                         \
     "width",                                                                                      \
     false,                                                                                        \
     3,                                                                                            \
     {ours "q.weight", ours "k.weight", ours "v.weight"},                                          \
     .blocks = "1",                                                                                \
     .layers = LAYERS},                                                                            \
        {theirs "in_proj_bias",                                                                    \
         "3*heads*head_width",                                                                     \
         NULL,                                                                                     \
         false,                                                                                    \
         3,                                                                                        \
         {ours "q.bias", ours "k.bias", ours "v.bias"},                                            \
         .layers = LAYERS},                                                                        \
        LINEAR(theirs "out_proj", "width", "heads*head_width", ours "out")
#define MLP(theirs, ours)                                                                          \
    LINEAR(theirs "linear1", "inner", "width", ours "mlp.up"),                                     \
        LINEAR(theirs "linear2", "width", "inner", ours "mlp.down")

static const bp_hf_row TRANSFORMER_ROWS[] = {
#define LAYERS NULL
    MATRIX("shared.weight", "vocab_size", "width", "wte"),
#undef LAYERS
#define LAYERS "encoder_layers"
    JOINED("encoder.layers.*.self_attn.", "encoder.*.attn."),
    MLP("encoder.layers.*.", "encoder.*."),
    NORM("encoder.layers.*.norm1", "encoder.*.ln1"),
    NORM("encoder.layers.*.norm2", "encoder.*.ln2"),
#undef LAYERS
#define LAYERS "decoder_layers"
    JOINED("decoder.layers.*.self_attn.", "decoder.*.attn."),
    JOINED("decoder.layers.*.multihead_attn.", "decoder.*.cross."),
    MLP("decoder.layers.*.", "decoder.*."),
    NORM("decoder.layers.*.norm1", "decoder.*.ln1"),
    NORM("decoder.layers.*.norm2", "decoder.*.cross.ln"),
    NORM("decoder.layers.*.norm3", "decoder.*.ln2"),
#undef LAYERS
    {0}};

/* ---- BART's ---- */

#define ATTENTION(theirs, ours)                                                                    \
    LINEAR(theirs ".k_proj", "heads*head_width", "width", ours ".k"),                              \
        LINEAR(theirs ".v_proj", "heads*head_width", "width", ours ".v"),                          \
        LINEAR(theirs ".q_proj", "heads*head_width", "width", ours ".q"),                          \
        LINEAR(theirs ".out_proj", "width", "heads*head_width", ours ".out")
#define BART_MLP(theirs, ours)                                                                     \
    LINEAR(theirs "fc1", "inner", "width", ours "mlp.up"),                                         \
        LINEAR(theirs "fc2", "width", "inner", ours "mlp.down"),                                   \
        NORM(theirs "final_layer_norm", ours "ln2")

#define SOME_NORM(flag, theirs, ours)                                                              \
    BP_HF_IF(flag, theirs ".weight", "width", NULL, ours ".gain"),                                 \
        BP_HF_IF(flag, theirs ".bias", "width", NULL, ours ".bias")
#define POSITIONS(stack)                                                                           \
    BP_HF_IF("learned", stack ".embed_positions.weight", "context+2", "width", stack ".wpe")
#define STACK_NORMS(stack)                                                                         \
    SOME_NORM("embedding_norms", stack ".layernorm_embedding", stack ".embedding.ln"),             \
        SOME_NORM("stack_norms", stack ".layer_norm", stack ".ln")

/* And those of its relatives, with other subsets of the parts. */
static const bp_hf_row BART_ROWS[] = {
    {"final_logits_bias",
     "1",
     "vocab_size",
     false,
     1,
     {"head.bias"},
     .only_if = "writes",
     .or_zero = true},
    BP_HF_IF(NULL, "shared.weight", "vocab_size", "width", "wte"),
    POSITIONS("encoder"),
#define LAYERS "encoder_layers"
    ATTENTION("encoder.layers.*.self_attn", "encoder.*.attn"),
    NORM("encoder.layers.*.self_attn_layer_norm", "encoder.*.ln1"),
    BART_MLP("encoder.layers.*.", "encoder.*."),
#undef LAYERS
    STACK_NORMS("encoder"),
    POSITIONS("decoder"),
#define LAYERS "decoder_layers"
    ATTENTION("decoder.layers.*.self_attn", "decoder.*.attn"),
    NORM("decoder.layers.*.self_attn_layer_norm", "decoder.*.ln1"),
    ATTENTION("decoder.layers.*.encoder_attn", "decoder.*.cross"),
    NORM("decoder.layers.*.encoder_attn_layer_norm", "decoder.*.cross.ln"),
    BART_MLP("decoder.layers.*.", "decoder.*."),
#undef LAYERS
    STACK_NORMS("decoder"),
    BP_SEQ2SEQ_HEAD_ROWS,
    {0}};

/* Positions that are computed; and copies of the table of words. */
static const char *const BUFFERS[] = {NULL},
                         *const UNREAD_SINES[] = {"encoder.embed_positions.weights",
                                                  "decoder.embed_positions.weights", NULL},
                         *const SINES[] = {"encoder.embed_positions.weight",
                                           "decoder.embed_positions.weight", NULL},
                         *const TWINS[] = {"encoder.embed_tokens.weight",
                                           "decoder.embed_tokens.weight", NULL},
                         *const BARE[] = {"final_logits_bias", "lm_head.", "classification_head.",
                                          "qa_outputs.", NULL},
                         *const HARMLESS[] = {"dropout",
                                              "attention_dropout",
                                              "activation_dropout",
                                              "classifier_dropout",
                                              "classif_dropout",
                                              "encoder_layerdrop",
                                              "decoder_layerdrop",
                                              "init_std",
                                              "num_hidden_layers",
                                              "force_bos_token_to_be_generated",
                                              "save_step",
                                              NULL};

/* BART's default of forced_eos_token_id is an id of its own vocabulary. */
#define MORE                                                                                       \
    "{\"dropout\": 0.0, \"forced_eos_token_id\": null, \"torch_dtype\": \"float32\", "             \
    "\"use_cache\": true}"

/* A Marian's file may have its positions, and its class reads them. */
static double sine(const bp_hf_shape *shape, int64_t row, int64_t column)
{
    return bp_seq2seq_sinusoid(BP_SINES_IN_HALVES, row, column, bp_hf_size_of(shape, "width"));
}

#define MEMBERS(family, class, head_of, sizes_of, must, unread, framed)                            \
    .kind = family, .model_type = family, .architecture = class, .prefix = "model.",               \
    .first = "shared.weight", .head = head_of, .tied = "shared.weight", .sizes = sizes_of,         \
    .settings = must, .rows = BART_ROWS, .buffers = unread, .harmless = HARMLESS, .more = MORE,    \
    .check = bp_hf_check_heads, .bare = BARE, .twins = TWINS, .members = framed
#define BART_TABLE(family, class, head_of, sizes_of, must, framed)                                 \
    {                                                                                              \
        MEMBERS(family, class, head_of, sizes_of, must, BUFFERS, framed)                           \
    }
#define TABLES(name, family, class, must, framed)                                                  \
    name = BART_TABLE(family, class "ForConditionalGeneration", "lm_head.weight", name##_SIZES,    \
                      must, NULL),                                                                 \
    name##_VALUE = BART_TABLE(family, class "ForSequenceClassification", NULL, name##_VALUE_SIZES, \
                              must, framed),                                                       \
    name##_CLASS = BART_TABLE(family, class "ForSequenceClassification", NULL, name##_CLASS_SIZES, \
                              must, framed),                                                       \
    name##_SPANS =                                                                                 \
        BART_TABLE(family, class "ForQuestionAnswering", NULL, name##_SPAN_SIZES, must, framed)

static const bp_hf_table
    TRANSFORMER = {.kind = "transformer",
                   .model_type = "transformer",
                   .architecture = "Transformer",
                   .prefix = "",
                   .first = "shared.weight",
                   .head = "lm_head.weight",
                   .tied = "shared.weight",
                   .sizes = TRANSFORMER_SIZES,
                   .settings = TRANSFORMER_SETTINGS,
                   .rows = TRANSFORMER_ROWS,
                   .buffers = BUFFERS,
                   .harmless = HARMLESS,
                   .more = MORE,
                   .check = bp_hf_check_heads,
                   .instead = "marian or bart"},
    TABLES(BART, "bart", "Bart", BART_SETTINGS, "{\"begins\": true, \"separators\": 2}"),
    TABLES(MBART, "mbart", "MBart", MBART_SETTINGS, NULL),
    MARIAN = {MEMBERS("marian", "MarianMTModel", "lm_head.weight", MARIAN_SIZES, MARIAN_SETTINGS,
                      BUFFERS, NULL),
              .constants = SINES, .constant = sine},
    M2M_100 = {MEMBERS("m2m_100", "M2M100ForConditionalGeneration", "lm_head.weight", M2M_100_SIZES,
                       M2M_100_SETTINGS, UNREAD_SINES, NULL)};

const bp_hf_table *const bp_transformer_huggingface[] = {&TRANSFORMER, NULL},
                         *const bp_bart_huggingface[] = {&BART, &BART_VALUE, &BART_CLASS,
                                                         &BART_SPANS, NULL},
                         *const bp_mbart_huggingface[] = {&MBART, &MBART_VALUE, &MBART_CLASS,
                                                          &MBART_SPANS, NULL},
                         *const bp_marian_huggingface[] = {&MARIAN, NULL},
                         *const bp_m2m_100_huggingface[] = {&M2M_100, NULL};
