/* The families of BERT and RoBERTa: their sizes, and their blocks: embedding and its norm, layers
 * whose norms stand behind their branches, pooler with the head of next sentences, the transform
 * before the vocabulary, and the vocabulary. Source: Devlin et al. 2019; Liu et al. 2019. */
#include "models/bert/bert.h"

#include "models/transformer.h"
#include "models/variants.h"
#include "nn/layers.h"

#include <string.h>

#define BERT_EPSILON    1e-12
#define ROBERTA_EPSILON 1e-5
#define NEXT_SENTENCES  2 /* it follows, it does not */

/* Streams of dropout masks: 0 is the norm's behind the embedding, a layer takes three of four. */
#define LAYER_MASK(number) (4 * (number) + 1)

#define COMMON_SIZES                                                                               \
    {.name = "layers", .at = BP_SIZE_AT(layers)}, {.name = "width", .at = BP_SIZE_AT(width)},      \
        {.name = "heads", .at = BP_SIZE_AT(heads)},                                                \
        {.name = "context", .at = BP_SIZE_AT(context)}, BP_POSITIONS_SIZE,                         \
        {.name = "head_width",                                                                     \
         .at = BP_SIZE_AT(own[BP_BERT_HEAD_WIDTH]),                                                \
         .optional = true,                                                                         \
         .quiet = true},                                                                           \
        {.name = "inner", .at = BP_SIZE_AT(own[BP_BERT_INNER]), .optional = true},                 \
        {.name = "segments", .at = BP_SIZE_AT(own[BP_BERT_SEGMENTS]), .optional = true},           \
        {.name = "norm_epsilon",                                                                   \
         .at = BP_SIZE_AT(real[BP_BERT_EPSILON]),                                                  \
         .type = BP_SIZE_REAL,                                                                     \
         .optional = true},                                                                        \
    {                                                                                              \
        .name = "tied", .at = BP_SIZE_AT(own[BP_BERT_UNTIED]), .type = BP_SIZE_FLAG,               \
        .optional = true, .quiet = true, .inverse = true                                           \
    }

#define BOUNDARY_SIZE                                                                              \
    {                                                                                              \
        .name = "boundary", .at = BP_SIZE_AT(own[BP_BERT_BOUNDARY]), .type = BP_SIZE_FLAG,         \
        .optional = true, .quiet = true                                                            \
    }

static const bp_model_size BERT_SIZES[] = {COMMON_SIZES,
                                           BOUNDARY_SIZE,
                                           {.name = "pooler",
                                            .at = BP_SIZE_AT(own[BP_BERT_NO_POOLER]),
                                            .type = BP_SIZE_FLAG,
                                            .optional = true,
                                            .inverse = true},
                                           BP_VARIANT_ATTENTION_SIZE,
                                           BP_VARIANT_HEAD_SIZES,
                                           {0}};
static const bp_model_size ROBERTA_SIZES[] = {
    COMMON_SIZES,
    BOUNDARY_SIZE,
    {.name = "first_position", .at = BP_SIZE_AT(own[BP_BERT_FIRST_POSITION]), .optional = true},
    BP_VARIANT_ATTENTION_SIZE,
    BP_VARIANT_HEAD_SIZES,
    {0}};

static bool is_roberta(const bp_model_shape *shape)
{
    return shape->family == &bp_roberta_family;
}

bool bp_bert_has_pooler(const bp_model_shape *shape)
{
    return !is_roberta(shape) && shape->own[BP_BERT_NO_POOLER] == 0;
}

