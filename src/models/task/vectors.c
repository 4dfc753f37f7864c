/* Vectors of texts: the pooled state itself, with no head after it. Not for training. */
#include "models/family.h"
#include "models/task/list.h"
#include "models/task/task.h"
#include "nn/core/layers.h"

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

bp_err bp_task_give_vectors(bp_model_shape *shape, int64_t pool, const char *where)
{
    if (!bp_family_has_backbone(shape->family) || shape->family->source)
        return BP_FAIL(BP_ERR_CONFIG, "model.no_vectors",
                       "a model of kind %s has no state of a whole text: at %s; take an encoder or "
                       "a decoder of Transformer layers",
                       shape->family->name, where);
    shape->task = (bp_task_shape){.kind = BP_TASK_VECTORS, .outcomes = shape->width, .pool = pool};
    return BP_OK;
}
