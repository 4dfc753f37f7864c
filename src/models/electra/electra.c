/* The family of ELECTRA: its sizes, and its blocks: embedding, its norm and a projection;
 * generator: layers, transform, vocabulary; the text with the generator's tokens, embedded and
 * projected; discriminator: layers, and a head that classifies each place. Both share the
 * embeddings. Source: Clark et al. 2020, section 3. Called by electra_folder.c. */
#include "models/electra/electra.h"

#include "models/bert/bert.h"
#include "models/stack/stack.h"
#include "models/task/task.h"

#include <string.h>

#define QUARTER 4 /* the generator's part of the discriminator's width and heads */

/* Streams of dropout masks: the generator's and the second embedding's are separate. */
#define GENERATOR_DROPOUT ((int64_t)1 << 32)
#define REPLACED_DROPOUT  ((int64_t)1 << 33)

static const bp_stack STACK = {.post_norm = true,
                               .sees_all = true,
                               .activation = BP_GELU_EXACT,
                               .epsilon = 1e-12,
                               .segments = 2};

static const bp_model_size SIZES[] = {
    BP_STACK_SIZES,
    BP_STACK_CONTEXT,
    BP_POSITIONS_SIZE,
    BP_STACK_COUNT("inner", inner),
    BP_STACK_COUNT("segments", segments),
    {.name = "embedding", .at = BP_OWN_AT(bp_electra_sizes, embedding), .optional = true},
    {.name = "generator_layers",
     .at = BP_OWN_AT(bp_electra_sizes, generator_layers),
     .optional = true},
    {.name = "generator_width",
     .at = BP_OWN_AT(bp_electra_sizes, generator_width),
     .optional = true},
    {.name = "generator_heads",
     .at = BP_OWN_AT(bp_electra_sizes, generator_heads),
     .optional = true},
    {.name = "generator_inner",
     .at = BP_OWN_AT(bp_electra_sizes, generator_inner),
     .optional = true},
    BP_STACK_REAL("norm_epsilon", epsilon),
    {.name = "part",
     .at = BP_OWN_AT(bp_electra_sizes, part),
     .type = BP_SIZE_CHOICE,
     .words = BP_ELECTRA_PARTS,
     .optional = true,
     .quiet = true},
    {0}};

static const bp_option KEYS[] = {
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of token embeddings; model.width if not given"},
    {BP_INT_KEY("model.generator_layers", NULL, 1, 10000),
     .help = "layers of the generator; model.layers if not given"},
    {BP_INT_KEY("model.generator_width", NULL, 1, 1 << 20),
     .help = "width of the generator; a quarter of model.width if not given"},
    {BP_INT_KEY("model.generator_heads", NULL, 1, 1 << 16),
     .help = "heads of the generator, a multiple of mesh.tensor; a quarter of model.heads if not "
             "given"},
    {BP_INT_KEY("model.generator_inner", NULL, 1, 1 << 22),
     .help = "inner width of the generator's MLP; 4 times its width if not given"},
    {BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),
     .help = "what norms add to the mean square; 1e-12 if not given"},
    {BP_CHOICE_KEY("model.part", NULL, BP_ELECTRA_PARTS),
     .help = "what of it there is; both if not given"},
    {0}};

static int64_t quarter(int64_t size)
{
    return size < QUARTER ? 1 : size / QUARTER;
}

/* A task's head follows the discriminator, and the generator is dropped. */
static bool has(const bp_model_shape *shape, bp_electra_part part)
{
    if (bp_task_has_head(&shape->task))
        return part == BP_ELECTRA_DISCRIMINATOR;
    return bp_electra_sizes_of(shape)->part == BP_ELECTRA_BOTH ||
           bp_electra_sizes_of(shape)->part == part;
}

static void fill_defaults(bp_model_shape *shape)
{
    bp_electra_sizes *own = bp_electra_sizes_in(shape);

    bp_stack_fill_defaults(shape);
    own->embedding = bp_given_or(own->embedding, shape->width);
    own->generator_layers = bp_given_or(own->generator_layers, shape->layers);
    own->generator_width = bp_given_or(own->generator_width, quarter(shape->width));
    own->generator_heads = bp_given_or(own->generator_heads, quarter(shape->heads));
    own->generator_inner = bp_given_or(own->generator_inner, 4 * own->generator_width);
}

/* The generator is a stack like the discriminator, with its own sizes. */
static bp_model_shape generator_of(const bp_model_shape *shape)
{
    const bp_electra_sizes *own = bp_electra_sizes_of(shape);
    bp_model_shape out = *shape;

    out.layers = own->generator_layers;
    out.width = own->generator_width;
    out.heads = own->generator_heads;
    out.stack.inner = own->generator_inner;
    out.stack.head_width = out.stack.kv_heads = 0;
    return out;
}