static int64_t given_or(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

static int64_t head_width(const bp_model_shape *shape)
{
    return given_or(shape->own[BP_BERT_HEAD_WIDTH], shape->width / shape->heads);
}

static int64_t inner(const bp_model_shape *shape)
{
    return given_or(shape->own[BP_BERT_INNER], 4 * shape->width);
}

static int64_t segments(const bp_model_shape *shape)
{
    return given_or(shape->own[BP_BERT_SEGMENTS], is_roberta(shape) ? 1 : 2);
}

/* RoBERTa counts positions from its padding token's number on, which is 1 in its vocabulary. */
int64_t bp_bert_first_position(const bp_model_shape *shape)
{
    return is_roberta(shape) ? given_or(shape->own[BP_BERT_FIRST_POSITION], 2) : 0;
}

static void settle(bp_model_shape *shape)
{
    double *epsilon = &shape->real[BP_BERT_EPSILON];

    if (shape->width % shape->heads == 0)
        shape->own[BP_BERT_HEAD_WIDTH] = head_width(shape);
    shape->own[BP_BERT_INNER] = inner(shape);
    shape->own[BP_BERT_SEGMENTS] = segments(shape);
    shape->own[BP_BERT_FIRST_POSITION] = bp_bert_first_position(shape);
    *epsilon = *epsilon > 0 ? *epsilon : is_roberta(shape) ? ROBERTA_EPSILON : BERT_EPSILON;
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    if (shape->own[BP_BERT_HEAD_WIDTH] == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensors, config);
    bp_transformer_check_inner(shape, inner(shape), tensors, config);
    if (shape->context < BP_MASKED_CONTEXT)
        bp_config_fault(config, "model.short_context",
                        "model.context = %lld is too short for a masked word between the tokens "
                        "that begin and end a text: at model.context; use %d or more",
                        (long long)shape->context, BP_MASKED_CONTEXT);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    return shape->own[BP_BERT_HEAD_WIDTH] > 0 ? BP_OK : bp_transformer_check_read(shape, where);
}

/* ---- blocks ---- */

/* What is a block of the list: of layers there are many. */
typedef enum part {
    EMBEDDING,
    EMBEDDING_NORM,
    LAYER,
    POOLED,
    BOUNDARY,
    BOUNDARY_FIRST,
    BOUNDARY_SECOND,
    TRANSFORM,
    VOCABULARY
} part;

static bool has_boundary(const bp_model_shape *shape)
{
    return shape->own[BP_BERT_BOUNDARY] != 0;
}

static int boundary_blocks(const bp_model_shape *shape)
{
    return has_boundary(shape) ? TRANSFORM - BOUNDARY : 0;
}

static int blocks(const bp_model_shape *shape)
{
    return (int)shape->layers + 4 + bp_bert_has_pooler(shape) + boundary_blocks(shape);
}

/* The last of the layers, behind the embedding and its norm. */
static int key_block(const bp_model_shape *shape)
{
    return (int)shape->layers + 1;
}

static part part_of(const bp_model_shape *shape, int block)
{
    int behind = block - (int)shape->layers - 2;

    if (block < 2)
        return block == 0 ? EMBEDDING : EMBEDDING_NORM;
    if (behind < 0)
        return LAYER;
    behind += POOLED + !bp_bert_has_pooler(shape);
    return (part)(behind < BOUNDARY ? behind
                                    : behind + TRANSFORM - BOUNDARY - boundary_blocks(shape));
}

/* Beside the states the boundaries of masked spans pass on, to a transform of their own and the
 * same vocabulary. */
static bp_activations behind(const bp_model_shape *shape, int block)
{
    bp_activations out = bp_transformer_behind(shape, block);
    part of = part_of(shape, block);

    if (has_boundary(shape) && of >= BOUNDARY) {
        out.count = 2;
        out.item[1].name = "boundary";
        out.item[1].columns = (of == BOUNDARY ? 3 : 1) * shape->width;
        out.item[1].has_gradient = true;
    }
    return out;
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int count)
{
    return shape->own[BP_BERT_UNTIED]
               ? NULL
               : bp_transformer_add_tied(network, shape, stage, stages, count);
}

static bp_block *new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_param *wte = shared ? shared : bp_transformer_add_table(network, shape, "wte");
    bp_group *whole = bp_network_add_group(network, true);
    int64_t first = bp_bert_first_position(shape), C = shape->width;
    bp_embedding_part own = {
        .wte = wte,
        .wpe = bp_group_add_matrix(whole, "wpe", first + bp_model_positions(shape), C,
                                   BP_TRANSFORMER_STD),
        .segments = bp_group_add_matrix(whole, "segments", segments(shape), C, BP_TRANSFORMER_STD),
        .first_position = first,
        .places_padding = first > 0, /* RoBERTa's padding */
        .keeps_all = true};
    bp_block *block;

    bp_embedding_new(&block, &network->nn, &own, 1);
    return block;
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    bp_layer_shape layer = {.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = shape->heads,
                            .D = head_width(shape),
                            .F = inner(shape),
                            .epsilon = (float)shape->real[BP_BERT_EPSILON],
                            .activation = BP_GELU_EXACT,
                            .post_norm = true,
                            .sees_all = true,
                            .layers = shape->layers,
                            .number = number,
                            .stack = "h",
                            .first_mask = LAYER_MASK(number)};
    bp_group *split = bp_network_add_group(network, false);
    bp_block *block;

    bp_transformer_layer_new(&block, &network->nn, &layer, split,
                             bp_network_add_group(network, true));
    return block;
}

