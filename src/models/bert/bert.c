/* The families of BERT, RoBERTa and DistilBERT: their sizes, and their blocks: embedding and its
 * norm, layers whose norms follow their branches, pooler with the head of next sentences, the
 * transform before the vocabulary, and the vocabulary. Source: Devlin et al. 2019; Liu et al. 2019.
 */
#include "models/bert/bert.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

#define NEXT_SENTENCES 2 /* it follows, it does not */

#define ENCODER_SIZES                                                                              \
    BP_STACK_SIZES, BP_STACK_CONTEXT, BP_POSITIONS_SIZE, BP_STACK_QUIET("head_width", head_width), \
        BP_STACK_COUNT("inner", inner), BP_STACK_REAL("norm_epsilon", epsilon), BP_STACK_TIED
#define COMMON_SIZES ENCODER_SIZES, BP_STACK_COUNT("segments", segments)

#define ENCODER                                                                                    \
    .post_norm = true, .embedding_norm = true, .position_std = BP_TRANSFORMER_STD,                 \
    .sees_all = true, .activation = BP_GELU_EXACT, .tied = true
static const bp_stack BERT = {ENCODER, .epsilon = 1e-12, .segments = 2};
/* It counts positions from its padding token's number on, which is 1 in its vocabulary. */
static const bp_stack ROBERTA = {ENCODER, .first_position = 2, .segments = 1};
static const bp_stack DISTILBERT = {ENCODER, .epsilon = 1e-12, .relu_pooler = true};

#define BOUNDARY_SIZE                                                                              \
    {                                                                                              \
        .name = "boundary", .at = BP_OWN_AT(bp_bert_sizes, boundary), .type = BP_SIZE_FLAG,        \
        .optional = true, .quiet = true                                                            \
    }

static const bp_model_size BERT_SIZES[] = {COMMON_SIZES,
                                           BOUNDARY_SIZE,
                                           {.name = "pooler",
                                            .at = BP_OWN_AT(bp_bert_sizes, no_pooler),
                                            .type = BP_SIZE_FLAG,
                                            .optional = true,
                                            .inverse = true},
                                           BP_VARIANT_ATTENTION_SIZE,
                                           BP_VARIANT_HEAD_SIZES,
                                           {0}};
static const bp_model_size ROBERTA_SIZES[] = {COMMON_SIZES,
                                              BOUNDARY_SIZE,
                                              BP_STACK_COUNT("first_position", first_position),
                                              BP_VARIANT_ATTENTION_SIZE,
                                              BP_VARIANT_HEAD_SIZES,
                                              {0}};

static const bp_model_size DISTILBERT_SIZES[] = {
    ENCODER_SIZES, BOUNDARY_SIZE, BP_VARIANT_ATTENTION_SIZE, BP_VARIANT_HEAD_SIZES, {0}};

#define COMMON_KEYS                                                                                \
    {BP_BOOL_KEY("model.tied", NULL),                                                              \
     .help = "the head is the token embedding; yes if not given"},                                 \
    {                                                                                              \
        BP_BOOL_KEY("model.boundary", NULL),                                                       \
            .help = "masked words are found from the states beside their spans too, SpanBERT's "   \
                    "boundary objective; no if not given"                                          \
    }

#define EPSILON_KEY                                                                                \
    {                                                                                              \
        BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),                                         \
            .help = "what norms add to the mean square; 1e-12 if not given"                        \
    }
static const bp_option BERT_KEYS[] = {
    COMMON_KEYS,
    {BP_BOOL_KEY("model.pooler", NULL), .help = "there is a head that predicts whether a text's "
                                                "second part follows its first; yes if not given"},
    EPSILON_KEY,
    {0}};
static const bp_option DISTILBERT_KEYS[] = {COMMON_KEYS, EPSILON_KEY, {0}};
static const bp_option ROBERTA_KEYS[] = {
    COMMON_KEYS,
    {BP_INT_KEY("model.segments", NULL, 1, 1 << 16),
     .help = "kinds of segments that have an embedding; 1 if not given"},
    {BP_INT_KEY("model.first_position", NULL, 1, 1 << 24),
     .help = "row of the position table of a text's first token, Hugging Face's pad_token_id + 1; "
             "2 if not given"},
    {0}};

void bp_masked_fill_defaults(bp_model_shape *shape)
{
    bp_stack_fill_defaults(shape);
    bp_bert_sizes_in(shape)->no_pooler = 1;
}

void bp_masked_check_context(const bp_model_shape *shape, bp_config *config)
{
    if (shape->context < BP_MASKED_CONTEXT)
        bp_config_fault(config, "model.short_context",
                        "model.context = %lld is too short for a masked word between the tokens "
                        "that begin and end a text: at model.context; use %d or more",
                        (long long)shape->context, BP_MASKED_CONTEXT);
}

void bp_masked_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    bp_masked_check_context(shape, config);
}

/* ---- blocks ---- */

/* The kind of a block of the list: there are many layers. */
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
    return bp_bert_sizes_of(shape)->boundary != 0;
}

static int boundary_blocks(const bp_model_shape *shape)
{
    return has_boundary(shape) ? TRANSFORM - BOUNDARY : 0;
}

