/* A family from existing parts alone, as a program that brings its own would write it: a source
 * that is read in both directions up to a length, a text that carries a state and looks at it, and
 * two heads. Linked to bagpipe's own main(): test_family.py trains, stops, scores, ensembles it. */
#include "capped_family.h"

#include "models/family.h"
#include "nn/core/layers.h"

#include <string.h>

enum { HIDDEN, SOURCE }; /* items of the activations, and streams of the batch */
#define CLASSES      4
#define FIRST_MASK   (1LL << 32)
#define LAYER_MASKS  8

#define SOURCE_OF(T) (((T) + 1) / 2)

/* ---- the objective: the next token, and a class of the whole text that some texts have ---- */

static void make(const bp_example_maker *self, const int32_t *tokens, int64_t step, int64_t slot,
                 bp_example *out)
{
    int64_t T = self->form.stream[HIDDEN].T, S = self->form.stream[SOURCE].T;

    (void)step, (void)slot;
    memcpy(out->inputs[HIDDEN], tokens, (size_t)T * sizeof *tokens);
    memcpy(out->targets[0], tokens + 1, (size_t)T * sizeof *tokens);
    for (int64_t s = 0; s < S; s++) /* no token that is still to be predicted */
        out->inputs[SOURCE][s] = s % 2 ? tokens[0] / 2 : tokens[0];
    out->length[SOURCE][0] = (int32_t)(1 + tokens[0] % S);
    out->targets[1][0] = tokens[0] % 3 ? tokens[0] % CLASSES : -1;
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    (void)shape;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}, {.T = SOURCE_OF(T), .has_lengths = true}}, .targets = {T, 1}},
        .window = T + 1,
        .rules = rules,
        .make = make};
}

static const bp_objective OBJECTIVE = {
    .name = "pair", .terms = 2, .weight = {1, 0.5}, .maker = maker};

/* ---- the network: embeddings, a GRU of the text, L layers of the source, L of the text, heads --
 */

static int blocks(const bp_model_shape *shape)
{
    return 2 * (int)shape->layers + 4;
}

static double cost(const bp_model_shape *shape, int block)
{
    int64_t C = shape->width, head = block == blocks(shape) - 1;

    return (double)(head ? 2 * shape->vocab_size * C : block > 0 ? 32 * C * C : C);
}

static bp_activations block_output(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){.count = 2,
                            .item = {{"hidden", HIDDEN, shape->width, true, NULL},
                                     {"source", SOURCE, shape->width, true, NULL}}};
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int count)
{
    bp_tied_table table = {"wte", shape->vocab_size, shape->width, 0.02F};

    return bp_network_add_tied(network, &table, stage, stages, count);
}

static void add_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    bool of_text = number >= shape->layers;
    bp_layer_shape layer = {.C = shape->width,
                            .H = shape->heads,
                            .F = 2 * shape->width,
                            .layers = 2 * shape->layers,
                            .number = number % shape->layers,
                            .stack = of_text ? "text" : "source",
                            .first_dropout_stream = FIRST_MASK + LAYER_MASKS * (number + 1),
                            .sees_all = !of_text,
                            .item = of_text ? HIDDEN : SOURCE,
                            .stream = of_text ? HIDDEN : SOURCE,
                            .crosses = of_text,
                            .source_item = SOURCE,
                            .source_stream = SOURCE};
    bp_group *split = bp_network_add_group(network, false);
    bp_block *block;

    bp_transformer_layer_new(&block, &network->nn, &layer, split,
                             bp_network_add_group(network, true));
    bp_network_add_block(network, block);
}

static void add_head(bp_network *network, const bp_model_shape *shape, bool of_classes,
                     bp_param *vocabulary)
{
    bp_head_shape head = {.norm = of_classes ? "class.ln" : "ln_f",
                          .term = of_classes ? 1 : 0,
                          .sparse = of_classes,
                          .passes_on = of_classes};
    int64_t first, rows;
    bp_block *block;

    if (of_classes) {
        bp_group *group = bp_network_add_group(network, false);
        bp_vocab_share(&network->nn, CLASSES, &first, &rows);
        vocabulary = bp_group_add_matrix_part(group, "class.weight", CLASSES, shape->width, 0.02F,
                                              0, first, rows);
    }
    bp_lm_head_new(&block, &network->nn, &head, vocabulary, bp_network_add_group(network, true));
    bp_network_add_block(network, block);
}

static void add_gru(bp_network *network, const bp_model_shape *shape)
{
    bp_recurrent_shape layer = {.cell = BP_CELL_GRU,
                                .I = shape->width,
                                .H = shape->width,
                                .dropout_stream = FIRST_MASK + 2,
                                .h = bp_network_add_carry(network, "text", shape->width)};
    bp_block *block;

    bp_recurrent_layer_new(&block, &network->nn, &layer, bp_network_add_group(network, true));
    bp_network_add_block(network, block);
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    int64_t T = shape->context, C = shape->width;

    if (number == 1) {
        add_gru(network, shape);
    } else if (number > 1 && number < blocks(shape) - 2) {
        add_layer(network, shape, number - 2);
    } else if (number > 0) {
        add_head(network, shape, number < blocks(shape) - 1, shared);
    } else {
        bp_group *whole = bp_network_add_group(network, true),
                 *fixed = bp_network_add_group(network, true);

        fixed->frozen = true;
        bp_embedding_part parts[] = {
            {shared, bp_group_add_matrix(whole, "wpe", T, C, 0.01F), HIDDEN, HIDDEN, FIRST_MASK},
            {shared, bp_group_add_matrix(fixed, "source.wpe", SOURCE_OF(T), C, 0.01F), SOURCE,
             SOURCE, FIRST_MASK + 1}};
        bp_block *block;

        bp_embedding_new(&block, &network->nn, parts, 2);
        bp_network_add_block(network, block);
    }
}

/* ---- the table ---- */

extern const bp_hf_table *const test_family_huggingface[]; /* pair_family_names.c */

static bp_model_facts facts(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers;

    return (bp_model_facts){.train_flops = 6 * (20 * L + 6) * C * C};
}

static const bp_block_list BLOCK_LIST = {.count = blocks,
                                         .are = "embedding, layers, heads",
                                         .cost = cost,
                                         .output = block_output,
                                         .add_shared = add_shared,
                                         .add = add_block};

static const bp_model_family FAMILY = {.name = "pair",
                                       .sizes = bp_transformer_sizes,
                                       .check = bp_transformer_check,
                                       .check_read = bp_transformer_check_read,
                                       .facts = facts,
                                       .carries_state = true,
                                       .objective = &OBJECTIVE,
                                       .huggingface = test_family_huggingface,
                                       .blocks = &BLOCK_LIST};

__attribute__((constructor)) static void register_family(void)
{
    bp_model_family_register(&FAMILY);
    bp_model_family_register(&CAPPED_FAMILY);
}
