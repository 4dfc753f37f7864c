/* The family T5, versions 1.0 and 1.1: its sizes, and its blocks: the embeddings of both streams,
 * the encoder's layers and their norm, the decoder's layers and their norm, the vocabulary. Source:
 * Raffel et al. 2020; Shazeer 2020 (version 1.1). */
#include "models/seq2seq/seq2seq.h"

#include "models/transformer.h"
#include "nn/core/layers.h"

#include <math.h>

#define EPSILON  1e-6
#define BUCKETS  32
#define DISTANCE 128
/* Initial values, of what is added to scores too: where nothing scales the states that meet them,
 * they are so small instead. */
#define EMBEDDING_STD    1.0F
#define STATE_STD(width) (1 / sqrtf((float)(width)))

enum { ENCODER_TABLE = 1, DECODER_TABLE }; /* of relative positions: sets of copies */

static const bp_model_size SIZES[] = {
    BP_SEQ2SEQ_SIZES,
    {.name = "tied", .at = BP_SIZE_AT(stack.other_tie), .type = BP_SIZE_FLAG, .optional = true},
    {.name = "gated",
     .at = BP_SIZE_AT(own[BP_T5_UNGATED]),
     .type = BP_SIZE_FLAG,
     .optional = true,
     .inverse = true},
    {.name = "relative_buckets", .at = BP_SIZE_AT(own[BP_T5_BUCKETS]), .optional = true},
    {.name = "relative_distance", .at = BP_SIZE_AT(own[BP_T5_DISTANCE]), .optional = true},
    {0}};

static const bp_option KEYS[] = {
    BP_SEQ2SEQ_KEYS,
    BP_SEQ2SEQ_START_KEY("1, its padding,"),
    {.key = "model.norm_epsilon",
     .type = BP_OPTION_REAL,
     .min = 1e-12,
     .max = 1,
     .help = "what norms add to the mean square; 1e-6 if not given"},
    {.key = "model.gated",
     .type = BP_OPTION_BOOL,
     .help = "the MLP is down(gelu(gate) up), version 1.1's; no: down(relu(up)); yes if not given"},
    {.key = "model.relative_buckets",
     .type = BP_OPTION_INT,
     .min = 4,
     .max = 1 << 16,
     .help = "groups of distances between tokens that attention distinguishes; 32 if not given"},
    {.key = "model.relative_distance",
     .type = BP_OPTION_INT,
     .min = 3,
     .max = 1 << 24,
     .unit = "tokens",
     .help = "distances from this one on are one group, above half of model.relative_buckets; 128 "
             "if not given"},
    {0}};

static void settle(bp_model_shape *shape)
{
    int64_t *own = shape->own;

    bp_seq2seq_settle(shape, EPSILON);
    own[BP_SEQ2SEQ_START] = own[BP_SEQ2SEQ_START] > 0 ? own[BP_SEQ2SEQ_START] : 1;
    own[BP_T5_BUCKETS] = own[BP_T5_BUCKETS] > 0 ? own[BP_T5_BUCKETS] : BUCKETS;
    own[BP_T5_DISTANCE] = own[BP_T5_DISTANCE] > 0 ? own[BP_T5_DISTANCE] : DISTANCE;
}

/* The encoder halves its buckets by sides, and both halve theirs by exact distances. */
static bool buckets_fit(const bp_model_shape *shape)
{
    int64_t buckets = shape->own[BP_T5_BUCKETS];

    return buckets >= 4 && buckets % 2 == 0 && shape->own[BP_T5_DISTANCE] > buckets / 2;
}

#define BAD_BUCKETS                                                                                \
    "%lld buckets of distances up to %lld do not go together: at %s; give an even number of "      \
    "buckets, at least 4, and a distance above half of it"

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    bp_seq2seq_check(shape, tensors, config);
    if (!buckets_fit(shape))
        bp_config_fault(config, "model.bad_buckets", BAD_BUCKETS,
                        (long long)shape->own[BP_T5_BUCKETS], (long long)shape->own[BP_T5_DISTANCE],
                        "model.relative_buckets");
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (!buckets_fit(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size", BAD_BUCKETS,
                       (long long)shape->own[BP_T5_BUCKETS], (long long)shape->own[BP_T5_DISTANCE],
                       where);
    return bp_seq2seq_check_read(shape, where);
}

/* ---- blocks ---- */

typedef enum part { EMBEDDING, ENCODER, SOURCE_NORM, DECODER, TARGET_NORM, VOCABULARY } part;

/* What is a block of the list; *number: which of the layers. */
static part part_of(const bp_model_shape *shape, int block, int *number)
{
    int encoders = (int)shape->own[BP_SEQ2SEQ_ENCODERS],
        decoders = (int)shape->own[BP_SEQ2SEQ_DECODERS], at = block - 1;

    if (block == 0)
        return EMBEDDING;
    *number = at < encoders ? at : at - encoders - 1;
    return at < encoders         ? ENCODER
           : at == encoders      ? SOURCE_NORM
           : *number < decoders  ? DECODER
           : *number == decoders ? TARGET_NORM
                                 : VOCABULARY;
}

static int blocks(const bp_model_shape *shape)
{
    return (int)(shape->own[BP_SEQ2SEQ_ENCODERS] + shape->own[BP_SEQ2SEQ_DECODERS]) + 4;
}

/* Before the last norm and the head. */
static int key_block(const bp_model_shape *shape)
{
    return blocks(shape) - 3;
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int count)
{
    bp_tied_table table = {"wte", shape->vocab_size, shape->width, EMBEDDING_STD};

    return shape->stack.other_tie ? bp_network_add_tied(network, &table, stage, stages, count)
                                  : NULL;
}

