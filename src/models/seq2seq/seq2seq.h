/* Encoder-decoders: the Transformer of 2017, BART, Marian, mBART, M2M-100 and T5. Stream 1 is the
 * source, which the encoder's layers see in both directions up to its length; stream 0 is the
 * target, which the decoder's layers see causally, with cross-attention to the source. Source:
 * Vaswani et al. 2017; Lewis et al. 2020; Junczys-Dowmunt et al. 2018; Liu et al. 2020; Fan et al.
 * 2021; Raffel et al. 2020. */
#pragma once

#include "models/family.h"
#include "models/stack/transformer.h"
#include "models/stack/variants.h"
#include "nn/core/layers.h"

/** Items of the activations, and streams of the batch. */
enum { BP_TARGET, BP_SOURCE };

/** Their own sizes. */
typedef struct bp_seq2seq_sizes {
    int64_t encoder_layers, decoder_layers;
    int64_t start_token;   /* 1 + the id that targets begin with; 0: the end-of-document token's */
    int64_t activation;    /* index into the form's activations */
    int64_t unscaled;      /* 1: embeddings are not scaled, though the form scales them */
    int64_t decoder_heads; /* of the decoder's layers, with the encoder's total columns; 0: the
                              encoder's heads */
    int64_t decoder_inner; /* the decoder's inner width; 0: the encoder's */
} bp_seq2seq_sizes;
BP_OWN_SIZES(bp_seq2seq_sizes)

/** Positions: learned, from row 2 of a table on; sines and cosines, interleaved by frequency, or
 * sines in the first half of columns and cosines in the second, or the latter with fairseq's
 * frequencies from place 2 on; or learned weights of distances, added to unscaled scores. */
typedef enum bp_seq2seq_positions {
    BP_LEARNED,
    BP_SINES,
    BP_SINES_IN_HALVES,
    BP_SINES_OF_FAIRSEQ,
    BP_DISTANCES
} bp_seq2seq_positions;

/** Column c of C at position t, of a layout with sines. Source: Vaswani et al. 2017, section 3.5;
 * for halves and their frequencies, Tensor2Tensor's and fairseq's published code. */
double bp_seq2seq_sinusoid(bp_seq2seq_positions layout, int64_t t, int64_t c, int64_t C);

/** What a family's models have in common: encoder-decoders are data, as stacks are
 * (models/stack/stack.h). */
#define BP_SEQ2SEQ_ACTIVATIONS 4
typedef struct bp_seq2seq_form {
    bp_activation activations[BP_SEQ2SEQ_ACTIVATIONS]; /* of MLPs; a model has one of them */
    bp_seq2seq_positions positions;
    double epsilon;           /* of norms */
    bool rms;                 /* norms by the root mean square; nothing has a bias */
    bool pre_norm;            /* norms before branches and after each stack, else after branches */
    bool drops_states;        /* dropout after the stacks' final norms */
    bool embedding_norms;     /* blocks of their own */
    bool scales_embedding;    /* by the root of the width */
    bool tied;                /* ties the head to the embedding; stack.other_tie inverts it */
    bool scales_states;       /* a tied head divides states by the root of the width */
    bool head_bias;           /* a constant [1][V], of folders */
    bool dense;               /* bp_backbone.dense */
    bool starts_with_padding; /* its vector is not trained (nor that of other padding); */
    bool padding_learns;      /* padding's vector is trained everywhere in a target */
    float embedding_std;      /* of initial values; 0: BP_TRANSFORMER_STD */
} bp_seq2seq_form;

/** Sizes of all families; a family's list continues them. */
#define BP_SEQ2SEQ_SIZES                                                                           \
    {.name = "layers", .at = BP_SIZE_AT(layers), .optional = true},                                \
        {.name = "width", .at = BP_SIZE_AT(width)}, {.name = "heads", .at = BP_SIZE_AT(heads)},    \
        {.name = "context", .at = BP_SIZE_AT(context)},                                            \
        {.name = "encoder_layers",                                                                 \
         .at = BP_OWN_AT(bp_seq2seq_sizes, encoder_layers),                                        \
         .optional = true},                                                                        \
        {.name = "decoder_layers",                                                                 \
         .at = BP_OWN_AT(bp_seq2seq_sizes, decoder_layers),                                        \
         .optional = true},                                                                        \
        {.name = "inner", .at = BP_SIZE_AT(stack.inner), .optional = true},                        \
        {.name = "head_width",                                                                     \
         .at = BP_SIZE_AT(stack.head_width),                                                       \
         .optional = true,                                                                         \
         .quiet = true},                                                                           \
        BP_VARIANT_ATTENTION_SIZE, BP_VARIANT_HEAD_SIZES,                                          \
        {.name = "start_token", .at = BP_OWN_AT(bp_seq2seq_sizes, start_token), .optional = true}, \
    {                                                                                              \
        .name = "norm_epsilon", .at = BP_SIZE_AT(stack.epsilon), .type = BP_SIZE_REAL,             \
        .optional = true                                                                           \
    }
/** For a family whose decoder may have its own number of heads, and inner width. */
#define BP_SEQ2SEQ_DECODER_SIZES                                                                   \
    {.name = "decoder_heads", .at = BP_OWN_AT(bp_seq2seq_sizes, decoder_heads), .optional = true}, \
    {                                                                                              \
        .name = "decoder_inner", .at = BP_OWN_AT(bp_seq2seq_sizes, decoder_inner),                 \
        .optional = true                                                                           \
    }
