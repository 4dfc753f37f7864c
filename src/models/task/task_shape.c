/* Tasks in checkpoints. */
#include "models/task/task_shape.h"

#include "base/config/json.h"

#include <stddef.h>
#include <string.h>

static const char *const POOLS[] = {"none", "first", "mean", "last"};
enum { POOL_COUNT = sizeof POOLS / sizeof POOLS[0] };

/* If a checkpoint has the flag. */
static const struct {
    const char *name;
    size_t at;
} FLAGS[] = {{"dense", offsetof(bp_task_shape, dense)},
             {"begins", offsetof(bp_task_shape, begins)},
             {"unframed", offsetof(bp_task_shape, unframed)},
             {"unbiased", offsetof(bp_task_shape, unbiased)},
             {"one_segment", offsetof(bp_task_shape, one_segment)}};

static bool *flag_of(bp_task_shape *task, size_t k)
{
    return (bool *)((char *)task + FLAGS[k].at);
}

void bp_task_to_json(json_t *model, const bp_task_shape *task)
{
    if (!bp_task_has_head(task))
        return;
    (void)json_object_set_new(model, "task", bp_json_string(bp_task_kind_of(task)->name));
    (void)json_object_set_new(model, "outcomes", json_integer((json_int_t)task->outcomes));
    (void)json_object_set_new(model, "pool", bp_json_string(POOLS[task->pool]));
    for (size_t k = 0; k < sizeof FLAGS / sizeof *FLAGS; k++)
        if (*flag_of((bp_task_shape *)task, k))
            (void)json_object_set_new(model, FLAGS[k].name, json_true());
    if (task->separators > !task->unframed)
        (void)json_object_set_new(model, "separators", json_integer((json_int_t)task->separators));
    if (task->padding != 0)
        (void)json_object_set_new(model, "padding",
                                  task->padding < 0 ? json_null()
                                                    : json_integer((json_int_t)task->padding - 1));
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

static bp_err fail_choice(const char *name, const char *word, const char *where)
{
    return BP_FAIL(BP_ERR_FORMAT, "model.unknown_choice",
                   "the model's %s is '%.40s', which this version does not know: at %s; use a "
                   "newer bagpipe",
                   name, word, where);
}

/* A language model may have the flag. */
static bp_err read_kind(bp_task_shape *task, const json_t *model, const char *where)
{
    const bp_task_kind *kind;
    const char *word = NULL;
    bp_err err = bp_json_get_string(model, "task", &word, where);

    if (err != BP_OK)
        return err;
    kind = bp_task_kind_named(word);
    task->kind = kind ? bp_task_kind_number(kind) : 0;
    return kind && (task->kind == 0 || kind->new_head) ? BP_OK : fail_choice("task", word, where);
}

int64_t bp_task_pool_named(const char *name)
{
    int64_t pool = 0;

    while (pool < POOL_COUNT && strcmp(POOLS[pool], name) != 0)
        pool++;
    return pool < POOL_COUNT ? pool : 0;
}

static bp_err read_pool(bp_task_shape *task, const json_t *model, const char *where)
{
    const char *word = NULL;
    bp_err err = bp_json_get_string(model, "pool", &word, where);

    if (err != BP_OK)
        return err;
    for (task->pool = 0; task->pool < POOL_COUNT; task->pool++)
        if (strcmp(POOLS[task->pool], word) == 0)
            return BP_OK;
    return fail_choice("pool", word, where);
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

static bp_err read_padding(bp_task_shape *task, const json_t *model, const char *where)
{
    bp_err err = BP_OK;

    task->padding = -1;
    if (json_is_null(json_object_get(model, "padding")))
        return BP_OK;
    err = bp_json_get_int(model, "padding", &task->padding, where);
    if (err == BP_OK && (task->padding < 0 || task->padding >= INT32_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's padding is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->padding, where);
    task->padding++;
    return err;
}

static bp_err read_separators(bp_task_shape *task, const json_t *model, const char *where)
{
    bp_err err = bp_json_get_int(model, "separators", &task->separators, where);

    if (err == BP_OK && (task->separators < 1 || task->separators > BP_TASK_SEPARATORS_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's separators is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->separators, where);
    return err;
}

bp_err bp_task_from_json(bp_task_shape *task, const json_t *model, const char *where)
{
    bp_err err;

    *task = (bp_task_shape){0};
    if (!json_object_get(model, "task"))
        return BP_OK;
    err = read_kind(task, model, where);
    if (err != BP_OK || !bp_task_has_head(task))
        return err;
    err = bp_json_get_int(model, "outcomes", &task->outcomes, where);
    if (err == BP_OK)
        err = read_pool(task, model, where);
    for (size_t k = 0; k < sizeof FLAGS / sizeof *FLAGS; k++)
        *flag_of(task, k) = json_is_true(json_object_get(model, FLAGS[k].name));
    if (err == BP_OK && json_object_get(model, "separators"))
        err = read_separators(task, model, where);
    if (err == BP_OK && json_object_get(model, "padding"))
        err = read_padding(task, model, where);
    if (err == BP_OK && json_object_get(model, "dirichlet"))
        err = read_dirichlet(task, json_object_get(model, "dirichlet"), where);
    if (err == BP_OK && json_object_get(model, "sngp"))
        err = read_sngp(task, json_object_get(model, "sngp"), where);
    if (task->outcomes == 1 && bp_task_kind_of(task)->of_one)
        task->kind = bp_task_kind_number(bp_task_kind_of(task)->of_one);
    if (err == BP_OK && (task->outcomes < 1 || task->outcomes > INT32_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's outcomes is %lld: at %s; the checkpoint was not written by "
                      "bagpipe",
                      (long long)task->outcomes, where);
    return err;
}