static bp_block *new_rows(bp_network *network, const bp_model_shape *shape, part of)
{
    bp_row_shape row = {.name = of == TRANSFORM         ? "transform"
                                : of == BOUNDARY_FIRST  ? "boundary.0"
                                : of == BOUNDARY_SECOND ? "boundary.1"
                                                        : "embedding",
                        .I = (of == BOUNDARY_FIRST ? 3 : 1) * shape->width,
                        .O = shape->width,
                        .has_product = of != EMBEDDING_NORM,
                        .activation = BP_GELU_EXACT,
                        .epsilon = (float)shape->real[BP_BERT_EPSILON],
                        .item = of == BOUNDARY_FIRST || of == BOUNDARY_SECOND,
                        .mask = of == EMBEDDING_NORM ? 0 : BP_ROW_KEEPS_ALL};
    bp_block *block;

    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

static bp_block *new_boundary(bp_network *network, const bp_model_shape *shape)
{
    bp_boundary_shape boundary = {.C = shape->width, .item = 1, .term = BP_BERT_WORDS};
    bp_block *block;

    bp_boundary_new(&block, &network->nn, &boundary, bp_network_add_group(network, true));
    return block;
}

/* Without dropout, as in BERT's own program. */
static bp_block *new_pooled(bp_network *network, const bp_model_shape *shape)
{
    bp_pooled_shape head = {.C = shape->width,
                            .classes = NEXT_SENTENCES,
                            .term = BP_BERT_NEXT_SENTENCE,
                            .mask = BP_ROW_KEEPS_ALL};
    bp_group *whole = bp_network_add_group(network, true);
    bp_block *block;

    whole->frozen = shape->asks_no_pairs;
    bp_pooled_head_new(&block, &network->nn, &head, whole);
    return block;
}

static bp_block *new_vocabulary(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_param *table = shared ? shared : bp_transformer_add_table(network, shape, "head");
    bp_group *split = bp_network_add_group(network, false);
    bp_head_shape head = {.term = BP_BERT_WORDS,
                          .sparse = true,
                          .twice = has_boundary(shape),
                          .second_item = 1,
                          .second_term = BP_BERT_BOUNDARY_WORDS};
    int64_t first, count;
    bp_block *block;

    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    head.bias = bp_group_add_vector_part(split, "head.bias", shape->vocab_size, first, count);
    bp_variants_set_head(&head, network, shape);
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    part of = part_of(shape, number);

    bp_network_add_block(network, of == EMBEDDING    ? new_embedding(network, shape, shared)
                                  : of == LAYER      ? new_layer(network, shape, number - 2)
                                  : of == POOLED     ? new_pooled(network, shape)
                                  : of == BOUNDARY   ? new_boundary(network, shape)
                                  : of == VOCABULARY ? new_vocabulary(network, shape, shared)
                                                     : new_rows(network, shape, of));
}

/* ---- what follows from sizes ---- */

/* Multiplications of one token in the matrices of a layer. */
static double layer_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width, heads = (double)(shape->heads * head_width(shape));

    return 4 * C * heads + 2 * C * (double)inner(shape);
}

