/* The families Transformer and BART: their sizes, and their blocks: the embeddings of both streams
 * (and their norms), the encoder's layers, the decoder's layers, the vocabulary. */
#include "models/seq2seq/seq2seq.h"

#include "base/mem.h"
#include "models/transformer.h"
#include "nn/core/layers.h"

#include <math.h>

#define EPSILON 1e-5
/* Of BART's tables: the rows before it are of its padding, and of none. */
#define FIRST_POSITION  2
#define WAVELENGTH_BASE 10000.0

static const bp_model_size SIZES[] = {BP_SEQ2SEQ_SIZES, {0}},
                           BART_SIZES[] = {BP_SEQ2SEQ_SIZES, BP_POSITIONS_SIZE, {0}};

static const bp_option KEYS[] = {
    BP_SEQ2SEQ_KEYS, BP_SEQ2SEQ_START_KEY("the end-of-document token"), {0}};

static bool is_bart(const bp_model_shape *shape)
{
    return shape->family == &bp_bart_family;
}

void bp_seq2seq_settle(bp_model_shape *shape, double epsilon)
{
    int64_t *own = shape->own;
    double *given = &shape->stack.epsilon;

    own[BP_SEQ2SEQ_ENCODERS] = bp_given_or(own[BP_SEQ2SEQ_ENCODERS], shape->layers);
    own[BP_SEQ2SEQ_DECODERS] = bp_given_or(own[BP_SEQ2SEQ_DECODERS], shape->layers);
    shape->layers = own[BP_SEQ2SEQ_DECODERS];
    shape->stack.inner = bp_given_or(shape->stack.inner, 4 * shape->width);
    if (shape->width % shape->heads == 0)
        shape->stack.head_width = bp_given_or(shape->stack.head_width, shape->width / shape->heads);
    *given = *given > 0 ? *given : epsilon;
}

static void settle(bp_model_shape *shape)
{
    bp_seq2seq_settle(shape, EPSILON);
}

void bp_seq2seq_check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    if (shape->stack.head_width == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensors, config);
    bp_transformer_check_inner(shape, shape->stack.inner, tensors, config);
    if (shape->own[BP_SEQ2SEQ_ENCODERS] == 0 || shape->own[BP_SEQ2SEQ_DECODERS] == 0)
        bp_config_fault(config, "model.missing_key",
                        "model.layers is missing: at the configuration; give it, or "
                        "model.encoder_layers and model.decoder_layers");
}

bp_layer_shape bp_seq2seq_layer(const bp_model_shape *shape, int number, bool of_source)
{
    int64_t encoders = shape->own[BP_SEQ2SEQ_ENCODERS];

    return (bp_layer_shape){.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = shape->heads,
                            .D = shape->stack.head_width,
                            .F = shape->stack.inner,
                            .epsilon = (float)shape->stack.epsilon,
                            .layers = of_source ? encoders : shape->own[BP_SEQ2SEQ_DECODERS],
                            .number = number,
                            .stack = of_source ? "encoder" : "decoder",
                            .first_mask =
                                BP_SEQ2SEQ_LAYER_MASK(of_source ? number : encoders + number),
                            .sees_all = of_source,
                            .item = of_source ? BP_SOURCE : BP_TARGET,
                            .stream = of_source ? BP_SOURCE : BP_TARGET,
                            .crosses = !of_source,
                            .source_item = BP_SOURCE,
                            .source_stream = BP_SOURCE};
}

bp_err bp_seq2seq_check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->own[BP_SEQ2SEQ_ENCODERS] == 0 || shape->own[BP_SEQ2SEQ_DECODERS] == 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model has no layers: at %s; the checkpoint is wrong", where);
    return shape->stack.head_width > 0 ? BP_OK : bp_transformer_check_read(shape, where);
}

/* ---- blocks ---- */

typedef enum part { EMBEDDING, SOURCE_NORM, TARGET_NORM, ENCODER, DECODER, VOCABULARY } part;

/* What is a block of the list; *number: which of the layers. */
static part part_of(const bp_model_shape *shape, int block, int *number)
{
    int norms = is_bart(shape) ? 2 : 0, encoders = (int)shape->own[BP_SEQ2SEQ_ENCODERS],
        decoders = (int)shape->own[BP_SEQ2SEQ_DECODERS], at = block - 1 - norms;

    if (block <= norms)
        return (part)block;
    *number = at < encoders ? at : at - encoders;
    return at < encoders ? ENCODER : at < encoders + decoders ? DECODER : VOCABULARY;
}

static int blocks(const bp_model_shape *shape)
{
    return (int)(shape->own[BP_SEQ2SEQ_ENCODERS] + shape->own[BP_SEQ2SEQ_DECODERS]) + 2 +
           (is_bart(shape) ? 2 : 0);
}

/* Before the head. */
static int key_block(const bp_model_shape *shape)
{
    return blocks(shape) - 2;
}

bp_activations bp_seq2seq_behind(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){.count = 2,
                            .item = {{"hidden", BP_TARGET, shape->width, true, NULL},
                                     {"source", BP_SOURCE, shape->width, true, NULL}}};
}

