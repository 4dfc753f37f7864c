/* The families of recurrent language models: word vectors, layers of one kind of cell, a head with
 * a bias and without a norm. The state is carried from window to window of a batch slot. */
#include "models/recurrent/recurrent.h"

#include "models/stack/variants.h"
#include "nn/core/layers.h"

#include <stdio.h>

/* For word vectors and head: between Zaremba et al. 2014's small and large. */
#define INIT_STD 0.1F

/* clang-format off */
#define SHARED_SIZES                                                                               \
    {.name = "layers", .at = BP_SIZE_AT(layers)},                                                  \
    {.name = "width", .at = BP_SIZE_AT(width)},                                                    \
    {.name = "embedding", .at = BP_OWN_AT(bp_recurrent_sizes, embedding), .optional = true},        \
    {.name = "context", .at = BP_SIZE_AT(context)},                                                \
    {.name = "tied",                                                                               \
     .at = BP_OWN_AT(bp_recurrent_sizes, tied),                                                     \
     .type = BP_SIZE_FLAG,                                                                         \
     .optional = true},                                                                            \
    BP_VARIANT_HEAD_SIZES
/* clang-format on */

static const bp_model_size SIZES[] = {SHARED_SIZES, {0}};
static const bp_model_size CELL_SIZES[] = {SHARED_SIZES,
                                           {.name = "cell",
                                            .at = BP_OWN_AT(bp_recurrent_sizes, cell),
                                            .type = BP_SIZE_PAIRS,
                                            .words = BP_CELL_WORDS,
                                            .optional = true},
                                           {0}};

static const bp_option KEYS[] = {{BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
                                  .help = "width of the word vectors; model.width if not given"},
                                 {0}};

static bp_recurrent_cell cell_of(const bp_model_shape *shape)
{
    return shape->family == &bp_rnn_family    ? BP_CELL_RNN
           : shape->family == &bp_lstm_family ? BP_CELL_LSTM
           : shape->family == &bp_gru_family  ? BP_CELL_GRU
                                              : BP_CELL_GRAPH;
}

static bool is_graph(const bp_model_shape *shape)
{
    return cell_of(shape) == BP_CELL_GRAPH;
}

static int64_t gates_of(const bp_model_shape *shape)
{
    static const int64_t GATES[] = {
        [BP_CELL_RNN] = 1, [BP_CELL_LSTM] = 4, [BP_CELL_GRU] = 3, [BP_CELL_GRAPH] = 2};

    return GATES[cell_of(shape)];
}

static int64_t embedding_of(const bp_model_shape *shape)
{
    return bp_recurrent_sizes_of(shape)->embedding;
}

static void fill_defaults(bp_model_shape *shape)
{
    int64_t *embedding = &bp_recurrent_sizes_in(shape)->embedding;

    *embedding = *embedding > 0 ? *embedding : shape->width;
    if (is_graph(shape))
        bp_cell_fill_default(shape);
}

static bool ties_widths(const bp_model_shape *shape)
{
    return bp_recurrent_sizes_of(shape)->tied && embedding_of(shape) != shape->width;
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    (void)tensor_ranks; /* they split the vocabulary; each has all layers */
    if (ties_widths(shape))
        bp_config_fault(config, "model.unlike_widths",
                        "model.tied = yes needs word vectors as wide as the states, but "
                        "model.embedding = %lld and model.width = %lld: at model.embedding; leave "
                        "it out",
                        (long long)embedding_of(shape), (long long)shape->width);
    if (is_graph(shape) && bp_cell_fault(shape))
        bp_config_fault(config, "model.bad_cell", "model.cell is no cell: at model.cell; %s",
                        bp_cell_fault(shape));
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (is_graph(shape) && bp_cell_fault(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's cell is not valid (%s): at %s; the checkpoint is wrong",
                       bp_cell_fault(shape), where);
    if (!ties_widths(shape))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                   "the head is the embedding, but its width %lld is not the states' %lld: at %s; "
                   "the checkpoint is wrong",
                   (long long)embedding_of(shape), (long long)shape->width, where);
}

static int64_t inputs_of(const bp_model_shape *shape, int64_t layer)
{
    return layer == 0 ? embedding_of(shape) : shape->width;
}

/* Weights of a layer's gates and edges: each is one multiplication per token. */
static int64_t layer_matrices(const bp_model_shape *shape, int64_t layer)
{
    int64_t gates = gates_of(shape) * shape->width * (inputs_of(shape, layer) + shape->width);
    bp_cell_graph graph;

    if (!is_graph(shape))
        return gates;
    graph = bp_cell_graph_of(shape);
    return gates + 2 * shape->width * shape->width * bp_cell_graph_edges(&graph);
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t matrices = shape->vocab_size * shape->width;

    for (int64_t k = 0; k < shape->layers; k++)
        matrices += layer_matrices(shape, k);
    return (bp_model_facts){.train_flops = 6 * (double)matrices};
}