/* Transformer checks for the generator's sizes too, under its own names. */
static void check_generator(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    int64_t C = bp_electra_sizes_of(shape)->generator_width,
            H = bp_electra_sizes_of(shape)->generator_heads,
            F = bp_electra_sizes_of(shape)->generator_inner;

    if (C % H != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.generator_heads = %lld does not divide model.generator_width = "
                        "%lld: at model.generator_heads; change one of both",
                        (long long)H, (long long)C);
    if (H % tensor_ranks != 0 || F % tensor_ranks != 0)
        bp_config_fault(config, "mesh.not_dividing",
                        "mesh.tensor = %d does not divide model.generator_heads = %lld and the "
                        "generator's inner width %lld: at mesh.tensor; set model.generator_heads "
                        "to a multiple of it",
                        tensor_ranks, (long long)H, (long long)F);
}

/* A generator by itself is a masked model. */
static const char *no_distribution(const bp_model_shape *shape)
{
    return bp_electra_sizes_of(shape)->part == BP_ELECTRA_GENERATOR
               ? NULL
               : "its discriminator judges tokens, and gives no probability of one";
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    if (has(shape, BP_ELECTRA_GENERATOR))
        check_generator(shape, tensor_ranks, config);
    bp_masked_check_context(shape, config);
    if (bp_electra_sizes_of(shape)->part == BP_ELECTRA_DISCRIMINATOR &&
        !bp_task_has_head(&shape->task))
        bp_config_fault(config, "electra.no_generator",
                        "model.part = discriminator has no generator, without which no token of "
                        "its training is replaced: at model.part; use both");
    if (bp_electra_sizes_of(shape)->part == BP_ELECTRA_GENERATOR && bp_task_has_head(&shape->task))
        bp_config_fault(config, "electra.no_discriminator",
                        "model.part = generator has no discriminator, which a task's head "
                        "follows: at model.part; start from a model that has one");
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    int64_t C = bp_electra_sizes_of(shape)->generator_width,
            H = bp_electra_sizes_of(shape)->generator_heads;

    if (has(shape, BP_ELECTRA_GENERATOR) && C % H != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the generator's %lld heads do not divide its width %lld: at %s; the "
                       "checkpoint is wrong",
                       (long long)H, (long long)C, where);
    return bp_stack_check_read(shape, where);
}

/* All masked tokens become masks, as in the paper, unless keys say otherwise. */
static void resolve(const bp_model_shape *shape, bp_config *config)
{
    static const char *const ZERO[] = {"mask.keep", "mask.random"};

    if (bp_task_has_head(&shape->task) || bp_task_is_asked(config))
        return;
    for (int k = 0; k < 2; k++)
        if (!bp_config_is_given(config, ZERO[k]) && bp_config_set(config, ZERO[k], "0") != BP_OK)
            bp_config_fault_err(config);
}

/* ---- blocks ---- */

typedef enum part {
    EMBEDDING,
    EMBEDDING_NORM,
    G_PROJECTION,
    G_LAYER,
    G_TRANSFORM,
    G_VOCABULARY,
    REPLACEMENT,
    REPLACED_NORM,
    PROJECTION,
    LAYER,
    DENSE,
    JUDGE,
    PARTS
} part;

static int count_of(const bp_model_shape *shape, part of)
{
    bool generator = has(shape, BP_ELECTRA_GENERATOR),
         discriminator = has(shape, BP_ELECTRA_DISCRIMINATOR);
    int64_t E = bp_electra_sizes_of(shape)->embedding;

    switch (of) {
    case EMBEDDING:
    case EMBEDDING_NORM:
        return 1;
    case G_PROJECTION:
        return generator && bp_electra_sizes_of(shape)->generator_width != E;
    case G_LAYER:
        return generator ? (int)bp_electra_sizes_of(shape)->generator_layers : 0;
    case G_TRANSFORM:
    case G_VOCABULARY:
        return generator;
    case REPLACEMENT:
    case REPLACED_NORM:
        return generator && discriminator;
    case PROJECTION:
        return discriminator && shape->width != E;
    case LAYER:
        return discriminator ? (int)shape->layers : 0;
    default:
        return discriminator;
    }
}

static int blocks(const bp_model_shape *shape)
{
    int count = 0;

    for (part of = EMBEDDING; of < PARTS; of++)
        count += count_of(shape, of);
    return count;
}

