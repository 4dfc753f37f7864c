/* Vectors of texts: the pooled state itself, or a linear map of it, with no head after it. Not for
 * training. */
#include "models/task/vectors.h"

#include "models/task/examples.h"
#include "models/task/list.h"

#include <string.h>

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    return bp_task_maker(shape, T, rules);
}

static const bp_objective OBJECTIVE = {
    .name = "vectors", .terms = 1, .weight = {1}, .maker = maker};

static const char *const KEYS[] = {NULL};

const bp_task_kind bp_task_vectors = {.name = "vectors",
                                      .keys = KEYS,
                                      .whole_text = true,
                                      .ends = 1,
                                      .texts = "documents",
                                      .labelled = "documents",
                                      .prediction = "document",
                                      .label = "label",
                                      .objective = &OBJECTIVE};

static const char *const ACTIVATIONS[] = {"none", "tanh", "gelu", "relu"};
enum { ACTIVATION_COUNT = sizeof ACTIVATIONS / sizeof *ACTIVATIONS };

const char *bp_task_vector_activation(int64_t number)
{
    return number >= 1 && number <= ACTIVATION_COUNT ? ACTIVATIONS[number - 1] : NULL;
}

void bp_task_set_vector(bp_pooling_shape *out, const bp_model_shape *shape)
{
    const char *word = bp_task_vector_activation(shape->task.vector);

    if (!word)
        return;
    out->vector = shape->task.outcomes;
    out->unbiased = shape->task.unbiased;
    out->linear = strcmp(word, "none") == 0;
    out->gelu = strcmp(word, "gelu") == 0;
    out->relu = strcmp(word, "relu") == 0;
}

static bp_err read_map(bp_task_shape *task, const json_t *map, const char *where)
{
    const char *word = NULL;
    bool biased = false;
    bp_err err = bp_json_get_string(map, "activation", &word, where);

    if (err == BP_OK)
        err = bp_json_get_int(map, "columns", &task->outcomes, where);
    if (err == BP_OK)
        err = bp_json_get_bool(map, "bias", &biased, where);
    if (err != BP_OK)
        return err;
    task->unbiased = !biased;
    for (task->vector = 1; task->vector <= ACTIVATION_COUNT; task->vector++)
        if (strcmp(ACTIVATIONS[task->vector - 1], word) == 0)
            break;
    if (task->vector > ACTIVATION_COUNT || task->outcomes < 1 || task->outcomes > INT32_MAX)
        err = BP_FAIL(BP_ERR_FORMAT, "model.unknown_choice",
                      "the map of the model's vectors has %lld columns and the activation '%.40s', "
                      "which this version does not know: at %s; use a newer bagpipe",
                      (long long)task->outcomes, word, where);
    return err;
}

bp_err bp_task_give_vectors(bp_model_shape *shape, const json_t *state, int64_t pool,
                            const char *where)
{
    const json_t *map = json_object_get(json_object_get(state, "vectors"), "map");

    if (!bp_family_has_backbone(shape->family) || shape->family->source)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_vectors",
                       "a model of kind %s has no state of a whole text: at %s; take an encoder or "
                       "a decoder of Transformer layers",
                       shape->family->name, where);
    shape->task = (bp_task_shape){.kind = BP_TASK_VECTORS, .outcomes = shape->width, .pool = pool};
    return map ? read_map(&shape->task, map, where) : BP_OK;
}