static int blocks_of(const bp_model_shape *shape)
{
    return (int)shape->layers + 2;
}

static double cost(const bp_model_shape *shape, int block)
{
    if (block == 0)
        return 50 * (double)embedding_of(shape);
    if (block == blocks_of(shape) - 1)
        return 2 * (double)(shape->vocab_size * shape->width);
    return 2 * (double)layer_matrices(shape, block - 1);
}

static bp_activations block_output(const bp_model_shape *shape, int block)
{
    return (bp_activations){
        .count = 1,
        .item = {{.name = "hidden", .columns = inputs_of(shape, block), .has_gradient = true}}};
}

/* The word vectors, if they are also the head. */
static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks)
{
    bp_tied_table table = {"wte", shape->vocab_size, shape->width, INIT_STD};

    return bp_recurrent_sizes_of(shape)->tied
               ? bp_network_add_tied(network, &table, stage, stages, blocks)
               : NULL;
}

static bp_param *add_table(bp_network *network, const bp_model_shape *shape, const char *name,
                           int64_t columns)
{
    return bp_network_add_words(network, bp_network_add_group(network, false), name,
                                shape->vocab_size, columns, INIT_STD);
}

static void add_head(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {0};
    bp_block *block;
    bp_param *table = shared ? shared : add_table(network, shape, "head", shape->width);

    head.bias = bp_network_add_word_biases(network, bp_network_add_group(network, false),
                                           "head.bias", shape->vocab_size);
    bp_variants_set_head(&head, network, shape);
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    bp_network_add_block(network, block);
}

static bp_carry *add_carry(bp_network *network, const bp_model_shape *shape, int64_t layer,
                           const char *what)
{
    char name[64];

    (void)snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, what);
    return bp_network_add_carry(network, name, shape->width);
}

static bp_cell_graph graph_of(bp_network *network, const bp_model_shape *shape)
{
    bp_cell_graph graph = {0};

    if (is_graph(shape))
        graph = bp_cell_graph_of(shape);
    if (graph.mixed)
        graph.mix = bp_network_add_group(network, true);
    if (graph.mixed)
        graph.mix->searched = true;
    return graph;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    bp_block *block = NULL;

    if (number == blocks_of(shape) - 1) {
        add_head(network, shape, shared);
        return;
    }
    if (number == 0) {
        bp_embedding_part part = {
            .wte = shared ? shared : add_table(network, shape, "wte", embedding_of(shape))};
        bp_embedding_new(&block, &network->nn, &part, 1);
    } else {
        bool lstm = cell_of(shape) == BP_CELL_LSTM;
        bp_recurrent_shape layer = {.cell = cell_of(shape),
                                    .I = inputs_of(shape, number - 1),
                                    .H = shape->width,
                                    .number = number - 1,
                                    .dropout_stream = number,
                                    .graph = graph_of(network, shape),
                                    .h = add_carry(network, shape, number - 1, "state"),
                                    .second = is_graph(shape) && bp_cell_graph_of(shape).mixed
                                                  ? add_carry(network, shape, number - 1, "second")
                                                  : NULL,
                                    .c = lstm ? add_carry(network, shape, number - 1, "cell")
                                              : NULL};
        bp_recurrent_layer_new(&block, &network->nn, &layer, bp_network_add_group(network, true));
    }
    bp_network_add_block(network, block);
}

static const char *no_distribution(const bp_model_shape *shape)
{
    return is_graph(shape) && bp_cell_graph_of(shape).mixed
               ? "a mixed cell is searched, and no model yet; train the cell that was found (the "
                 "last \"architecture\" of events.jsonl)"
               : NULL;
}

static const bp_block_list BLOCK_LIST = {.count = blocks_of,
                                         .are = "embedding, layers, head",
                                         .cost = cost,
                                         .output = block_output,
                                         .add_shared = add_shared,
                                         .add = add_block};

#define FAMILY(kind, tables, sizes_of, keys_of)                                                    \
    {                                                                                              \
        .name = kind, .sizes = sizes_of, .keys = keys_of, .any_context = true,                     \
        .fill_defaults = fill_defaults, .check = check, .check_read = check_read, .facts = facts,  \
        .unlimited = true, .carries_state = true, .restarts = true,                                \
        .objective = &bp_objective_causal, .huggingface = tables, .blocks = &BLOCK_LIST,           \
        .no_distribution = no_distribution                                                         \
    }

const bp_model_family bp_rnn_family = FAMILY("rnn", bp_rnn_huggingface, SIZES, KEYS),
                      bp_lstm_family = FAMILY("lstm", bp_lstm_huggingface, SIZES, KEYS),
                      bp_gru_family = FAMILY("gru", bp_gru_huggingface, SIZES, KEYS),
                      bp_cell_family =
                          FAMILY("cell", bp_cell_huggingface, CELL_SIZES, bp_cell_keys);
