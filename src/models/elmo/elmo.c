/* The family of ELMo: words spelled by convolutions over their characters, projected LSTMs forward
 * and backward, one softmax for both. Each direction is a stream, an item of the activations and a
 * term of the loss. The forward direction's state is carried from window to window of a batch slot;
 * the backward one begins anew at each window's end, because the text after the window is read
 * later. Called by bilm_options.c and bilm_write.c. */
#include "models/elmo/elmo.h"

#include "models/elmo/bilm_priv.h"
#include "nn/core/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHARACTER_WIDTH 16 /* of bilm-tf */
#define HIGHWAYS        2
#define CLIP            3.0
#define SPELLED_PLACES  10 /* characters of an average word, for costs: padding is cheap */

static const bp_model_size SIZES[] = {
    {.name = "layers", .at = BP_SIZE_AT(layers)},
    {.name = "width", .at = BP_SIZE_AT(width)},
    {.name = "context", .at = BP_SIZE_AT(context)},
    {.name = "char_filters", .at = BP_OWN_AT(bp_elmo_sizes, filters), .type = BP_SIZE_PAIRS},
    {.name = "embedding", .at = BP_OWN_AT(bp_elmo_sizes, embedding), .optional = true},
    {.name = "char_activation",
     .at = BP_OWN_AT(bp_elmo_sizes, activation),
     .type = BP_SIZE_CHOICE,
     .optional = true,
     .words = "relu|tanh"},
    {.name = "highway", .at = BP_OWN_AT(bp_elmo_sizes, highway), .optional = true},
    {.name = "projection", .at = BP_OWN_AT(bp_elmo_sizes, projection), .optional = true},
    {.name = "skip",
     .at = BP_OWN_AT(bp_elmo_sizes, no_skip),
     .type = BP_SIZE_FLAG,
     .optional = true,
     .inverse = true},
    {.name = "cell_clip",
     .at = BP_OWN_AT(bp_elmo_sizes, cell_clip),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "projection_clip",
     .at = BP_OWN_AT(bp_elmo_sizes, projection_clip),
     .type = BP_SIZE_REAL,
     .optional = true},
    {0}};

static const bp_option KEYS[] = {
    {BP_STRING_KEY("model.char_filters", NULL),
     .help = "convolutions over a word's characters, WIDTH:COUNT with commas (1:32,2:32,3:64)"},
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of a character's vector; 16 if not given"},
    {BP_CHOICE_KEY("model.char_activation", NULL, "relu|tanh"),
     .help = "of the convolutions; relu if not given"},
    {BP_INT_KEY("model.highway", NULL, 1, 8),
     .help = "highway layers after the convolutions; 2 if not given"},
    {BP_INT_KEY("model.projection", NULL, 1, 1 << 20),
     .help = "width of word vectors and of the states of each direction, at most model.width, "
             "which are the LSTMs' units; model.width if not given"},
    {BP_BOOL_KEY("model.skip", NULL),
     .help = "the input of each LSTM but the first is added to its output; yes if not given"},
    {BP_REAL_KEY("model.cell_clip", NULL, 1e-6, 1e9),
     .help = "cells are kept within this distance of 0; 3 if not given"},
    {BP_REAL_KEY("model.projection_clip", NULL, 1e-6, 1e9),
     .help = "projected states are kept within this distance of 0; 3 if not given"},
    {0}};

static int64_t embedding_of(const bp_model_shape *shape)
{
    return bp_elmo_sizes_of(shape)->embedding;
}

static int64_t projection_of(const bp_model_shape *shape)
{
    return bp_elmo_sizes_of(shape)->projection;
}

static int64_t pair_at(const bp_model_shape *shape, int k)
{
    return bp_elmo_sizes_of(shape)->filters[k];
}

static void fill_defaults(bp_model_shape *shape)
{
    bp_elmo_sizes *own = bp_elmo_sizes_in(shape);

    own->embedding = embedding_of(shape) > 0 ? embedding_of(shape) : CHARACTER_WIDTH;
    own->highway = own->highway > 0 ? own->highway : HIGHWAYS;
    own->projection = projection_of(shape) > 0 ? projection_of(shape) : shape->width;
    own->cell_clip = own->cell_clip > 0 ? own->cell_clip : CLIP;
    own->projection_clip = own->projection_clip > 0 ? own->projection_clip : CLIP;
}

