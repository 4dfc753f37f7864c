/* Heads of tasks, after the backbone of any family. */
#include "models/task/task.h"
#include "models/stack/transformer.h"
#include "models/stack/variants.h"
#include "models/task/list.h"
#include "models/task/vectors.h"

#include "nn/core/layers.h"

#include <string.h>

static bp_backbone backbone_of(const bp_model_shape *shape)
{
    return shape->family->blocks->backbone(shape);
}

const bp_option bp_task_options[] = {
    {BP_CHOICE_KEY("task.kind", NULL, BP_TASK_CHOICES),
     .help = "what the model learns to predict: a class or a number of each text, tags of its "
             "words, where in it an answer stands, or a text that is written for another one (a "
             "translator goes on with pretrain and model.init)",
     .required = BP_REQUIRED_ASKED, .at = BP_AT(bp_task_keys, kind)},
    {BP_STRING_KEY("task.label", NULL),
     .help = "the corpora's label that is learnt; the only one if not given",
     .at = BP_AT(bp_task_keys, label)},
    {BP_STRING_KEY("task.labels", NULL),
     .help = "a file of all classes or tags that there are, one a line: outcomes in its order, "
             "also those that corpus.train lacks; without it those of corpus.train, sorted",
     .at = BP_AT(bp_task_keys, labels)},
    {BP_CHOICE_KEY("task.pool", "auto", "auto|first|mean|last"),
     .help = "of which tokens' states the head reads a text: auto is first, through a pooler, of "
             "encoders that begin texts with a cls token, last of others, of encoder-decoders "
             "through a pooler too",
     .at = BP_AT(bp_task_keys, pool)},
    {BP_INT_KEY("task.frozen_layers", "0", 0, 10000), .unit = "layers",
     .help = "this many of the first layers, and the embeddings below them, keep their values",
     .at = BP_AT(bp_task_keys, frozen_layers)},
    {BP_STRING_KEY("task.separator", "=>"),
     .help = "of text and causal models: what stands between a source and its target",
     .at = BP_AT(bp_task_keys, separator)},
    {BP_REAL_KEY("task.lm_weight", "0", 0, 1000),
     .help = "causal models with a tied head: of the language model's loss on the same texts, "
             "which is added to the task's; 0: none",
     .at = BP_AT(bp_task_keys, lm_weight)},
    {BP_INT_KEY("task.stride", "128", 1, 1 << 20), .unit = "tokens",
     .help =
         "of spans: tokens from the start of a window in a long context to that of the next one",
     .at = BP_AT(bp_task_keys, stride)},
    {BP_INT_KEY("task.answer_tokens", "30", 1, 1 << 20), .unit = "tokens",
     .help = "of spans: the longest answer that scoring looks for; a checkpoint keeps it",
     .at = BP_AT(bp_task_keys, answer_tokens)},
    {BP_STRING_KEY("dirichlet.outside", NULL),
     .help = "the class of corpus.train's texts outside the domain: outcomes are a Dirichlet, "
             "which is to be flat there (a prior network)",
     .at = BP_AT(bp_task_keys, outside)},
    {BP_REAL_KEY("dirichlet.precision", "100", 1e-3, 1e6),
     .help = "that it is to have of texts of the other classes",
     .at = BP_AT(bp_task_keys, precision)},
    {BP_REAL_KEY("dirichlet.smoothing", "0.01", 1e-9, 0.5),
     .help = "the mean probability that each class is to have that is not the text's",
     .at = BP_AT(bp_task_keys, smoothing)},
    {BP_INT_KEY("sngp.features", "0", 0, BP_TASK_FEATURES_MAX),
     .help =
         "random features of a Gaussian process that predicts the classes (SNGP); 0: a linear map",
     .at = BP_AT(bp_task_keys, features)},
    {BP_REAL_KEY("sngp.length_scale", "0", 0, 1e6),
     .help =
         "of its kernel, in the distance of two texts' states; 0: the square root of model.width",
     .at = BP_AT(bp_task_keys, length_scale)},
    {BP_REAL_KEY("sngp.prior", "1", 1e-6, 1e6), .help = "the precision of its weights' prior",
     .at = BP_AT(bp_task_keys, prior)},
    {BP_REAL_KEY("sngp.bound", "0.95", 0, 1e6),
     .help = "the largest spectral norm that the hidden weights keep; 0: any",
     .at = BP_AT(bp_task_keys, bound)},
    {BP_CHOICE_KEY("sngp.bounded", "all", "all|pooler"),
     .help = "which weights that are: the matrices of all layers that train and the pooler's, or "
             "only the pooler's",
     .at = BP_AT(bp_task_keys, bounded)},
    {0},
};

