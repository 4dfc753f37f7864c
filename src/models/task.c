/* Heads of tasks, behind the backbone of any family. */
#include "models/task.h"

#include "models/family.h"
#include "nn/layers.h"

#include <string.h>

#define INIT_STD 0.02F

static const char *const NAMES[] = {"none", "classes", "regression", "tags", "spans"},
                         *const POOLS[] = {"none", "first", "mean", "last"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0], POOL_COUNT = sizeof POOLS / sizeof POOLS[0] };

/* Examples are documents, padded. */
static bp_example_maker task_maker(const bp_model_shape *shape, int64_t T,
                                   const bp_example_rules *rules)
{
    bool spans = shape->task.kind == BP_TASK_SPANS;
    bool has_segments = shape->family->backbone(shape).segments > 1;

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = true, .has_segments = has_segments}},
                 .targets = {shape->task.kind == BP_TASK_TAGS ? T : 1, spans ? 1 : 0}},
        .window = T + 1,
        .rules = rules};
}

static const bp_objective OBJECTIVES[] = {
    [BP_TASK_CLASSES] = {.name = "classes", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_REGRESSION] = {.name = "regression", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_TAGS] = {.name = "tags", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_SPANS] = {.name = "spans", .terms = 2, .weight = {0.5, 0.5}, .maker = task_maker}};

const char *bp_task_name(int64_t kind)
{
    return NAMES[kind];
}

int64_t bp_task_kind_of(const char *name)
{
    for (int k = 1; k < NAME_COUNT; k++)
        if (strcmp(NAMES[k], name) == 0)
            return k;
    return -1;
}

const bp_objective *bp_task_objective(int64_t kind)
{
    return &OBJECTIVES[kind];
}

/* ---- the head: what it reads, and outcomes ---- */

static bp_backbone backbone_of(const bp_model_shape *shape)
{
    return shape->family->backbone(shape);
}

static bool has_pooler(const bp_model_shape *shape)
{
    return shape->task.pool == BP_POOL_FIRST && backbone_of(shape).pooler;
}

int bp_task_blocks(const bp_model_shape *shape)
{
    (void)shape;
    return 2;
}

int64_t bp_task_parameters(const bp_model_shape *shape)
{
    int64_t C = shape->width;

    return (has_pooler(shape) ? C * C + C : 0) + shape->task.outcomes * (C + 1);
}

double bp_task_flops(const bp_model_shape *shape)
{
    double matrices = (double)(shape->task.outcomes * shape->width), C = (double)shape->width;
    bool a_place = shape->task.pool == BP_POOL_NONE;

    if (has_pooler(shape))
        matrices += C * C;
    return 6 * matrices / (a_place ? 1 : (double)shape->context);
}

static bp_block *new_pooling(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);
    bp_pooling_shape pooling = {.C = shape->width,
                                .norm = backbone.norm,
                                .rms = backbone.rms,
                                .epsilon = backbone.epsilon,
                                .pool = (bp_pool)shape->task.pool,
                                .pooler = has_pooler(shape),
                                .mask = (int64_t)1 << 40};
    bp_block *block;

    bp_pooling_new(&block, &network->nn, &pooling, bp_network_add_group(network, true));
    return block;
}

static bp_block *new_outcomes(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    bp_head_shape head = {.sparse = true};
    int64_t V = shape->task.outcomes, first, count;
    bp_param *table;
    bp_block *block;

    bp_vocab_share(&network->nn, V, &first, &count);
    table =
        bp_group_add_matrix_part(split, "task.weight", V, shape->width, INIT_STD, 0, first, count);
    head.bias = bp_group_add_vector_part(split, "task.bias", V, first, count);
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static bp_block *new_text_head(bp_network *network, const bp_model_shape *shape)
{
    bp_text_head_shape head = {.C = shape->width, .finds_spans = shape->task.kind == BP_TASK_SPANS};
    bp_block *block;

    bp_text_head_new(&block, &network->nn, &head, bp_network_add_group(network, true));
    return block;
}

void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number)
{
    bool outcomes = shape->task.kind == BP_TASK_CLASSES || shape->task.kind == BP_TASK_TAGS;

    bp_network_add_block(network, number == 0 ? new_pooling(network, shape)
                                  : outcomes  ? new_outcomes(network, shape)
                                              : new_text_head(network, shape));
}

/* ---- in checkpoints ---- */

void bp_task_to_json(json_t *model, const bp_task_shape *task)
{
    if (task->kind == BP_TASK_NONE)
        return;
    (void)json_object_set_new(model, "task", json_string(NAMES[task->kind]));
    (void)json_object_set_new(model, "outcomes", json_integer((json_int_t)task->outcomes));
    (void)json_object_set_new(model, "pool", json_string(POOLS[task->pool]));
}

static bp_err read_word(int64_t *out, const json_t *model, const char *name,
                        const char *const *words, int count, const char *where)
{
    const char *word = NULL;
    bp_err err = bp_json_get_string(model, name, &word, where);

    if (err != BP_OK)
        return err;
    for (*out = 0; *out < count; ++*out)
        if (strcmp(words[*out], word) == 0)
            return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.unknown_choice",
                   "the model's %s is '%.40s', which this version does not know: at %s; use a "
                   "newer bagpipe",
                   name, word, where);
}

bp_err bp_task_from_json(bp_task_shape *task, const json_t *model, const char *where)
{
    bp_err err;

    *task = (bp_task_shape){0};
    if (!json_object_get(model, "task"))
        return BP_OK;
    err = read_word(&task->kind, model, "task", NAMES, NAME_COUNT, where);
    if (err != BP_OK || task->kind == BP_TASK_NONE)
        return err;
    err = bp_json_get_int(model, "outcomes", &task->outcomes, where);
    if (err == BP_OK)
        err = read_word(&task->pool, model, "pool", POOLS, POOL_COUNT, where);
    if (task->kind == BP_TASK_CLASSES && task->outcomes == 1) /* as Hugging Face tells a value */
        task->kind = BP_TASK_REGRESSION;
    if (err == BP_OK && (task->outcomes < 1 || task->outcomes > INT32_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's outcomes is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->outcomes, where);
    return err;
}
