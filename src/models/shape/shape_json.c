/* A model's shape in a checkpoint. */
#include "models/shape/shape_json.h"

#include "base/config/json.h"
#include "models/shape/sizes.h"

static json_t *reals_json(const double reals[BP_MODEL_REALS])
{
    json_t *list = json_array();

    for (int k = 0; k < BP_MODEL_REALS && reals[k] > 0; k++)
        (void)json_array_append_new(list, json_real(reals[k]));
    return list;
}

static json_t *json_of(const bp_model_shape *shape, const bp_model_size *size)
{
    double value = size_value(shape, size);
    char text[TEXT_BYTES];

    if (size->type == BP_SIZE_REALS)
        return reals_json(size_reals(shape, size));
    size_write(text, shape, size);
    return size->type == BP_SIZE_REAL     ? json_real(value)
           : size->type == BP_SIZE_FLAG   ? json_boolean(value != 0)
           : size->type == BP_SIZE_CHOICE ? bp_json_string(text)
           : size->type == BP_SIZE_PAIRS  ? bp_json_string(text)
                                          : json_integer((json_int_t)value);
}

json_t *bp_model_shape_json(const bp_model_shape *shape)
{
    json_t *model = json_pack("{s:s}", "kind", shape->family->name);

    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (size_is_given(shape, size))
            (void)json_object_set_new(model, size_stored_name(size), json_of(shape, size));
    (void)json_object_set_new(model, "vocab_size", json_integer(shape->vocab_size));
    bp_task_to_json(model, &shape->task);
    bp_adapter_to_json(model, &shape->adapter);
    return model;
}

static bp_err read_value(int64_t *value, const json_t *model, const char *name, const char *where)
{
    bp_err err = bp_json_get_int(model, name, value, where);

    if (err == BP_OK && (*value < 1 || *value > (int64_t)1 << 31))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's %s is %lld: at %s; the checkpoint was not written by bagpipe",
                       name, (long long)*value, where);
    return err;
}

/* Sizes of a checkpoint are checked against the range of their key. */
static bp_err check_range(const bp_model_shape *shape, const bp_model_size *size, double value,
                          const char *where)
{
    const bp_option *option;
    char key[KEY_BYTES];

    size_key(key, shape->family, size);
    option = key_row(bp_model_options, key);
    if (!option || (option->min == 0 && option->max == 0) || (size->optional && value == 0) ||
        (value >= option->min * (1 - 1e-9) && value <= option->max * (1 + 1e-9)))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                   "the model's %s is %.15g, and %s is from %.15g to %.15g: at %s; give another "
                   "model, bagpipe makes none like this",
                   size->name, value, key, option->min, option->max, where);
}

/* An optional one may be 0. */
static bp_err read_count(int64_t *value, const json_t *model, const bp_model_size *size,
                         const char *where)
{
    const json_t *found = json_object_get(model, size_stored_name(size));

    if (size->optional && json_is_integer(found) && json_integer_value(found) == 0)
        return BP_OK;
    return read_value(value, model, size_stored_name(size), where);
}

static bp_err read_choice(double *value, const json_t *model, const bp_model_size *size,
                          const char *where)
{
    const char *word = NULL;
    bp_err err = bp_json_get_string(model, size_stored_name(size), &word, where);

    *value = err == BP_OK ? size_number(size, word) : 0;
    if (err == BP_OK && *value < 0)
        err = BP_FAIL(BP_ERR_FORMAT, "model.unknown_choice",
                      "the model's %s is '%.40s', which this version does not know: at %s; use a "
                      "newer bagpipe",
                      size->name, word, where);
    return err;
}

static bp_err read_json_pairs(bp_model_shape *shape, const bp_model_size *size, const json_t *model,
                              const char *where)
{
    int64_t pairs[BP_MODEL_PAIRS];
    const char *text = NULL;
    bp_err err = bp_json_get_string(model, size_stored_name(size), &text, where);

    if (err == BP_OK && !size_read_pairs(pairs, size, text))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's %s is '%.40s': at %s; the checkpoint was not written by bagpipe",
                      size->name, text, where);
    if (err == BP_OK)
        size_set_pairs(shape, size, pairs);
    return err;
}