/* The kind of block `block`, and its index among that kind. */
static part part_of(const bp_model_shape *shape, int block, int *number)
{
    part of = EMBEDDING;

    for (*number = block; *number >= count_of(shape, of); of++)
        *number -= count_of(shape, of);
    return of;
}

/* The ids that the discriminator reads follow the states; from there on the states keep their
 * place. */
static bp_activations block_output(const bp_model_shape *shape, int block)
{
    int64_t E = bp_electra_sizes_of(shape)->embedding, C = shape->width;
    int number;
    part of = part_of(shape, block, &number);
    bp_activations out = {.count = 1,
                          .item = {{.name = "hidden", .columns = E, .has_gradient = true}}};

    if (of == G_PROJECTION || of == G_LAYER)
        out.item[0].columns = bp_electra_sizes_of(shape)->generator_width;
    else if (of >= PROJECTION)
        out.item[0].columns = C;
    if (of >= REPLACEMENT && has(shape, BP_ELECTRA_GENERATOR)) {
        out.item[0].inside = E > C ? E : C;
        out.item[1].name = "replaced";
        out.item[1].columns = 1;
        out.count = 2;
    }
    return out;
}

static bp_param *find_param(bp_network *network, const char *name)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (strcmp(network->groups[g].params[k].name, name) == 0)
                return &network->groups[g].params[k];
    BP_ASSERT(!"a parameter that blocks share");
    return NULL;
}

static bp_embedding_part embedding_of(bp_network *network)
{
    return (bp_embedding_part){.wte = find_param(network, "wte"),
                               .wpe = find_param(network, "wpe"),
                               .segments = find_param(network, "segments"),
                               .keeps_all = true};
}

static bp_block *new_embedding(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false),
             *whole = bp_network_add_group(network, true);
    int64_t E = bp_electra_sizes_of(shape)->embedding;
    bp_block *block;

    bp_network_add_words(network, split, "wte", shape->vocab_size, E, BP_TRANSFORMER_STD);
    bp_group_add_matrix(whole, "wpe", bp_model_positions(shape), E, BP_TRANSFORMER_STD);
    bp_group_add_matrix(whole, "segments", bp_stack_segments(shape), E, BP_TRANSFORMER_STD);
    bp_embedding_part own = embedding_of(network);
    bp_embedding_new(&block, &network->nn, &own, 1);
    return block;
}

static bp_block *new_generator_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    bp_model_shape generator = generator_of(shape);
    bp_layer_shape layer = bp_stack_layer(&generator, number);

    layer.stack = "g";
    layer.first_dropout_stream += GENERATOR_DROPOUT;
    return bp_transformer_new_layer(network, &layer);
}

/* Row-wise blocks: the norms after the embeddings, which are one and the same, projections, the
 * transform before the vocabulary, and the layer before the discriminator's head. */
static bp_block *new_rows(bp_network *network, const bp_model_shape *shape, part of)
{
    int64_t E = bp_electra_sizes_of(shape)->embedding, C = shape->width,
            G = bp_electra_sizes_of(shape)->generator_width;
    bool norms = of == EMBEDDING_NORM || of == REPLACED_NORM;
    bp_row_shape row = {.name = norms                ? "embedding"
                                : of == G_PROJECTION ? "g.project"
                                : of == G_TRANSFORM  ? "transform"
                                : of == PROJECTION   ? "project"
                                                     : "judge",
                        .I = of == G_TRANSFORM ? G
                             : of == DENSE     ? C
                                               : E,
                        .O = of == G_PROJECTION                ? G
                             : of == PROJECTION || of == DENSE ? C
                                                               : E,
                        .has_product = !norms,
                        .linear = of == G_PROJECTION || of == PROJECTION,
                        .no_norm = of == G_PROJECTION || of == PROJECTION || of == DENSE,
                        .activation = BP_GELU_EXACT,
                        .epsilon = bp_stack_epsilon(shape),
                        .dropout_stream = of == EMBEDDING_NORM  ? 0
                                          : of == REPLACED_NORM ? REPLACED_DROPOUT
                                                                : BP_NO_DROPOUT};
    bp_block *block;

    if (of == REPLACED_NORM) {
        row.gain = find_param(network, "embedding.ln.gain");
        row.shift = find_param(network, "embedding.ln.bias");
    }
    bp_row_layer_new(&block, &network->nn, &row,
                     of == REPLACED_NORM ? NULL : bp_network_add_group(network, true));
    return block;
}