/* Sines in even columns and cosines in odd ones. Source: Vaswani et al. 2017, section 3.5. */
static void begin(bp_network *network, const bp_model_shape *shape)
{
    int64_t C = shape->width;
    float *table;

    if (is_bart(shape))
        return;
    network->tables = table = bp_alloc("sinusoids", shape->context * C, sizeof *table);
    for (int64_t t = 0; t < shape->context; t++)
        for (int64_t c = 0; c < C; c++) {
            double angle = (double)t * pow(WAVELENGTH_BASE, -(double)(c - c % 2) / (double)C);
            table[t * C + c] = (float)(c % 2 ? cos(angle) : sin(angle));
        }
}

static bp_block *new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    static const char *const TABLES[] = {"decoder.wpe", "encoder.wpe"};
    bp_embedding_part parts[BP_STREAMS];
    bp_group *whole = bp_network_add_group(network, true);
    bp_block *block;

    if (!shared) /* a task's head has its own matrix */
        shared = bp_transformer_add_table(network, shape, "wte");
    for (int stream = 0; stream < BP_STREAMS; stream++) {
        bp_embedding_part *own = &parts[stream];

        *own = (bp_embedding_part){.wte = shared,
                                   .item = stream,
                                   .stream = stream,
                                   .mask = BP_SEQ2SEQ_MASK + stream,
                                   .tokens_behind = stream == BP_TARGET}; /* bp_task_mirror */
        if (is_bart(shape)) {
            own->wpe = bp_group_add_matrix(whole, TABLES[stream],
                                           FIRST_POSITION + bp_model_positions(shape), shape->width,
                                           BP_TRANSFORMER_STD);
            own->first_position = FIRST_POSITION;
            own->keeps_all = true;
        } else {
            own->scale = sqrtf((float)shape->width);
            own->sinusoids = network->tables;
        }
    }
    bp_embedding_new(&block, &network->nn, parts, BP_STREAMS);
    return block;
}

static bp_block *new_norm(bp_network *network, const bp_model_shape *shape, int stream)
{
    bp_row_shape row = {.name = stream == BP_SOURCE ? "encoder.embedding" : "decoder.embedding",
                        .I = shape->width,
                        .O = shape->width,
                        .epsilon = (float)shape->stack.epsilon,
                        .mask = BP_SEQ2SEQ_MASK + stream,
                        .item = stream,
                        .stream = stream};
    bp_block *block;

    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

/* Layer `number` of the encoder, or of the decoder. */
static bp_layer_shape layer_of(const bp_model_shape *shape, int number, bool of_source)
{
    bp_layer_shape layer = bp_seq2seq_layer(shape, number, of_source);

    layer.activation = is_bart(shape) ? BP_GELU_EXACT : BP_RELU;
    layer.post_norm = true;
    return layer;
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number,
                           bool of_source)
{
    bp_layer_shape layer = layer_of(shape, number, of_source);

    return bp_transformer_new_layer(network, &layer);
}

/* BART's logits have a bias that is not trained: [1][V], as its folders have it. */
static bp_block *new_vocabulary(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.sparse = true};
    int64_t first, count;
    bp_block *block;

    if (is_bart(shape)) {
        bp_group *fixed = bp_network_add_group(network, false);

        fixed->frozen = true;
        bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
        head.bias =
            bp_group_add_matrix_part(fixed, "head.bias", 1, shape->vocab_size, 0, 1, first, count);
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

int64_t bp_seq2seq_start_token(const bp_model_shape *shape)
{
    return shape->own[BP_SEQ2SEQ_START] - 1;
}

double bp_seq2seq_layer_cost(const bp_layer_shape *layer, const bp_model_shape *shape)
{
    return 2 * (double)bp_transformer_layer_products(layer) +
           (layer->crosses ? 8 : 4) * (double)shape->context * (double)(layer->H * layer->D);
}

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

static bp_backbone backbone(const bp_model_shape *shape)
{
    return (bp_backbone){.blocks = blocks(shape) - 1,
                         .layers_from = is_bart(shape) ? 3 : 1,
                         .epsilon = (float)shape->stack.epsilon,
                         .dense = is_bart(shape),
                         .head_flops = 6 * (double)shape->vocab_size * (double)shape->width};
}

/* FLOPs of layers and the head: norms and the embeddings are not counted. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    int first = is_bart(shape) ? 3 : 1;
    double forward = 0;

    for (int block = first; block < blocks(shape); block++)
        forward += cost(shape, block);
    return (bp_model_facts){.train_flops = 3 * forward};
}

#define FAMILY(kind, list, tables, any, other)                                                     \
    {                                                                                              \
        .name = kind, .sizes = list, .keys = KEYS, .any_context = any, .settle = settle,           \
        .check = bp_seq2seq_check, .check_read = bp_seq2seq_check_read, .facts = facts,            \
        .backbone = backbone, .start_token = bp_seq2seq_start_token,                               \
        .objective = &bp_objective_seq2seq, .other_objective = other, .huggingface = tables,       \
        .blocks = blocks, .key_block = key_block,                                                  \
        .blocks_are = "embeddings, layers of encoder and decoder, head", .cost = cost,             \
        .behind = bp_seq2seq_behind, .begin = begin, .add_shared = bp_transformer_add_tied,        \
        .add_block = add_block                                                                     \
    }

const bp_model_family bp_transformer_family =
                          FAMILY("transformer", SIZES, bp_transformer_huggingface, true, NULL),
                      bp_bart_family = FAMILY("bart", BART_SIZES, bp_bart_huggingface, false,
                                              &bp_objective_denoise);
