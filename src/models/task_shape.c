/* Tasks in checkpoints. */
#include "models/task_shape.h"

#include "base/json.h"

#include <string.h>

static const char *const NAMES[] = {"none", "classes", "regression", "tags", "spans"},
                         *const POOLS[] = {"none", "first", "mean", "last"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0], POOL_COUNT = sizeof POOLS / sizeof POOLS[0] };

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

void bp_task_to_json(json_t *model, const bp_task_shape *task)
{
    if (task->kind == BP_TASK_NONE)
        return;
    (void)json_object_set_new(model, "task", bp_json_string(NAMES[task->kind]));
    (void)json_object_set_new(model, "outcomes", json_integer((json_int_t)task->outcomes));
    (void)json_object_set_new(model, "pool", bp_json_string(POOLS[task->pool]));
    if (task->dense)
        (void)json_object_set_new(model, "dense", json_true());
    if (task->precision > 0)
        (void)json_object_set_new(
            model, "dirichlet",
            json_pack("{s:f, s:f}", "precision", task->precision, "smoothing", task->smoothing));
    if (task->features > 0)
        (void)json_object_set_new(model, "sngp",
                                  json_pack("{s:I, s:f, s:f, s:b}", "features",
                                            (json_int_t)task->features, "length_scale",
                                            task->length_scale, "prior", task->prior, "fitted",
                                            (int)task->fitted));
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

static bp_err read_dirichlet(bp_task_shape *task, const json_t *values, const char *where)
{
    bp_err err = bp_json_get_real(values, "precision", &task->precision, where);

    if (err == BP_OK)
        err = bp_json_get_real(values, "smoothing", &task->smoothing, where);
    if (err == BP_OK && !(task->precision > 0 && task->smoothing >= 0))
        err =
            BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                    "the model's dirichlet.precision is %g: at %s; the checkpoint was not written "
                    "by bagpipe",
                    task->precision, where);
    return err;
}

static bp_err read_sngp(bp_task_shape *task, const json_t *values, const char *where)
{
    bp_err err = bp_json_get_int(values, "features", &task->features, where);

    if (err == BP_OK)
        err = bp_json_get_real(values, "length_scale", &task->length_scale, where);
    if (err == BP_OK)
        err = bp_json_get_real(values, "prior", &task->prior, where);
    task->fitted = json_is_true(json_object_get(values, "fitted"));
    if (err == BP_OK && !(task->features > 0 && task->features <= BP_TASK_FEATURES_MAX &&
                          task->length_scale > 0 && task->prior > 0))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's sngp.features is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->features, where);
    return err;
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
    task->dense = json_is_true(json_object_get(model, "dense"));
    if (err == BP_OK && json_object_get(model, "dirichlet"))
        err = read_dirichlet(task, json_object_get(model, "dirichlet"), where);
    if (err == BP_OK && json_object_get(model, "sngp"))
        err = read_sngp(task, json_object_get(model, "sngp"), where);
    if (task->kind == BP_TASK_CLASSES && task->outcomes == 1) /* as Hugging Face marks a value */
        task->kind = BP_TASK_REGRESSION;
    if (err == BP_OK && (task->outcomes < 1 || task->outcomes > INT32_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's outcomes is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->outcomes, where);
    return err;
}