static int blocks(const bp_model_shape *shape)
{
    return (int)shape->layers + 4 + bp_bert_has_pooler(shape) + boundary_blocks(shape);
}

/* The last of the layers, after the embedding and its norm. */
static int key_block(const bp_model_shape *shape)
{
    return (int)shape->layers + 1;
}

static part part_of(const bp_model_shape *shape, int block)
{
    int after = block - (int)shape->layers - 2;

    if (block < 2)
        return block == 0 ? EMBEDDING : EMBEDDING_NORM;
    if (after < 0)
        return LAYER;
    after += POOLED + !bp_bert_has_pooler(shape);
    return (part)(after < BOUNDARY ? after : after + TRANSFORM - BOUNDARY - boundary_blocks(shape));
}

/* Beside the states, the boundaries of masked spans go to a transform of their own and the same
 * vocabulary. */
static bp_activations block_output(const bp_model_shape *shape, int block)
{
    bp_activations out = bp_transformer_block_output(shape, block);
    part of = part_of(shape, block);

    if (has_boundary(shape) && of >= BOUNDARY) {
        out.count = 2;
        out.item[1].name = "boundary";
        out.item[1].columns = (of == BOUNDARY ? 3 : 1) * shape->width;
        out.item[1].has_gradient = true;
    }
    return out;
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
                        .epsilon = bp_stack_epsilon(shape),
                        .item = of == BOUNDARY_FIRST || of == BOUNDARY_SECOND,
                        .dropout_stream = of == EMBEDDING_NORM ? 0 : BP_NO_DROPOUT};
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
                            .dropout_stream = BP_NO_DROPOUT};
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
    bp_block *block;

    head.bias = bp_network_add_word_biases(network, split, "head.bias", shape->vocab_size);
    bp_variants_set_head(&head, network, shape);
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    part of = part_of(shape, number);

    bp_network_add_block(network, of == EMBEDDING  ? bp_stack_new_embedding(network, shape, shared)
                                  : of == LAYER    ? bp_stack_new_layer(network, shape, number - 2)
                                  : of == POOLED   ? new_pooled(network, shape)
                                  : of == BOUNDARY ? new_boundary(network, shape)
                                  : of == VOCABULARY ? new_vocabulary(network, shape, shared)
                                                     : new_rows(network, shape, of));
}

/* ---- derived from sizes ---- */

/* The vocabulary reads only the masked tokens of a text. */
static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;

    switch (part_of(shape, block)) {
    case EMBEDDING:
        return bp_stack_embedding_cost(shape);
    case EMBEDDING_NORM:
        return 10 * C;
    case LAYER:
        return bp_stack_layer_cost(shape, block - 2);
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
        return (has_boundary(shape) ? 2 : 1) * BP_MASK_RATE * 2 * (double)shape->vocab_size * C;
    }
}

static double head_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width, words = BP_MASK_RATE * (double)shape->vocab_size * C;

    return has_boundary(shape) ? 5 * C * C + 2 * words : C * C + words;
}

static bp_model_facts facts(const bp_model_shape *shape)
{
    double forward = 2 * head_matrices(shape);

    for (int64_t number = 0; number < shape->layers; number++)
        forward += bp_stack_layer_cost(shape, number);
    return (bp_model_facts){.train_flops = 3 * forward};
}

/* Embedding, its norm, layers; Hugging Face's RoBERTa pools like BERT, under other names. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    return (bp_backbone){.blocks = (int)shape->layers + 2,
                         .relu = shape->family->stack->relu_pooler,
                         .layers_from = 2,
                         .pooler = true,
                         .segments = bp_stack_segments(shape),
                         .head_flops = 6 * head_matrices(shape)};
}

static const bp_block_list BLOCK_LIST = {.count = blocks,
                                         .are = "embedding, its norm, layers, heads",
                                         .cost = cost,
                                         .backbone = backbone,
                                         .output = block_output,
                                         .add_shared = bp_stack_add_shared,
                                         .add = add_block};

#define FAMILY(kind, of, sizes_of, keys_of, fills, tables)                                         \
    {                                                                                              \
        .name = kind, .stack = of, .sizes = sizes_of, .keys = keys_of, .fill_defaults = fills,     \
        .check = bp_masked_check, .check_read = bp_stack_check_read, .facts = facts,               \
        .blocks = &BLOCK_LIST, .objective = &bp_objective_masked,                                  \
        .has_pairs_head = bp_bert_has_pooler, .huggingface = tables, .key_block = key_block        \
    }

const bp_model_family bp_bert_family = FAMILY("bert", &BERT, BERT_SIZES, BERT_KEYS,
                                              bp_stack_fill_defaults, bp_bert_huggingface),
                      bp_roberta_family = FAMILY("roberta", &ROBERTA, ROBERTA_SIZES, ROBERTA_KEYS,
                                                 bp_masked_fill_defaults, bp_roberta_huggingface),
                      bp_distilbert_family =
                          FAMILY("distilbert", &DISTILBERT, DISTILBERT_SIZES, DISTILBERT_KEYS,
                                 bp_masked_fill_defaults, bp_distilbert_huggingface);