/* The first width of filters that is wider than a word; 0 if there is none. */
static int64_t too_wide(const bp_model_shape *shape)
{
    for (int k = 0; k < BP_MODEL_PAIRS; k++)
        if (bp_pair_first(pair_at(shape, k)) > BP_WORD_CHARACTERS)
            return bp_pair_first(pair_at(shape, k));
    return 0;
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    (void)tensor_ranks; /* they split the vocabulary; each has all layers */
    if (too_wide(shape) > 0)
        bp_config_fault(config, "elmo.too_wide_filter",
                        "a filter of model.char_filters reads %lld characters, but a word has "
                        "%d: at model.char_filters; use 1 to %d",
                        (long long)too_wide(shape), BP_WORD_CHARACTERS, BP_WORD_CHARACTERS);
    if (projection_of(shape) > shape->width)
        bp_config_fault(config, "elmo.wide_projection",
                        "model.projection = %lld is more than model.width = %lld: at "
                        "model.projection; use 1 to %lld",
                        (long long)projection_of(shape), (long long)shape->width,
                        (long long)shape->width);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (too_wide(shape) == 0 && projection_of(shape) <= shape->width)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                   "filters of %lld characters, or a projection of %lld columns for %lld units: at "
                   "%s; the checkpoint is wrong",
                   (long long)too_wide(shape), (long long)projection_of(shape),
                   (long long)shape->width, where);
}

static bool projects_words(const bp_model_shape *shape)
{
    return bp_elmo_filters(shape) != projection_of(shape);
}

static bool projects_states(const bp_model_shape *shape)
{
    return projection_of(shape) != shape->width;
}

/* Weights of the highway layers and the projection after the convolutions. */
static int64_t word_matrices(const bp_model_shape *shape)
{
    int64_t F = bp_elmo_filters(shape);

    return bp_elmo_sizes_of(shape)->highway * 2 * F * F +
           (projects_words(shape) ? F * projection_of(shape) : 0);
}

static int64_t filter_weights(const bp_model_shape *shape)
{
    int64_t weights = 0;

    for (int k = 0; k < BP_MODEL_PAIRS; k++)
        weights += bp_pair_first(pair_at(shape, k)) * bp_pair_second(pair_at(shape, k)) *
                   embedding_of(shape);
    return weights;
}

/* Weights of a layer of one direction. */
static int64_t layer_matrices(const bp_model_shape *shape)
{
    int64_t P = projection_of(shape), H = shape->width;

    return 4 * H * 2 * P + (projects_states(shape) ? P * H : 0);
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t V = shape->vocab_size, P = projection_of(shape),
            layers = 2 * shape->layers * layer_matrices(shape);

    return (bp_model_facts){.train_flops = 6 * (double)(layers + 2 * V * P + word_matrices(shape)) +
                                           6.0 * SPELLED_PLACES * (double)filter_weights(shape)};
}

static int64_t state_width(const bp_model_shape *shape)
{
    return projection_of(shape);
}

static int blocks_of(const bp_model_shape *shape)
{
    return 2 * (int)shape->layers + 2;
}

/* The words, in both directions, and the output of each pair of layers (bilm-tf's order). */
static bp_state_form states(const bp_model_shape *shape)
{
    return (bp_state_form){.layers = shape->layers + 1, .columns = 2 * projection_of(shape)};
}

/* The forward direction reads the end of the text before, the backward one the end of this one. */
static bool state_part(const bp_model_shape *shape, int block, const char *what, bp_state_part *out)
{
    int direction = strcmp(what, "backward") == 0 ? BP_ELMO_BACKWARD : BP_ELMO_FORWARD;

    *out = (bp_state_part){.layer = (block + 1) / 2,
                           .column = direction == BP_ELMO_BACKWARD ? projection_of(shape) : 0,
                           .row = direction == BP_ELMO_FORWARD};
    return block == 0 || (block < blocks_of(shape) - 1 && (block - 1) % 2 == direction);
}

static double cost(const bp_model_shape *shape, int block)
{
    if (block == 0)
        return 2 * (double)(SPELLED_PLACES * filter_weights(shape) + word_matrices(shape));
    if (block == blocks_of(shape) - 1)
        return 4 * (double)(shape->vocab_size * projection_of(shape));
    return 2 * (double)layer_matrices(shape);
}

static bp_activations block_output(const bp_model_shape *shape, int block)
{
    int64_t P = projection_of(shape);

    (void)block;
    return (bp_activations){
        .count = 2,
        .item = {
            {.name = "forward", .stream = BP_ELMO_FORWARD, .columns = P, .has_gradient = true},
            {.name = "backward", .stream = BP_ELMO_BACKWARD, .columns = P, .has_gradient = true}}};
}

static bp_block *new_words(bp_network *network, const bp_model_shape *shape)
{
    bp_word_shape words = {.V = shape->vocab_size,
                           .P = projection_of(shape),
                           .D = embedding_of(shape),
                           .highways = bp_elmo_sizes_of(shape)->highway,
                           .tanh = bp_elmo_sizes_of(shape)->activation != 0,
                           .projects = projects_words(shape),
                           .characters = shape->constants,
                           .twice = true,
                           .second_term = BP_ELMO_BACKWARD};
    bp_group *frozen = bp_network_add_group(network, true),
             *whole = bp_network_add_group(network, true);
    bp_block *block;

    for (int k = 0; k < BP_MODEL_PAIRS && pair_at(shape, k) != 0; k++) {
        words.filters[k].width = bp_pair_first(pair_at(shape, k));
        words.filters[k].count = bp_pair_second(pair_at(shape, k));
        words.filter_counts = k + 1;
    }
    frozen->frozen = true;
    bp_word_characters_new(&block, &network->nn, &words, frozen, whole);
    return block;
}

