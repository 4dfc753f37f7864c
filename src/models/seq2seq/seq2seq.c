/* Encoder-decoders of all families, described by their forms: the embeddings of both streams (and
 * their norms), the encoder's layers (and a norm), the decoder's layers (and a norm), the
 * vocabulary. Called by bart.c and t5.c. */
#include "models/seq2seq/seq2seq.h"

#include "base/mem.h"
#include "models/stack/transformer.h"

#include <math.h>

/* The first position's row in learned tables: the rows before it are unused or padding's. fairseq
 * counts positions from it on, too. */
#define FIRST_POSITION  2
#define WAVELENGTH_BASE 10000.0
/* Standard deviation for weights on unscaled states: smaller instead. */
#define STATE_STD(width) (1 / sqrtf((float)(width)))

enum { ENCODER_TABLE = 1, DECODER_TABLE }; /* sets of copies of distance tables */

static const bp_seq2seq_form *form_of(const bp_model_shape *shape)
{
    return shape->family->seq2seq;
}

static bool is_tied(const bp_model_shape *shape)
{
    return form_of(shape)->tied != (shape->stack.other_tie != 0);
}

/* ---- sizes, and valid combinations ---- */

int64_t bp_seq2seq_decoder_heads(const bp_model_shape *shape)
{
    return bp_given_or(bp_seq2seq_sizes_of(shape)->decoder_heads, shape->heads);
}

/* Columns of queries, shared out over all heads of a layer. */
static int64_t columns_of(const bp_model_shape *shape)
{
    return shape->heads * shape->stack.head_width;
}

static int64_t decoder_inner(const bp_model_shape *shape)
{
    return bp_given_or(bp_seq2seq_sizes_of(shape)->decoder_inner, shape->stack.inner);
}

void bp_seq2seq_fill_defaults(bp_model_shape *shape)
{
    bp_seq2seq_sizes *own = bp_seq2seq_sizes_in(shape);
    double *given = &shape->stack.epsilon;

    own->encoder_layers = bp_given_or(own->encoder_layers, shape->layers);
    own->decoder_layers = bp_given_or(own->decoder_layers, shape->layers);
    shape->layers = own->decoder_layers;
    shape->stack.inner = bp_given_or(shape->stack.inner, 4 * shape->width);
    if (shape->width % shape->heads == 0)
        shape->stack.head_width = bp_given_or(shape->stack.head_width, shape->width / shape->heads);
    *given = *given > 0 ? *given : form_of(shape)->epsilon;
}

void bp_seq2seq_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    if (shape->stack.head_width == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensor_ranks, config);
    bp_transformer_check_inner(shape, shape->stack.inner, tensor_ranks, config);
    if (columns_of(shape) % bp_seq2seq_decoder_heads(shape) != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.decoder_heads = %lld does not divide the %lld columns of the "
                        "encoder's heads: at model.decoder_heads; see model.heads and "
                        "model.head_width",
                        (long long)bp_seq2seq_decoder_heads(shape), (long long)columns_of(shape));
    if (bp_seq2seq_sizes_of(shape)->decoder_heads % tensor_ranks != 0 ||
        bp_seq2seq_sizes_of(shape)->decoder_inner % tensor_ranks != 0)
        bp_config_fault(config, "mesh.not_dividing",
                        "mesh.tensor = %d does not divide the decoder's %lld heads and inner width "
                        "of %lld: at mesh.tensor; see model.decoder_heads, model.decoder_inner",
                        tensor_ranks, (long long)bp_seq2seq_decoder_heads(shape),
                        (long long)decoder_inner(shape));
    if (bp_seq2seq_sizes_of(shape)->encoder_layers == 0 ||
        bp_seq2seq_sizes_of(shape)->decoder_layers == 0)
        bp_config_fault(config, "model.missing_key",
                        "model.layers is missing: at the configuration; give it, or "
                        "model.encoder_layers and model.decoder_layers");
}