#define BP_SEQ2SEQ_DECODER_KEYS                                                                    \
    {BP_INT_KEY("model.decoder_heads", NULL, 1, 65536),                                            \
     .help = "heads of the decoder's layers, which share out as many columns as the encoder's; "   \
             "model.heads if not given"},                                                          \
    {                                                                                              \
        BP_INT_KEY("model.decoder_inner", NULL, 1, 1 << 24),                                       \
            .help = "inner width of the decoder's layers; model.inner if not given"                \
    }
/** Rows of a family's keys for these sizes. */
#define BP_SEQ2SEQ_KEYS                                                                            \
    {BP_INT_KEY("model.encoder_layers", NULL, 1, 10000),                                           \
     .help = "layers of the encoder; model.layers if not given"},                                  \
    {                                                                                              \
        BP_INT_KEY("model.decoder_layers", NULL, 1, 10000),                                        \
            .help = "layers of the decoder; model.layers if not given"                             \
    }
#define BP_SEQ2SEQ_START_KEY(otherwise)                                                            \
    {                                                                                              \
        BP_INT_KEY("model.start_token", NULL, 1, 1LL << 31),                                       \
            .help = "the token that targets begin with, by its row of the vocabulary from 1 on "   \
                    "(Hugging Face's decoder_start_token_id + 1); " otherwise " if not given"      \
    }
#define BP_T5_GATED_KEY                                                                            \
    {                                                                                              \
        BP_BOOL_KEY("model.gated", NULL), .help = "the MLP is down(gelu(gate) up), version "       \
                                                  "1.1's; no: down(relu(up)); yes if not given"    \
    }
/* Streams of dropout masks, beyond those of models with one stack: two of the embeddings, two after
 * the stacks, then eight per layer, of which five are used. */
#define BP_SEQ2SEQ_DROPOUT              (1LL << 32)
#define BP_SEQ2SEQ_LAYER_DROPOUT(layer) (BP_SEQ2SEQ_DROPOUT + 8 * ((layer) + 1))

/** For bp_model_family, under its names there. */
void bp_seq2seq_fill_defaults(bp_model_shape *shape);
void bp_seq2seq_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
bp_err bp_seq2seq_check_read(const bp_model_shape *shape, const char *where);
int bp_seq2seq_key_block(const bp_model_shape *shape);
/** Heads of the decoder's layers. */
int64_t bp_seq2seq_decoder_heads(const bp_model_shape *shape);
bp_model_facts bp_seq2seq_facts(const bp_model_shape *shape);
/** Block lists of forms whose norms follow branches, or precede them; sources without and with
 * language tags that follow. */
extern const bp_block_list bp_seq2seq_post_norm, bp_seq2seq_pre_norm;
extern const bp_source_form bp_seq2seq_source, bp_seq2seq_tagged_source;
/** Members of bp_model_family for a form, with one block list and one source form. */
#define BP_SEQ2SEQ_FAMILY(list, reads)                                                             \
    .facts = bp_seq2seq_facts, .objective = &bp_objective_seq2seq,                                 \
    .key_block = bp_seq2seq_key_block, .blocks = &(list), .source = &(reads)

/** Sizes and rows of a classifier, with bert.h's macros: the state of the last place, a tanh layer,
 * and a linear layer. Labels: the default number where config.json names none. And the rows of a
 * model that finds spans. A table's flags "classifies" and "finds_spans" say which rows it has.
 * Source: Hugging Face's BartClassificationHead and T5ClassificationHead. */
#define BP_SEQ2SEQ_TASK(kind, labels)                                                              \
    BP_BERT_TASK(kind, "3"), {"dense", NULL, NULL, BP_HF_FLAG, "1"},                               \
    {                                                                                              \
        "outcomes", "id2label", NULL, BP_HF_LABELS, labels                                         \
    }
#define BP_SEQ2SEQ_HEAD_ROW(theirs, rows, columns, ours, flag)                                     \
    {                                                                                              \
        theirs, rows, columns, false, 1, {ours}, .only_if = flag                                   \
    }
#define BP_SEQ2SEQ_HEAD_ROWS                                                                       \
    BP_SEQ2SEQ_HEAD_ROW("classification_head.dense.weight", "width", "width", "pooler.weight",     \
                        "classifies"),                                                             \
        BP_SEQ2SEQ_HEAD_ROW("classification_head.dense.bias", "width", NULL, "pooler.bias",        \
                            "classifies"),                                                         \
        BP_SEQ2SEQ_HEAD_ROW("classification_head.out_proj.weight", "outcomes", "width",            \
                            "task.weight", "classifies"),                                          \
        BP_SEQ2SEQ_HEAD_ROW("classification_head.out_proj.bias", "outcomes", NULL, "task.bias",    \
                            "classifies"),                                                         \
        BP_SEQ2SEQ_HEAD_ROW("qa_outputs.weight", "2", "width", "task.weight", "finds_spans"),      \
        BP_SEQ2SEQ_HEAD_ROW("qa_outputs.bias", "2", NULL, "task.bias", "finds_spans")

extern const bp_hf_table *const bp_transformer_huggingface[],
    *const bp_bart_huggingface[], *const bp_marian_huggingface[],
                                      *const bp_mbart_huggingface[],
                                          *const bp_m2m_100_huggingface[],
                                              *const bp_t5_huggingface[],
                                                  *const bp_t5_encoder_huggingface[];
