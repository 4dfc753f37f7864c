/* The families Transformer, BART, Marian, mBART and M2M-100 (NLLB): norms with biases, a head tied
 * to the embedding. */
#include "models/seq2seq/seq2seq.h"

#define EPSILON 1e-5

static const bp_seq2seq_form TRANSFORMER = {.activations = {BP_RELU},
                                            .positions = BP_SINES,
                                            .epsilon = EPSILON,
                                            .scales_embedding = true,
                                            .tied = true},
                             BART = {.activations = {BP_GELU_EXACT},
                                     .epsilon = EPSILON,
                                     .embedding_norms = true,
                                     .tied = true,
                                     .head_bias = true,
                                     .dense = true},
                             MARIAN = {.activations = {BP_SILU, BP_GELU_EXACT, BP_RELU,
                                                       BP_GELU_TANH},
                                       .positions = BP_SINES_IN_HALVES,
                                       .epsilon = EPSILON,
                                       .scales_embedding = true,
                                       .tied = true,
                                       .head_bias = true,
                                       .starts_with_padding = true},
                             MBART = {.activations = {BP_GELU_EXACT, BP_RELU, BP_SILU,
                                                      BP_GELU_TANH},
                                      .epsilon = EPSILON,
                                      .pre_norm = true,
                                      .embedding_norms = true,
                                      .scales_embedding = true,
                                      .tied = true,
                                      .head_bias = true,
                                      .dense = true},
                             M2M_100 = {
                                 .activations = {BP_RELU, BP_GELU_EXACT, BP_SILU, BP_GELU_TANH},
                                 .positions = BP_SINES_OF_FAIRSEQ,
                                 .epsilon = EPSILON,
                                 .pre_norm = true,
                                 .scales_embedding = true,
                                 .tied = true};

/* The words are in the order of the form's activations. */
#define CHOICES(list)                                                                              \
    {.name = "activation",                                                                         \
     .at = BP_OWN_AT(bp_seq2seq_sizes, activation),                                                \
     .type = BP_SIZE_CHOICE,                                                                       \
     .optional = true,                                                                             \
     .words = list},                                                                               \
    {                                                                                              \
        .name = "scale_embedding", .at = BP_OWN_AT(bp_seq2seq_sizes, unscaled),                    \
        .type = BP_SIZE_FLAG, .optional = true, .inverse = true                                    \
    }
static const bp_model_size
    SIZES[] = {BP_SEQ2SEQ_SIZES, BP_SEQ2SEQ_DECODER_SIZES, {0}},
    BART_SIZES[] = {BP_SEQ2SEQ_SIZES, BP_POSITIONS_SIZE, {0}},
    MARIAN_SIZES[] = {BP_SEQ2SEQ_SIZES, CHOICES("silu|gelu|relu|gelu_tanh"), {0}},
    MBART_SIZES[] = {BP_SEQ2SEQ_SIZES, BP_POSITIONS_SIZE, CHOICES("gelu|relu|silu|gelu_tanh"), {0}},
    M2M_100_SIZES[] = {BP_SEQ2SEQ_SIZES, CHOICES("relu|gelu|silu|gelu_tanh"), {0}};

#define KEYS_OF_ALL BP_SEQ2SEQ_KEYS, BP_SEQ2SEQ_START_KEY("the end-of-document token")
static const bp_option
    KEYS[] = {KEYS_OF_ALL, BP_SEQ2SEQ_DECODER_KEYS, {0}},
    BART_KEYS[] = {KEYS_OF_ALL, {0}},
    CHOSEN_KEYS[] = {
        KEYS_OF_ALL,
        {BP_CHOICE_KEY("model.activation", NULL, "gelu|relu|silu|gelu_tanh"),
         .help = "of MLPs; if not given silu of marian, gelu of mbart, relu of m2m_100"},
        {BP_BOOL_KEY("model.scale_embedding", NULL),
         .help = "token embeddings are multiplied by the root of the width; yes if not given"},
        {0}};

#define FAMILY(kind, form, list, own, tables, norms, reads)                                        \
    .name = kind, .sizes = list, .keys = own, .seq2seq = &(form),                                  \
    .fill_defaults = bp_seq2seq_fill_defaults, .check = bp_seq2seq_check,                          \
    .check_read = bp_seq2seq_check_read, .huggingface = tables, BP_SEQ2SEQ_FAMILY(norms, reads)
const bp_model_family
    bp_transformer_family = {FAMILY("transformer", TRANSFORMER, SIZES, KEYS,
                                    bp_transformer_huggingface, bp_seq2seq_post_norm,
                                    bp_seq2seq_source),
                             .any_context = true},
    bp_bart_family = {FAMILY("bart", BART, BART_SIZES, BART_KEYS, bp_bart_huggingface,
                             bp_seq2seq_post_norm, bp_seq2seq_source),
                      .other_objective = &bp_objective_denoise},
    bp_marian_family = {FAMILY("marian", MARIAN, MARIAN_SIZES, CHOSEN_KEYS, bp_marian_huggingface,
                               bp_seq2seq_post_norm, bp_seq2seq_source),
                        .any_context = true},
    bp_mbart_family = {FAMILY("mbart", MBART, MBART_SIZES, CHOSEN_KEYS, bp_mbart_huggingface,
                              bp_seq2seq_pre_norm, bp_seq2seq_tagged_source),
                       .other_objective = &bp_objective_denoise},
    bp_m2m_100_family = {FAMILY("m2m_100", M2M_100, M2M_100_SIZES, CHOSEN_KEYS,
                                bp_m2m_100_huggingface, bp_seq2seq_pre_norm, bp_seq2seq_source),
                         .any_context = true};