static void see_kind(void *context, const bp_option *option, const char *value)
{
    bool *asked = context;

    *asked = *asked || (value && strcmp(option->key, "task.kind") == 0);
}

bool bp_task_is_asked(const bp_config *config)
{
    bool asked = false;

    bp_config_each(config, see_kind, &asked);
    return asked;
}

/* ---- the head: its input, and outcomes ---- */

static bool has_pooler(const bp_model_shape *shape)
{
    if (!bp_task_kind_of(&shape->task)->new_head)
        return false;
    if (backbone_of(shape).transform)
        return false;
    return shape->task.pool == BP_POOL_FIRST
               ? backbone_of(shape).pooler
               : shape->task.pool == BP_POOL_LAST && shape->task.dense;
}

/* If it keeps the words, the head is one block, that of the last stage, which shares their table.
 */
static int blocks_of(const bp_model_shape *shape)
{
    if (!bp_task_kind_of(&shape->task)->new_head)
        return 1;
    return bp_task_keeps_words(shape) ? 1 : shape->task.features > 0 ? 3 : 2;
}

/* FLOPs of training, per token. */
static double train_flops(const bp_model_shape *shape)
{
    double matrices = (double)(shape->task.outcomes * shape->width), C = (double)shape->width;
    bool a_place = shape->task.pool == BP_POOL_NONE;
    double D = (double)shape->task.features;

    if (D > 0) /* two of three products: the projection is not trained */
        matrices = D * (double)shape->task.outcomes + D * C * 2 / 3;

    if (has_pooler(shape))
        matrices += C * C;
    if (backbone_of(shape).transform) /* of all positions */
        matrices += C * C * (a_place ? 1 : (double)shape->context);
    return 6 * (matrices / (a_place ? 1 : (double)shape->context) +
                (bp_task_keeps_words(shape) ? (double)shape->vocab_size * C : 0));
}

#define HEAD_DROPOUT ((int64_t)1 << 40)

static bp_block *new_pooling(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);
    bool has_head = bp_task_kind_of(&shape->task)->new_head != NULL,
         transforms = has_head && backbone.transform;
    bp_pooling_shape pooling = {.C = shape->width,
                                .norm = bp_task_keeps_words(shape) ? NULL : backbone.norm,
                                .rms = backbone.rms,
                                .no_norm_bias = backbone.no_norm_bias,
                                .epsilon = backbone.epsilon,
                                .pool = (bp_pool)shape->task.pool,
                                .pooler = has_pooler(shape),
                                .gelu = backbone.gelu,
                                .relu = backbone.relu,
                                .is_last = !has_head,
                                .dropout_stream =
                                    transforms || !has_head ? BP_NO_DROPOUT : HEAD_DROPOUT};
    bp_block *parts[2], *block;

    if (!has_head)
        bp_task_set_vector(&pooling, shape);
    bp_pooling_new(&parts[0], &network->nn, &pooling, bp_network_add_group(network, true));
    if (!transforms)
        return parts[0];
    parts[1] = backbone.transform(network, shape, HEAD_DROPOUT);
    bp_series_new(&block, &network->nn, parts, 2);
    return block;
}

static bp_block *new_features(bp_network *network, const bp_model_shape *shape)
{
    bp_features_shape features = {shape->width, shape->task.features, shape->task.outcomes,
                                  shape->task.length_scale};
    bp_group *whole = bp_network_add_group(network, true),
             *frozen = bp_network_add_group(network, true);
    bp_block *block;

    frozen->frozen = true;
    bp_random_features_new(&block, &network->nn, &features, whole, frozen);
    return block;
}

/* After features the rows are already logits. */
static bp_block *new_logits(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    bp_head_shape head = {.sparse = true};
    bp_param *table;
    bp_block *block;

    split->frozen = true;
    table =
        bp_network_add_words(network, split, "sngp.logits", shape->task.outcomes, shape->width, 0);
    table->init = BP_INIT_IDENTITY;
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static bp_block *new_norm(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);

    return bp_transformer_new_norm(network, &(bp_row_shape){.name = backbone.norm,
                                                            .I = shape->width,
                                                            .O = shape->width,
                                                            .rms = backbone.rms,
                                                            .no_norm_bias = backbone.no_norm_bias,
                                                            .epsilon = backbone.epsilon,
                                                            .dropout_stream = BP_NO_DROPOUT});
}