bp_err bp_seq2seq_check_read(const bp_model_shape *shape, const char *where)
{
    if (bp_seq2seq_sizes_of(shape)->encoder_layers == 0 ||
        bp_seq2seq_sizes_of(shape)->decoder_layers == 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model has no layers: at %s; the checkpoint is wrong", where);
    if (columns_of(shape) % bp_seq2seq_decoder_heads(shape) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the decoder's %lld heads do not divide %lld columns: at %s; the "
                       "checkpoint is wrong",
                       (long long)bp_seq2seq_decoder_heads(shape), (long long)columns_of(shape),
                       where);
    return shape->stack.head_width > 0 ? BP_OK : bp_transformer_check_read(shape, where);
}

static int64_t start_token(const bp_model_shape *shape)
{
    return bp_seq2seq_sizes_of(shape)->start_token - 1;
}

/* ---- blocks ---- */

typedef enum part {
    EMBEDDING,
    SOURCE_NORM,
    TARGET_NORM,
    ENCODER,
    ENCODER_NORM,
    DECODER,
    DECODER_NORM,
    VOCABULARY
} part;

/* Norms of embeddings, and after stacks, in one of two streams. */
static int embedding_norms(const bp_model_shape *shape)
{
    return form_of(shape)->embedding_norms ? 1 : 0;
}

static int stack_norms(const bp_model_shape *shape)
{
    return form_of(shape)->pre_norm ? 1 : 0;
}

/* The kind of a block of the list; *number: the layer's number. */
static part part_of(const bp_model_shape *shape, int block, int *number)
{
    const int counts[] = {1,
                          embedding_norms(shape),
                          embedding_norms(shape),
                          (int)bp_seq2seq_sizes_of(shape)->encoder_layers,
                          stack_norms(shape),
                          (int)bp_seq2seq_sizes_of(shape)->decoder_layers,
                          stack_norms(shape)};
    int of = EMBEDDING;

    for (*number = block; of < VOCABULARY && *number >= counts[of]; of++)
        *number -= counts[of];
    return (part)of;
}

static int blocks_of(const bp_model_shape *shape)
{
    return (int)(bp_seq2seq_sizes_of(shape)->encoder_layers +
                 bp_seq2seq_sizes_of(shape)->decoder_layers) +
           2 + 2 * embedding_norms(shape) + 2 * stack_norms(shape);
}

/* Before the last norm and the head. */
int bp_seq2seq_key_block(const bp_model_shape *shape)
{
    return blocks_of(shape) - 2 - stack_norms(shape);
}

static int first_layer(const bp_model_shape *shape)
{
    return 1 + 2 * embedding_norms(shape);
}

static void stacks(const bp_model_shape *shape, bp_block_run of[2])
{
    int encoders = (int)bp_seq2seq_sizes_of(shape)->encoder_layers, first = first_layer(shape);

    of[0] = (bp_block_run){first + encoders + stack_norms(shape),
                           (int)bp_seq2seq_sizes_of(shape)->decoder_layers};
    of[1] = (bp_block_run){first, encoders};
}

static bp_activations block_output(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){.count = 2,
                            .item = {{"hidden", BP_TARGET, shape->width, true, NULL},
                                     {"source", BP_SOURCE, shape->width, true, NULL}}};
}

double bp_seq2seq_sinusoid(bp_seq2seq_positions layout, int64_t t, int64_t c, int64_t C)
{
    int64_t sines = layout == BP_SINES_OF_FAIRSEQ ? C / 2 : (C + 1) / 2, pair;
    bool sine = layout == BP_SINES ? c % 2 == 0 : c < sines;
    double angle;

    if (layout == BP_SINES_OF_FAIRSEQ && c >= 2 * sines)
        return 0;
    pair = layout == BP_SINES ? c / 2 : c % sines;
    angle = layout == BP_SINES_OF_FAIRSEQ
                ? (double)(t + FIRST_POSITION) *
                      pow(WAVELENGTH_BASE, -(double)pair / (double)(sines - 1))
                : (double)t * pow(WAVELENGTH_BASE, -(double)(2 * pair) / (double)C);
    return sine ? sin(angle) : cos(angle);
}

static bool has_sinusoids(const bp_model_shape *shape)
{
    bp_seq2seq_positions layout = form_of(shape)->positions;

    return layout != BP_LEARNED && layout != BP_DISTANCES;
}

static void begin(bp_network *network, const bp_model_shape *shape)
{
    int64_t C = shape->width;
    float *table;

    if (!has_sinusoids(shape))
        return;
    network->tables = table = bp_alloc("sinusoids", shape->context * C, sizeof *table);
    for (int64_t k = 0; k < shape->context * C; k++)
        table[k] = (float)bp_seq2seq_sinusoid(form_of(shape)->positions, k / C, k % C, C);
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int count)
{
    float std = form_of(shape)->embedding_std;
    bp_tied_table table = {"wte", shape->vocab_size, shape->width,
                           std > 0 ? std : BP_TRANSFORMER_STD};

    return is_tied(shape) ? bp_network_add_tied(network, &table, stage, stages, count) : NULL;
}

