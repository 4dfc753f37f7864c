/* Recurrent models in folders of the form of Hugging Face's, with the names of torch.nn's
 * modules. */
#include "models/recurrent/recurrent.h"

/* clang-format off */
#define SHARED_SIZES                                                                               \
    {"layers", "num_layers", NULL},                                                                \
    {"width", "hidden_size", NULL},                                                                \
    {"embedding", "embedding_size", NULL, BP_HF_COUNT, "width"},                                   \
    {"context", "context", NULL, BP_HF_COUNT, "64"}, /* only of training windows */                \
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "0"},                                        \
    {"vocab_size", "vocab_size", NULL}
/* clang-format on */

static const bp_hf_size SIZES[] = {SHARED_SIZES, {0}};
/* A mixed cell can't be exported: its word is not among them. */
static const bp_hf_size CELL_SIZES[] = {
    SHARED_SIZES,
    {"cell", "cell", NULL, BP_HF_PAIRS, .words = "none|tanh|relu|sigmoid|identity"},
    {0}};

static const bp_hf_setting SETTINGS[] = {{0}};
static const char *const BUFFERS[] = {NULL};

#define EMBEDDING                                                                                  \
    {                                                                                              \
        "encoder.weight", "vocab_size", "embedding", false, 1,                                     \
        {                                                                                          \
            "wte"                                                                                  \
        }                                                                                          \
    }
#define WEIGHTS(gates)                                                                             \
    {"rnn.weight_ih_l*",          gates, "width", false, 1, {"h.*.input.weight"},                  \
     .first_columns = "embedding"},                                                                \
    {                                                                                              \
        "rnn.weight_hh_l*", gates, "width", false, 1,                                              \
        {                                                                                          \
            "h.*.hidden.weight"                                                                    \
        }                                                                                          \
    }
#define HIDDEN_BIAS(gates)                                                                         \
    {                                                                                              \
        "rnn.bias_hh_l*", gates, NULL, false, 1,                                                   \
        {                                                                                          \
            "h.*.hidden.bias"                                                                      \
        }                                                                                          \
    }
#define INPUT_BIAS(gates)                                                                          \
    {                                                                                              \
        "rnn.bias_ih_l*", gates, NULL, false, 1,                                                   \
        {                                                                                          \
            "h.*.input.bias"                                                                       \
        }                                                                                          \
    }
#define HEAD                                                                                       \
    {"decoder.weight", "vocab_size", "width", false, 1, {"head"}, "!tied"},                        \
    {                                                                                              \
        "decoder.bias", "vocab_size", NULL, false, 1,                                              \
        {                                                                                          \
            "head.bias"                                                                            \
        }                                                                                          \
    }

static const bp_hf_row RNN_ROWS[] = {
    EMBEDDING, WEIGHTS("width"), INPUT_BIAS("width"), HIDDEN_BIAS("width"), HEAD, {0}};
static const bp_hf_row GRU_ROWS[] = {
    EMBEDDING, WEIGHTS("3*width"), INPUT_BIAS("3*width"), HIDDEN_BIAS("3*width"), HEAD, {0}};
/* The forget gate's bias starts at 1, so gates have separate biases. */
static const bp_hf_row LSTM_ROWS[] = {
    EMBEDDING,
    WEIGHTS("4*width"),
    {"rnn.bias_ih_l*",
     "4*width",
     NULL,
     false,
     4,
     {"h.*.input.bias.i", "h.*.input.bias.f", "h.*.input.bias.g", "h.*.input.bias.o"}},
    HIDDEN_BIAS("4*width"),
    HEAD,
    {0}};

static const bp_hf_row CELL_ROWS[] = {
    EMBEDDING,
    WEIGHTS("2*width"),
    {"rnn.weight_nodes_l*", "cell*2*width", "width", false, 1, {"h.*.nodes.weight"}},
    HEAD,
    {0}};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t embedding = bp_hf_size_of(shape, "embedding"), width = bp_hf_size_of(shape, "width");

    if (bp_hf_size_of(shape, "tied") == 0 || embedding == width)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "huggingface.unlike_widths",
        "\"tie_word_embeddings\" needs \"embedding_size\" %lld and \"hidden_size\" %lld to "
        "be equal: at %s; give another model",
        (long long)embedding, (long long)width, path);
}

#define TABLE(type, class, sizes_of, rows_of)                                                      \
    {                                                                                              \
        .kind = type, .model_type = type, .architecture = class, .prefix = "",                     \
        .first = "encoder.weight", .head = "decoder.weight", .tied = "encoder.weight",             \
        .sizes = sizes_of, .settings = SETTINGS, .rows = rows_of, .buffers = BUFFERS,              \
        .more = "{\"torch_dtype\": \"float32\"}", .check = check,                                  \
        .instead = "mamba2, gpt or llama"                                                          \
    }

static const bp_hf_table RNN = TABLE("rnn", "RNNForCausalLM", SIZES, RNN_ROWS),
                         LSTM = TABLE("lstm", "LSTMForCausalLM", SIZES, LSTM_ROWS),
                         GRU = TABLE("gru", "GRUForCausalLM", SIZES, GRU_ROWS),
                         CELL = TABLE("cell", "CellForCausalLM", CELL_SIZES, CELL_ROWS);

const bp_hf_table *const bp_rnn_huggingface[] = {&RNN, NULL},
                         *const bp_lstm_huggingface[] = {&LSTM, NULL},
                         *const bp_gru_huggingface[] = {&GRU, NULL},
                         *const bp_cell_huggingface[] = {&CELL, NULL};