/* Of a text's tokens the vocabulary sees those that are masked. */
static double vocabulary_share(void)
{
    return BP_MASK_RATE;
}

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width, heads = (double)(shape->heads * head_width(shape));

    switch (part_of(shape, block)) {
    case EMBEDDING:
        return 50 * C;
    case EMBEDDING_NORM:
        return 10 * C;
    case LAYER:
        return 2 * layer_matrices(shape) + 4 * (double)shape->context * heads;
    case POOLED:
        return 2 * C * C / (double)shape->context;
    case BOUNDARY:
        return 10 * C;
    case BOUNDARY_FIRST:
        return 6 * C * C;
    case BOUNDARY_SECOND:
    case TRANSFORM:
        return 2 * C * C;
    default:
        return (has_boundary(shape) ? 2 : 1) * vocabulary_share() * 2 * (double)shape->vocab_size *
               C;
    }
}

static int64_t pooled_parameters(const bp_model_shape *shape)
{
    int64_t C = shape->width;

    return bp_bert_has_pooler(shape) ? C * C + C + NEXT_SENTENCES * (C + 1) : 0;
}

/* Position numbers, and two layers with norms. */
static int64_t boundary_parameters(const bp_model_shape *shape)
{
    int64_t C = shape->width;

    return has_boundary(shape) ? BP_BOUNDARY_PLACES * C + 4 * C * C + 6 * C : 0;
}

static double head_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width, words = vocabulary_share() * (double)shape->vocab_size * C;

    return has_boundary(shape) ? 5 * C * C + 2 * words : C * C + words;
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t L = shape->layers, C = shape->width, heads = shape->heads * head_width(shape),
            V = shape->vocab_size, tables = shape->own[BP_BERT_UNTIED] ? 2 : 1;
    int64_t layers = L * (4 * C * heads + 2 * C * inner(shape) + 3 * heads + inner(shape) + 6 * C),
            embedding = (tables * V + bp_bert_first_position(shape) + bp_model_positions(shape) +
                         segments(shape) + 2) *
                        C,
            head = C * C + 3 * C + V + boundary_parameters(shape),
            pooled = pooled_parameters(shape);
    double matrices = (double)L * layer_matrices(shape) + head_matrices(shape);

    return (bp_model_facts){.parameters = layers + embedding + head + pooled,
                            .train_flops = 6 * matrices +
                                           12 * (double)L * (double)shape->context * (double)heads};
}

/* Embedding, its norm, layers; Hugging Face's RoBERTa pools as a BERT does, but for the names. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    int64_t C = shape->width, V = shape->vocab_size;

    return (bp_backbone){.blocks = (int)shape->layers + 2,
                         .layers_from = 2,
                         .pooler = true,
                         .segments = segments(shape),
                         .head_parameters = C * C + 3 * C + V + pooled_parameters(shape) +
                                            boundary_parameters(shape) +
                                            (shape->own[BP_BERT_UNTIED] ? V * C : 0),
                         .head_flops = 6 * head_matrices(shape)};
}

#define FAMILY(kind, sizes_of, tables)                                                             \
    {                                                                                              \
        .name = kind, .sizes = sizes_of, .settle = settle, .check = check,                         \
        .check_read = check_read, .facts = facts, .objective = &bp_objective_masked,               \
        .huggingface = tables, .blocks = blocks, .key_block = key_block,                           \
        .blocks_are = "embedding, its norm, layers, heads", .cost = cost, .backbone = backbone,    \
        .behind = behind, .add_shared = add_shared, .add_block = add_block                         \
    }

const bp_model_family bp_bert_family = FAMILY("bert", BERT_SIZES, bp_bert_huggingface),
                      bp_roberta_family = FAMILY("roberta", ROBERTA_SIZES, bp_roberta_huggingface);