static bp_block *new_words(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.term = BP_TASK_WORDS,
                          .sparse = true,
                          .passes_on = true,
                          .cap = backbone_of(shape).cap,
                          .scale = backbone_of(shape).scale};
    bp_block *block;

    BP_ASSERT(shared);
    bp_lm_head_new(&block, &network->nn, &head, shared, NULL);
    return block;
}

void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number,
                       bp_param *shared)
{
    bp_block *block;

    if (bp_task_keeps_words(shape)) {
        bp_block *parts[4];
        int count = 0;

        if (backbone_of(shape).norm)
            parts[count++] = new_norm(network, shape);
        parts[count++] = new_words(network, shape, shared);
        parts[count++] = new_pooling(network, shape);
        parts[count++] = bp_task_kind_of(&shape->task)->new_head(network, shape);
        bp_series_new(&block, &network->nn, parts, count);
    } else {
        block = number == 0 ? new_pooling(network, shape)
                : shape->task.features == 0
                    ? bp_task_kind_of(&shape->task)->new_head(network, shape)
                : number == 1 ? new_features(network, shape)
                              : new_logits(network, shape);
    }
    bp_network_add_block(network, block);
}

double bp_model_term_weight(const bp_model_shape *shape, int term)
{
    return term == BP_TASK_WORDS && bp_task_keeps_words(shape)
               ? shape->task.lm_weight
               : bp_model_objective(shape)->weight[term];
}

/* ---- a network with either head ---- */

static bool is_language_model(const bp_model_shape *shape)
{
    return !bp_task_has_head(&shape->task);
}

const bp_objective *bp_model_objective(const bp_model_shape *shape)
{
    const bp_task_kind *kind = bp_task_kind_of(&shape->task);

    if (!is_language_model(shape))
        return bp_task_keeps_words(shape) ? kind->with_words : kind->objective;
    return shape->objective ? shape->objective : shape->family->objective;
}

int64_t bp_model_outcomes(const bp_model_shape *shape)
{
    return is_language_model(shape) ? shape->vocab_size : shape->task.outcomes;
}

bool bp_model_is_softmax(const bp_model_shape *shape)
{
    return bp_task_is_softmax(&shape->task);
}

bool bp_model_caps_logits(const bp_model_shape *shape)
{
    return (is_language_model(shape) || bp_task_keeps_words(shape)) &&
           (shape->stack.logit_cap > 0 || shape->stack.logit_divisor > 0);
}

static bool is_of_task(const bp_model_shape *shape, int block)
{
    return !is_language_model(shape) && block >= shape->family->blocks->backbone(shape).blocks;
}

double bp_model_block_cost(const bp_model_shape *shape, int block)
{
    return is_of_task(shape, block)
               ? train_flops(shape) / 3 / blocks_of(shape)
               : shape->family->blocks->cost(shape, block) +
                     (block == shape->family->blocks->count(shape) - 1 ? bp_variants_flops(shape)
                                                                       : 0);
}

bp_activations bp_model_block_output(const bp_model_shape *shape, int block)
{
    if (is_of_task(shape, block)) /* it reads the backbone's output */
        block = shape->family->blocks->backbone(shape).blocks - 1;
    return shape->family->blocks->output(shape, block);
}

double bp_model_train_flops(const bp_model_shape *shape)
{
    double all = shape->family->facts(shape).train_flops;

    all += is_language_model(shape)
               ? 3 * bp_variants_flops(shape)
               : train_flops(shape) - shape->family->blocks->backbone(shape).head_flops;
    /* two of a weight's three products: none for its gradient */
    return shape->adapter.kind == BP_ADAPTER_NONE ? all : all * 2 / 3;
}

int bp_model_blocks(const bp_model_shape *shape)
{
    if (!bp_model_shape_is_whole(shape) || !shape->family->blocks)
        return 0;
    return is_language_model(shape)
               ? shape->family->blocks->count(shape)
               : shape->family->blocks->backbone(shape).blocks + blocks_of(shape);
}