static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    bp_tied_table table = {"encoder.relative", shape->own[BP_T5_BUCKETS], shape->heads,
                           STATE_STD(shape->width)};

    bp_network_add_common(network, &table, ENCODER_TABLE, stage);
    table.name = "decoder.relative";
    bp_network_add_common(network, &table, DECODER_TABLE, stage);
}

static bp_block *new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_embedding_part parts[BP_STREAMS];
    bp_block *block;

    if (!shared) {
        shared = bp_transformer_add_table(network, shape, "wte");
        shared->init_std = EMBEDDING_STD;
    }
    for (int stream = 0; stream < BP_STREAMS; stream++)
        parts[stream] = (bp_embedding_part){
            .wte = shared,
            .item = stream,
            .stream = stream,
            .mask = BP_SEQ2SEQ_MASK + stream,
            .tokens_behind = stream == BP_TARGET ? shape->context : 0}; /* T5's padding learns */
    bp_embedding_new(&block, &network->nn, parts, BP_STREAMS);
    return block;
}

/* After a stack; a tied vocabulary takes what it reads smaller by the root of the width. */
static bp_block *new_norm(bp_network *network, const bp_model_shape *shape, int stream)
{
    bool scaled = stream == BP_TARGET && shape->stack.other_tie && !bp_task_has_head(&shape->task);
    bp_row_shape row = {.name = stream == BP_SOURCE ? "encoder" : "decoder",
                        .I = shape->width,
                        .O = shape->width,
                        .rms = true,
                        .scale = scaled ? STATE_STD(shape->width) : 0,
                        .epsilon = (float)shape->stack.epsilon,
                        .mask = BP_SEQ2SEQ_MASK + BP_STREAMS + stream,
                        .item = stream,
                        .stream = stream};
    bp_block *block;

    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

/* Layer `number` of the encoder, or of the decoder, except for its biases of scores. */
static bp_layer_shape layer_of(const bp_model_shape *shape, int number, bool of_source)
{
    bp_layer_shape layer = bp_seq2seq_layer(shape, number, of_source);

    layer.rms = layer.no_bias = layer.unscaled = true;
    layer.activation = shape->own[BP_T5_UNGATED] ? BP_RELU : BP_GEGLU;
    return layer;
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number,
                           bool of_source)
{
    bp_layer_shape layer = layer_of(shape, number, of_source);

    layer.relative = bp_network_common(network, of_source ? ENCODER_TABLE : DECODER_TABLE);
    layer.relative_buckets = shape->own[BP_T5_BUCKETS];
    layer.relative_distance = shape->own[BP_T5_DISTANCE];
    return bp_transformer_new_layer(network, &layer);
}

static bp_block *new_vocabulary(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.sparse = true};
    bp_block *block;

    if (!shared) {
        shared = bp_transformer_add_table(network, shape, "head");
        shared->init_std = STATE_STD(shape->width);
    }
    bp_variants_set_head(&head, network, shape);
    bp_lm_head_new(&block, &network->nn, &head, shared, NULL);
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    int layer = 0;
    part of = part_of(shape, number, &layer);

    bp_network_add_block(network, of == EMBEDDING     ? new_embedding(network, shape, shared)
                                  : of == SOURCE_NORM ? new_norm(network, shape, BP_SOURCE)
                                  : of == TARGET_NORM ? new_norm(network, shape, BP_TARGET)
                                  : of == VOCABULARY
                                      ? new_vocabulary(network, shape, shared)
                                      : new_layer(network, shape, layer, of == ENCODER));
}

/* ---- what follows from sizes ---- */

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;
    int number = 0;
    part of = part_of(shape, block, &number);
    bp_layer_shape layer = layer_of(shape, number, of == ENCODER);

    switch (of) {
    case EMBEDDING:
        return 50 * C;
    case SOURCE_NORM:
    case TARGET_NORM:
        return 10 * C;
    case ENCODER:
    case DECODER:
        return bp_seq2seq_layer_cost(&layer, shape);
    default:
        return 2 * (double)shape->vocab_size * C;
    }
}

/* FLOPs of layers and the head: norms and the embeddings are not counted. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    double forward = 0;
    int number;

    for (int block = 1; block < blocks(shape); block++) {
        part of = part_of(shape, block, &number);

        forward += of == SOURCE_NORM || of == TARGET_NORM ? 0 : cost(shape, block);
    }
    return (bp_model_facts){.train_flops = 3 * forward};
}

static bp_backbone backbone(const bp_model_shape *shape)
{
    int64_t table = shape->vocab_size * shape->width;

    return (bp_backbone){.blocks = blocks(shape) - 1,
                         .layers_from = 1,
                         .rms = true,
                         .epsilon = (float)shape->stack.epsilon,
                         .dense = true,
                         .head_flops = 6 * (double)table};
}

const bp_model_family bp_t5_family = {.name = "t5",
                                      .sizes = SIZES,
                                      .keys = KEYS,
                                      .any_context = true,
                                      .settle = settle,
                                      .check = check,
                                      .check_read = check_read,
                                      .facts = facts,
                                      .backbone = backbone,
                                      .start_token = bp_seq2seq_start_token,
                                      .objective = &bp_objective_seq2seq,
                                      .other_objective = &bp_objective_denoise,
                                      .huggingface = bp_t5_huggingface,
                                      .blocks = blocks,
                                      .key_block = key_block,
                                      .blocks_are = "embeddings, layers of encoder and decoder "
                                                    "with their norms, head",
                                      .cost = cost,
                                      .behind = bp_seq2seq_behind,
                                      .add_shared = add_shared,
                                      .add_common = add_common,
                                      .add_block = add_block};