static bp_block *new_vocabulary(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    bp_head_shape head = {.term = BP_ELECTRA_WORDS,
                          .sparse = true,
                          .passes_on = has(shape, BP_ELECTRA_DISCRIMINATOR)};
    bp_block *block;

    head.bias = bp_network_add_word_biases(network, split, "head.bias", shape->vocab_size);
    bp_lm_head_new(&block, &network->nn, &head, find_param(network, "wte"), NULL);
    return block;
}

static bp_block *new_replacement(bp_network *network)
{
    bp_replacement_shape shape = {.embedding = embedding_of(network),
                                  .head = network->blocks[network->block_count - 1],
                                  .term = BP_ELECTRA_WORDS,
                                  .ids_item = 1};
    bp_block *block;

    bp_replacement_new(&block, &network->nn, &shape);
    return block;
}

static bp_block *new_judge(bp_network *network, const bp_model_shape *shape)
{
    bp_binary_shape judge = {.C = shape->width,
                             .term = BP_ELECTRA_REPLACED,
                             .ids_item = has(shape, BP_ELECTRA_GENERATOR) ? 1 : 0};
    bp_block *block;

    bp_binary_head_new(&block, &network->nn, &judge, bp_network_add_group(network, true));
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int block, bp_param *shared)
{
    int number;
    part of = part_of(shape, block, &number);

    (void)shared;
    bp_network_add_block(network, of == EMBEDDING      ? new_embedding(network, shape)
                                  : of == G_LAYER      ? new_generator_layer(network, shape, number)
                                  : of == G_VOCABULARY ? new_vocabulary(network, shape)
                                  : of == REPLACEMENT  ? new_replacement(network)
                                  : of == LAYER        ? bp_stack_new_layer(network, shape, number)
                                  : of == JUDGE        ? new_judge(network, shape)
                                                       : new_rows(network, shape, of));
}

/* ---- derived from sizes ---- */

static double cost(const bp_model_shape *shape, int block)
{
    bp_model_shape generator = generator_of(shape);
    double E = (double)bp_electra_sizes_of(shape)->embedding, C = (double)shape->width,
           G = (double)generator.width;
    int number;

    switch (part_of(shape, block, &number)) {
    case G_LAYER:
        return bp_stack_layer_cost(&generator, number);
    case LAYER:
        return bp_stack_layer_cost(shape, number);
    case G_PROJECTION:
    case G_TRANSFORM:
        return 2 * E * G;
    case PROJECTION:
        return 2 * E * C;
    case DENSE:
        return 2 * C * C;
    case G_VOCABULARY:
    case REPLACEMENT:
        return BP_MASK_RATE * 2 * (double)shape->vocab_size * E;
    default:
        return 50 * E;
    }
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    double forward = 0;

    for (int block = 2; block < blocks(shape); block++)
        forward += cost(shape, block);
    return (bp_model_facts){.train_flops = 3 * forward};
}

/* Only the discriminator's embedding, its norm, projection and layers. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    bp_model_shape bare = *shape;
    bp_backbone out = {.pooler = true, .gelu = true, .segments = bp_stack_segments(shape)};
    double C = (double)shape->width;

    bare.task.kind = 0;
    bp_electra_sizes_in(&bare)->part = BP_ELECTRA_DISCRIMINATOR;
    out.layers_from = 2 + count_of(&bare, PROJECTION);
    out.blocks = out.layers_from + (int)shape->layers;
    out.head_flops = 6 * C * C + 3 * 50 * (double)bp_electra_sizes_of(shape)->embedding;
    return out;
}

static const bp_block_list BLOCK_LIST = {
    .count = blocks,
    .are = "embeddings, generator, discriminator",
    /* The discriminator reads what the generator drew in the same pass, and both read the
       embeddings in the middle of the list of blocks. But only the first and the last stage may
       have a shared table. */
    .one_stage = true,
    .cost = cost,
    .backbone = backbone,
    .output = block_output,
    .add = add_block,
};

static const bp_folder_form FOLDER = {.name = "Hugging Face's generator/ and discriminator/",
                                      .is = bp_electra_folder_is,
                                      .read = bp_electra_folder_read};

const bp_model_family bp_electra_family = {
    .name = "electra",
    .stack = &STACK,
    .sizes = SIZES,
    .keys = KEYS,
    .fill_defaults = fill_defaults,
    .resolve = resolve,
    .check = check,
    .check_read = check_read,
    .facts = facts,
    .whole_rows = true,
    .objective = &bp_objective_replaced,
    .no_distribution = no_distribution,
    .huggingface = bp_electra_huggingface,
    .half = bp_electra_half,
    .folder = &FOLDER,
    .blocks = &BLOCK_LIST,
};