static bp_err read_json_reals(bp_model_shape *shape, const bp_model_size *size, const json_t *model,
                              const char *where)
{
    const json_t *list = json_object_get(model, size_stored_name(size));
    double *reals = size_reals(shape, size);
    size_t count = json_array_size(list);
    bool taken = count > 0 && count <= BP_MODEL_REALS;

    for (size_t k = 0; k < count && taken; k++) {
        reals[k] = json_number_value(json_array_get(list, k));
        taken = reals[k] > 0 && reals[k] < 1e15;
    }
    return taken ? BP_OK
                 : BP_FAIL(
                       BP_ERR_FORMAT, "model.bad_size",
                       "the model's %s is not a list of numbers above 0: at %s; the checkpoint was "
                       "not written by bagpipe",
                       size->name, where);
}

static bp_err read_json(bp_model_shape *shape, const bp_model_size *size, const json_t *model,
                        const char *where)
{
    int64_t count = 0;
    double value = 0;
    bool flag = false;
    bp_err err = BP_OK;

    if (size->optional && !json_object_get(model, size_stored_name(size)))
        return BP_OK;
    if (size->type == BP_SIZE_PAIRS)
        return read_json_pairs(shape, size, model, where);
    if (size->type == BP_SIZE_REALS)
        return read_json_reals(shape, size, model, where);
    if (size->type == BP_SIZE_REAL) {
        err = bp_json_get_real(model, size_stored_name(size), &value, where);
    } else if (size->type == BP_SIZE_CHOICE) {
        err = read_choice(&value, model, size, where);
    } else if (size->type == BP_SIZE_FLAG) {
        err = bp_json_get_bool(model, size_stored_name(size), &flag, where);
        value = flag;
    } else {
        err = read_count(&count, model, size, where);
        value = (double)count;
    }
    if (err == BP_OK && (size->type == BP_SIZE_REAL || size->type == BP_SIZE_COUNT))
        err = check_range(shape, size, value, where);
    if (err == BP_OK)
        size_set(shape, size, value);
    return err;
}

bp_err bp_model_shape_read_as(bp_model_shape *shape, const bp_model_family *family,
                              const json_t *state, const char *where)
{
    const json_t *model = json_object_get(state, "model");
    const char *kind = family->name;
    bp_err err = BP_OK;

    *shape = (bp_model_shape){.family = family};
    for (const bp_model_size *size = shape->family->sizes; size->name && err == BP_OK; size++)
        err = read_json(shape, size, model, where);
    if (err == BP_OK)
        err = read_value(&shape->vocab_size, model, "vocab_size", where);
    if (err == BP_OK)
        shape_fill_defaults(shape);
    if (err == BP_OK)
        err = bp_task_from_json(&shape->task, model, where);
    if (err == BP_OK)
        err = bp_adapter_from_json(&shape->adapter, model, where);
    if (err == BP_OK && shape->adapter.kind != BP_ADAPTER_NONE &&
        !shape_has_adapters(shape->family))
        err = BP_FAIL(BP_ERR_FORMAT, "adapter.misplaced",
                      "a model of kind %s has no adapter: at %s; the checkpoint was not written by "
                      "bagpipe",
                      kind, where);
    if (err == BP_OK && bp_task_has_head(&shape->task) && !bp_family_has_backbone(shape->family))
        err = BP_FAIL(BP_ERR_FORMAT, "task.unexpected",
                      "a model of kind %s has no head of a task: at %s; the checkpoint was not "
                      "written by bagpipe",
                      kind, where);
    if (err == BP_OK && !bp_model_may_read(shape, shape->context))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's positions are %lld, and its context is %lld: at %s; the "
                      "checkpoint was not written by bagpipe",
                      (long long)shape->positions, (long long)shape->context, where);
    return err == BP_OK ? shape->family->check_read(shape, where) : err;
}