static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    bp_tied_table table = {"encoder.relative", shape->stack.relative_buckets, shape->heads,
                           STATE_STD(shape->width)};

    if (form_of(shape)->positions != BP_DISTANCES)
        return;
    bp_distance_add_common(network, shape, &table, ENCODER_TABLE, stage);
    table.name = "decoder.relative";
    bp_distance_add_common(network, shape, &table, DECODER_TABLE, stage);
}

static void set_positions(bp_embedding_part *own, bp_network *network, const bp_model_shape *shape,
                          bp_group *tables)
{
    if (has_sinusoids(shape))
        own->sinusoids = network->tables;
    if (form_of(shape)->positions != BP_LEARNED)
        return;
    own->wpe = bp_group_add_matrix(tables, own->stream == BP_SOURCE ? "encoder.wpe" : "decoder.wpe",
                                   FIRST_POSITION + bp_model_positions(shape), shape->width,
                                   BP_TRANSFORMER_STD);
    own->first_position = FIRST_POSITION;
}

static bp_block *new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    const bp_seq2seq_form *form = form_of(shape);
    bp_embedding_part parts[BP_STREAMS];
    bp_group *tables = form->positions == BP_DISTANCES ? NULL : bp_network_add_group(network, true);
    bool scales = form->scales_embedding && bp_seq2seq_sizes_of(shape)->unscaled == 0;
    bp_block *block;

    if (!shared) { /* a task's head has its own matrix */
        shared = bp_transformer_add_table(network, shape, "wte");
        shared->init_std = form->embedding_std > 0 ? form->embedding_std : shared->init_std;
    }
    for (int stream = 0; stream < BP_STREAMS; stream++) {
        bool is_target = stream == BP_TARGET;

        parts[stream] = (bp_embedding_part){
            .wte = shared,
            .item = stream,
            .stream = stream,
            .dropout_stream = BP_SEQ2SEQ_DROPOUT + stream,
            .keeps_all = form->embedding_norms,
            .scale = scales ? sqrtf((float)shape->width) : 0,
            .starts_with_padding =
                is_target && form->starts_with_padding && start_token(shape) >= 0,
            /* one token is bp_task_mirror's */
            .tokens_after = is_target ? (form->padding_learns ? shape->context : 1) : 0};
        set_positions(&parts[stream], network, shape, tables);
    }
    bp_embedding_new(&block, &network->nn, parts, BP_STREAMS);
    return block;
}

/* After an embedding. */
static bp_row_shape embedding_norm(int stream)
{
    return (bp_row_shape){.name = stream == BP_SOURCE ? "encoder.embedding" : "decoder.embedding",
                          .dropout_stream = BP_SEQ2SEQ_DROPOUT + stream};
}

/* After a stack; a tied vocabulary may divide its input by the root of the width. */
static bp_row_shape stack_norm(const bp_model_shape *shape, int stream)
{
    const bp_seq2seq_form *form = form_of(shape);
    bool scaled = stream == BP_TARGET && form->scales_states && is_tied(shape) &&
                  !bp_task_has_head(&shape->task);

    return (bp_row_shape){.name = stream == BP_SOURCE ? "encoder" : "decoder",
                          .rms = form->rms,
                          .scale = scaled ? STATE_STD(shape->width) : 0,
                          .dropout_stream = form->drops_states
                                                ? BP_SEQ2SEQ_DROPOUT + BP_STREAMS + stream
                                                : BP_NO_DROPOUT};
}