static bp_carry *add_carry(bp_network *network, const char *layer, const char *what,
                           int64_t columns)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%s.%s", layer, what);
    return bp_network_add_carry(network, name, columns);
}

/* Layers are in pairs: forward, backward. */
static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    int64_t layer = (number - 1) / 2;
    int direction = (number - 1) % 2;
    bool backward = direction == BP_ELMO_BACKWARD;
    char name[32];
    bp_projected_lstm_shape lstm = {.P = projection_of(shape),
                                    .H = shape->width,
                                    .name = name,
                                    .cell_clip = (float)bp_elmo_sizes_of(shape)->cell_clip,
                                    .projection_clip =
                                        (float)bp_elmo_sizes_of(shape)->projection_clip,
                                    .from_end = backward,
                                    .skips = layer > 0 && !bp_elmo_sizes_of(shape)->no_skip,
                                    .drops_output = layer == shape->layers - 1,
                                    .dropout_stream = 2 * (int64_t)number,
                                    .item = direction,
                                    .stream = direction,
                                    .term = direction};
    bp_block *block;

    (void)snprintf(name, sizeof name, "%s.%lld", backward ? "backward" : "forward",
                   (long long)layer);
    if (!backward) {
        lstm.state = add_carry(network, name, "state", lstm.P);
        lstm.cells = add_carry(network, name, "cell", lstm.H);
    }
    bp_projected_lstm_new(&block, &network->nn, &lstm, bp_network_add_group(network, true));
    return block;
}

static bp_block *new_head(bp_network *network, const bp_model_shape *shape)
{
    bp_group *group = bp_network_add_group(network, false),
             *biases = bp_network_add_group(network, false);
    bp_head_shape head = {.item = BP_ELMO_FORWARD,
                          .term = BP_ELMO_FORWARD,
                          .twice = true,
                          .second_item = BP_ELMO_BACKWARD,
                          .second_term = BP_ELMO_BACKWARD};
    int64_t P = projection_of(shape);
    bp_block *block;

    head.bias = bp_network_add_word_biases(network, biases, "head.bias", shape->vocab_size);
    bp_lm_head_new(
        &block, &network->nn, &head,
        bp_network_add_words(network, group, "head", shape->vocab_size, P, 1 / sqrtf((float)P)),
        NULL);
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    (void)shared;
    bp_network_add_block(network, number == 0 ? new_words(network, shape)
                                  : number == blocks_of(shape) - 1
                                      ? new_head(network, shape)
                                      : new_layer(network, shape, number));
}

/* ---- the objective ---- */

/* A window of T+1 tokens: the forward direction reads the first T and predicts the next one; the
 * backward direction reads the last T and predicts the one before. */
static void make(const bp_example_maker *self, const int32_t *tokens, int64_t step, int64_t slot,
                 bp_example *out)
{
    size_t bytes = (size_t)(self->window - 1) * sizeof *tokens;

    (void)step, (void)slot;
    memcpy(out->inputs[BP_ELMO_FORWARD], tokens, bytes);
    memcpy(out->targets[BP_ELMO_FORWARD], tokens + 1, bytes);
    memcpy(out->inputs[BP_ELMO_BACKWARD], tokens + 1, bytes);
    memcpy(out->targets[BP_ELMO_BACKWARD], tokens, bytes);
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){.form = {.stream = {{.T = T}, {.T = T}}, .targets = {T, T}},
                              .window = T + 1,
                              .rules = rules,
                              .make = make};
}

static const bp_objective OBJECTIVE = {.name = "bidirectional",
                                       .terms = 2,
                                       .weight = {0.5, 0.5},
                                       .term = {"forward", "backward"},
                                       .scores_all = true,
                                       .maker = maker};

static const bp_block_list BLOCK_LIST = {.count = blocks_of,
                                         .are = "words, layers of two directions, head",
                                         .cost = cost,
                                         .output = block_output,
                                         .add = add_block};
static const bp_layer_states STATES = {.form = states, .part = state_part};
static const bp_folder_form FOLDER = {
    .name = "bilm-tf", .is = bilm_is, .read = bilm_read, .write = bilm_write};

const bp_model_family bp_elmo_family = {.name = "elmo",
                                        .sizes = SIZES,
                                        .keys = KEYS,
                                        .any_context = true,
                                        .fill_defaults = fill_defaults,
                                        .check = check,
                                        .check_read = check_read,
                                        .facts = facts,
                                        .state_width = state_width,
                                        .unlimited = true,
                                        .carries_state = true,
                                        .constants = bp_elmo_characters,
                                        .objective = &OBJECTIVE,
                                        .states = &STATES,
                                        .folder = &FOLDER,
                                        .blocks = &BLOCK_LIST};
