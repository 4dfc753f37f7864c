/* The family of feed-forward language models: the vectors of the order - 1 words before a word, one
 * layer of tanh units, a head with a bias, and optionally direct connections from the vectors to
 * the head: y = b + W x + U tanh(d + H x). Source: Bengio et al. 2003, "A Neural Probabilistic
 * Language Model", section 2, equation 1. */
#include "models/feedforward/feedforward.h"

#include "models/stack/variants.h"
#include "nn/core/layers.h"

#define INIT_STD 0.1F /* of word vectors and head */

enum { EMBEDDING, LAYER, HEAD, BLOCKS };

static const bp_model_size SIZES[] = {
    {.name = "width", .at = BP_SIZE_AT(width)},
    {.name = "order", .at = BP_OWN_AT(bp_feedforward_sizes, order), .optional = true},
    {.name = "embedding", .at = BP_OWN_AT(bp_feedforward_sizes, embedding), .optional = true},
    {.name = "direct",
     .at = BP_OWN_AT(bp_feedforward_sizes, direct),
     .type = BP_SIZE_FLAG,
     .optional = true},
    {.name = "context", .at = BP_SIZE_AT(context)},
    BP_VARIANT_HEAD_SIZES,
    {0}};

static const bp_option KEYS[] = {
    {BP_INT_KEY("model.order", NULL, 2, 1000), .unit = "tokens",
     .help = "a token is predicted from this many less one before it; 5 if not given"},
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of the word vectors; model.width if not given"},
    {BP_BOOL_KEY("model.direct", NULL),
     .help = "word vectors are connected to the head directly too; no if not given"},
    {0}};

static void fill_defaults(bp_model_shape *shape)
{
    int64_t *order = &bp_feedforward_sizes_in(shape)->order,
            *embedding = &bp_feedforward_sizes_in(shape)->embedding;

    *order = *order > 0 ? *order : 5;
    *embedding = *embedding > 0 ? *embedding : shape->width;
}

static int64_t embedding_of(const bp_model_shape *shape)
{
    return bp_feedforward_sizes_of(shape)->embedding;
}

static int64_t order_of(const bp_model_shape *shape)
{
    return bp_feedforward_sizes_of(shape)->order;
}

/* Width of the layer's input: the vectors of a row's words. */
static int64_t inputs_of(const bp_model_shape *shape)
{
    return (bp_feedforward_sizes_of(shape)->order - 1) * embedding_of(shape);
}

static int64_t state_width(const bp_model_shape *shape)
{
    return shape->width + (bp_feedforward_sizes_of(shape)->direct ? inputs_of(shape) : 0);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    (void)shape, (void)tensor_ranks, (void)config; /* tensor ranks split only the vocabulary */
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (bp_feedforward_sizes_of(shape)->order >= 2)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_order",
                   "a feed-forward model of order %lld has no words to read: at %s; the checkpoint "
                   "is wrong",
                   (long long)bp_feedforward_sizes_of(shape)->order, where);
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t matrices = shape->width * inputs_of(shape) + shape->vocab_size * state_width(shape);

    return (bp_model_facts){.train_flops = 6 * (double)matrices};
}

static int blocks_of(const bp_model_shape *shape)
{
    (void)shape;
    return BLOCKS;
}

static double cost(const bp_model_shape *shape, int block)
{
    if (block == EMBEDDING)
        return 50 * (double)embedding_of(shape);
    return 2 * (double)(block == LAYER ? shape->width * inputs_of(shape)
                                       : shape->vocab_size * state_width(shape));
}

static bp_activations block_output(const bp_model_shape *shape, int block)
{
    return (bp_activations){
        .count = 1,
        .item = {{.name = "hidden",
                  .columns = block == EMBEDDING ? embedding_of(shape) : state_width(shape),
                  .has_gradient = true}}};
}

static bp_param *add_table(bp_network *network, const bp_model_shape *shape, const char *name,
                           int64_t columns)
{
    return bp_network_add_words(network, bp_network_add_group(network, false), name,
                                shape->vocab_size, columns, INIT_STD);
}

static bp_block *new_head(bp_network *network, const bp_model_shape *shape)
{
    bp_param *table = add_table(network, shape, "head", state_width(shape));
    bp_head_shape head = {0};
    bp_block *block;

    head.bias = bp_network_add_word_biases(network, bp_network_add_group(network, false),
                                           "head.bias", shape->vocab_size);
    bp_variants_set_head(&head, network, shape);
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape)
{
    int64_t E = embedding_of(shape), before = inputs_of(shape) - E;
    bp_feedforward_shape layer = {.E = E,
                                  .H = shape->width,
                                  .words = bp_feedforward_sizes_of(shape)->order - 1,
                                  .direct = bp_feedforward_sizes_of(shape)->direct != 0,
                                  .dropout_stream = LAYER};
    bp_block *block;

    if (before > 0)
        layer.before = bp_network_add_carry(network, "words", before);
    bp_feedforward_layer_new(&block, &network->nn, &layer, bp_network_add_group(network, true));
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    bp_block *block = NULL;

    (void)shared;
    if (number == EMBEDDING) {
        bp_embedding_part part = {.wte = add_table(network, shape, "wte", embedding_of(shape))};

        bp_embedding_new(&block, &network->nn, &part, 1);
    } else {
        block = number == LAYER ? new_layer(network, shape) : new_head(network, shape);
    }
    bp_network_add_block(network, block);
}

static const bp_block_list BLOCK_LIST = {.count = blocks_of,
                                         .are = "embedding, layer, head",
                                         .cost = cost,
                                         .output = block_output,
                                         .add = add_block};

const bp_model_family bp_feedforward_family = {.name = "feedforward",
                                               .sizes = SIZES,
                                               .keys = KEYS,
                                               .any_context = true,
                                               .fill_defaults = fill_defaults,
                                               .check = check,
                                               .check_read = check_read,
                                               .facts = facts,
                                               .state_width = state_width,
                                               .order = order_of,
                                               .unlimited = true,
                                               .objective = &bp_objective_causal,
                                               .blocks = &BLOCK_LIST};