static bp_block *new_norm(bp_network *network, const bp_model_shape *shape, part of)
{
    int stream = of == SOURCE_NORM || of == ENCODER_NORM ? BP_SOURCE : BP_TARGET;
    bp_row_shape row =
        of == SOURCE_NORM || of == TARGET_NORM ? embedding_norm(stream) : stack_norm(shape, stream);
    bp_block *block;

    row.I = row.O = shape->width;
    row.epsilon = (float)shape->stack.epsilon;
    row.item = row.stream = stream;
    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

/* Layer `number` of the encoder, or of the decoder, except for its biases of scores. */
static bp_layer_shape layer_of(const bp_model_shape *shape, int number, bool of_source)
{
    const bp_seq2seq_form *form = form_of(shape);
    int64_t encoders = bp_seq2seq_sizes_of(shape)->encoder_layers;

    return (bp_layer_shape){
        .C = shape->width,
        .entmax = shape->attention_entmax == 1,
        .H = of_source ? shape->heads : bp_seq2seq_decoder_heads(shape),
        .D = of_source ? shape->stack.head_width
                       : columns_of(shape) / bp_seq2seq_decoder_heads(shape),
        .F = of_source ? shape->stack.inner : decoder_inner(shape),
        .rms = form->rms,
        .no_bias = form->rms,
        .unscaled = form->positions == BP_DISTANCES,
        .post_norm = !form->pre_norm,
        .activation = form->activations[bp_seq2seq_sizes_of(shape)->activation],
        .epsilon = (float)shape->stack.epsilon,
        .layers = of_source ? encoders : bp_seq2seq_sizes_of(shape)->decoder_layers,
        .number = number,
        .stack = of_source ? "encoder" : "decoder",
        .first_dropout_stream = BP_SEQ2SEQ_LAYER_DROPOUT(of_source ? number : encoders + number),
        .sees_all = of_source,
        .item = of_source ? BP_SOURCE : BP_TARGET,
        .stream = of_source ? BP_SOURCE : BP_TARGET,
        .crosses = !of_source,
        .source_item = BP_SOURCE,
        .source_stream = BP_SOURCE};
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number,
                           bool of_source)
{
    bp_layer_shape layer = layer_of(shape, number, of_source);

    if (form_of(shape)->positions == BP_DISTANCES)
        bp_distance_set(&layer, network, shape, of_source ? ENCODER_TABLE : DECODER_TABLE,
                        STATE_STD(shape->width));
    return bp_transformer_new_layer(network, &layer);
}

/* BART's logits have a bias that is not trained: [1][V], as its folders have it. */
static bp_param *new_constant(bp_network *network, const bp_model_shape *shape)
{
    bp_group *fixed = bp_network_add_group(network, false);
    int64_t first, count;

    fixed->frozen = true;
    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    return bp_group_add_matrix_part(fixed, "head.bias", 1, shape->vocab_size, 0, 1, first, count);
}

static bp_block *new_vocabulary(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.sparse = true};
    bp_block *block;

    if (form_of(shape)->head_bias)
        head.bias = new_constant(network, shape);
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
    int layer;
    part of = part_of(shape, number, &layer);

    bp_network_add_block(network, of == EMBEDDING    ? new_embedding(network, shape, shared)
                                  : of == VOCABULARY ? new_vocabulary(network, shape, shared)
                                  : of == ENCODER || of == DECODER
                                      ? new_layer(network, shape, layer, of == ENCODER)
                                      : new_norm(network, shape, of));
}

/* ---- derived from sizes ---- */

static double layer_cost(const bp_layer_shape *layer, const bp_model_shape *shape)
{
    return 2 * (double)bp_transformer_layer_products(layer) +
           (layer->crosses ? 8 : 4) * (double)shape->context * (double)(layer->H * layer->D);
}

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;
    int number;
    part of = part_of(shape, block, &number);
    bp_layer_shape layer = layer_of(shape, number, of == ENCODER);

    switch (of) {
    case EMBEDDING:
        return 50 * C;
    case ENCODER:
    case DECODER:
        return layer_cost(&layer, shape);
    case VOCABULARY:
        return 2 * (double)shape->vocab_size * C;
    default:
        return 10 * C;
    }
}

static bp_backbone backbone(const bp_model_shape *shape)
{
    return (bp_backbone){.blocks = blocks_of(shape) - 1,
                         .layers_from = first_layer(shape),
                         .rms = form_of(shape)->rms,
                         .epsilon = (float)shape->stack.epsilon,
                         .dense = form_of(shape)->dense,
                         .head_flops = 6 * (double)(shape->vocab_size * shape->width)};
}

/* FLOPs of layers and the head, without norms and embeddings. */
bp_model_facts bp_seq2seq_facts(const bp_model_shape *shape)
{
    double forward = 0;
    int number;

    for (int block = first_layer(shape); block < blocks_of(shape); block++) {
        part of = part_of(shape, block, &number);

        forward += of == ENCODER_NORM || of == DECODER_NORM ? 0 : cost(shape, block);
    }
    return (bp_model_facts){.train_flops = 3 * forward};
}

#define LIST(names)                                                                                \
    {                                                                                              \
        .count = blocks_of, .are = names, .cost = cost, .backbone = backbone,                      \
        .output = block_output, .begin = begin, .add_shared = add_shared,                          \
        .add_common = add_common, .add = add_block                                                 \
    }
const bp_block_list bp_seq2seq_post_norm = LIST("embeddings, layers of encoder and decoder, head"),
                    bp_seq2seq_pre_norm =
                        LIST("embeddings, layers of encoder and decoder with their norms, head");
const bp_source_form bp_seq2seq_source = {.start_token = start_token, .stacks = stacks},
                     bp_seq2seq_tagged_source = {
                         .start_token = start_token, .tags_follow = true, .stacks = stacks};
