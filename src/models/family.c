/* A model's shape: from keys, from a checkpoint, and what its family says of it. */
#include "models/family.h"

#include <stdio.h>
#include <string.h>

#define KEY_BYTES 64

/* A value as all types have it. */
static double value_of(const bp_model_shape *shape, const bp_model_size *size)
{
    const char *at = (const char *)shape + size->at;

    return size->type == BP_SIZE_REAL ? *(const double *)(const void *)at
                                      : (double)*(const int64_t *)(const void *)at;
}

static void set_value(bp_model_shape *shape, const bp_model_size *size, double value)
{
    char *at = (char *)shape + size->at;

    if (size->type == BP_SIZE_REAL)
        *(double *)(void *)at = value;
    else
        *(int64_t *)(void *)at = (int64_t)value;
}

static void name_key(char key[KEY_BYTES], const bp_model_size *size)
{
    (void)snprintf(key, KEY_BYTES, "model.%s", size->name);
}

static double value_in(const bp_config *config, const char *key, bp_size_type type)
{
    return type == BP_SIZE_REAL   ? bp_config_real(config, key)
           : type == BP_SIZE_FLAG ? bp_config_bool(config, key)
                                  : (double)bp_config_int(config, key);
}

/* `known`: by a checkpoint. */
static void read_size(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                      bool known)
{
    double before = value_of(shape, size), value;
    char key[KEY_BYTES];

    name_key(key, size);
    if (!bp_config_is_set(config, key)) {
        if (before == 0 && !size->optional)
            bp_config_fault(
                config,
                "%s is missing: at the configuration; give it, or a checkpoint in model.init", key);
        return;
    }
    value = value_in(config, key, size->type);
    if (known && value != before)
        bp_config_fault(config,
                        "%s = %.12g, but the checkpoint of model.init has %.12g: at %s; leave the "
                        "key out, or change it",
                        key, value, before, key);
    set_value(shape, size, value);
}

static bool has_size(const bp_model_family *family, const char *key)
{
    for (const bp_model_size *size = family->sizes; size->name; size++)
        if (strcmp(size->name, key + strlen("model.")) == 0)
            return true;
    return false;
}

/* Keys that other families have. */
static void refuse_others(bp_config *config, const bp_model_family *family)
{
    static const char *const ALL[] = {"model.kind", "model.dropout", "model.init", NULL};

    for (const bp_option *row = bp_model_options; row->key; row++) {
        bool of_all = false;

        for (int k = 0; ALL[k]; k++)
            of_all = of_all || strcmp(row->key, ALL[k]) == 0;
        if (!of_all && !has_size(family, row->key) && bp_config_is_set(config, row->key))
            bp_config_fault(config, "model.kind = %s has no %s: at %s; leave the key out",
                            family->name, row->key, row->key);
    }
}

/* Of the checkpoint, unless the configuration names another. */
static const bp_model_family *find_family(bp_config *config, const bp_model_shape *known)
{
    const char *kind = bp_model_keys_of(config)->kind;

    if (known && known->family) {
        if (bp_config_is_given(config, "model.kind") && strcmp(kind, known->family->name) != 0)
            bp_config_fault(config,
                            "model.kind = %s, but the checkpoint of model.init has %s: at "
                            "model.kind; leave the key out, or change it",
                            kind, known->family->name);
        return known->family;
    }
    return bp_model_family_find(kind);
}

bp_model_shape bp_model_shape_of(bp_config *config, const bp_model_shape *known)
{
    bp_model_shape shape = {0};

    if (known)
        shape = *known;
    shape.family = find_family(config, known);
    refuse_others(config, shape.family);
    for (const bp_model_size *size = shape.family->sizes; size->name; size++)
        read_size(&shape, config, size, known && known->family);
    if (shape.family->settle && bp_model_shape_is_whole(&shape))
        shape.family->settle(&shape);
    return shape;
}

bool bp_model_shape_is_whole(const bp_model_shape *shape)
{
    if (!shape->family)
        return false;
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (value_of(shape, size) == 0 && !size->optional)
            return false;
    return true;
}

void bp_model_shape_resolve(const bp_model_shape *shape, bp_config *config)
{
    char key[KEY_BYTES], text[32];

    if (bp_config_set(config, "model.kind", shape->family->name) != BP_OK)
        bp_config_fault(config, "%s", bp_err_message());
    for (const bp_model_size *size = shape->family->sizes; size->name; size++) {
        name_key(key, size);
        if (size->type == BP_SIZE_FLAG)
            (void)snprintf(text, sizeof text, "%s", value_of(shape, size) != 0 ? "yes" : "no");
        else
            (void)snprintf(text, sizeof text, "%.17g", value_of(shape, size));
        if (bp_config_set(config, key, text) != BP_OK)
            bp_config_fault(config, "%s", bp_err_message());
    }
}

void bp_model_shape_check(const bp_model_shape *shape, int tensors, int stages, bp_config *config)
{
    int blocks = bp_model_blocks(shape);

    if (!bp_model_shape_is_whole(shape))
        return;
    shape->family->check(shape, tensors, config);
    if (stages > blocks)
        bp_config_fault(config,
                        "mesh.pipeline = %d is more than the model's %d blocks (%s): at "
                        "mesh.pipeline; use 1 to %d",
                        stages, blocks, shape->family->blocks_are, blocks);
}

static json_t *json_of(const bp_model_shape *shape, const bp_model_size *size)
{
    double value = value_of(shape, size);

    return size->type == BP_SIZE_REAL   ? json_real(value)
           : size->type == BP_SIZE_FLAG ? json_boolean(value != 0)
                                        : json_integer((json_int_t)value);
}

json_t *bp_model_shape_json(const bp_model_shape *shape)
{
    json_t *model = json_pack("{s:s}", "kind", shape->family->name);

    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        (void)json_object_set_new(model, size->name, json_of(shape, size));
    (void)json_object_set_new(model, "vocab_size", json_integer(shape->vocab_size));
    return model;
}

static bp_err read_value(int64_t *value, const json_t *model, const char *name, const char *where)
{
    bp_err err = bp_json_get_int(model, name, value, where);

    if (err == BP_OK && (*value < 1 || *value > (int64_t)1 << 31))
        return BP_FAIL(BP_ERR_FORMAT,
                       "the model's %s is %lld: at %s; the checkpoint was not written by bagpipe",
                       name, (long long)*value, where);
    return err;
}

/* An optional one may be 0, or missing where an older program wrote the checkpoint. */
static bp_err read_count(int64_t *value, const json_t *model, const bp_model_size *size,
                         const char *where)
{
    const json_t *found = json_object_get(model, size->name);

    if (size->optional && (!found || (json_is_integer(found) && json_integer_value(found) == 0)))
        return BP_OK;
    return read_value(value, model, size->name, where);
}

static bp_err read_json(bp_model_shape *shape, const bp_model_size *size, const json_t *model,
                        const char *where)
{
    int64_t count = 0;
    double real = 0;
    bool flag = false;
    bp_err err = size->type == BP_SIZE_REAL   ? bp_json_get_real(model, size->name, &real, where)
                 : size->type == BP_SIZE_FLAG ? bp_json_get_bool(model, size->name, &flag, where)
                                              : read_count(&count, model, size, where);

    set_value(shape, size,
              size->type == BP_SIZE_REAL   ? real
              : size->type == BP_SIZE_FLAG ? flag
                                           : (double)count);
    return err;
}

bp_err bp_model_shape_read(bp_model_shape *shape, const json_t *state, const char *where)
{
    const json_t *model = json_object_get(state, "model");
    const char *kind = NULL;
    bp_err err = bp_json_get_string(model, "kind", &kind, where);

    *shape = (bp_model_shape){0};
    if (err != BP_OK)
        return err;
    shape->family = bp_model_family_find(kind);
    if (!shape->family)
        return BP_FAIL(BP_ERR_FORMAT,
                       "the model is of kind '%s', which this version does not know: at %s; use a "
                       "newer bagpipe",
                       kind, where);
    for (const bp_model_size *size = shape->family->sizes; size->name && err == BP_OK; size++)
        err = read_json(shape, size, model, where);
    if (err == BP_OK)
        err = read_value(&shape->vocab_size, model, "vocab_size", where);
    return err == BP_OK ? shape->family->check_read(shape, where) : err;
}

int64_t bp_model_parameters(const bp_model_shape *shape)
{
    return shape->family->facts(shape).parameters;
}

double bp_model_train_flops(const bp_model_shape *shape)
{
    return shape->family->facts(shape).train_flops;
}

int bp_model_blocks(const bp_model_shape *shape)
{
    return bp_model_shape_is_whole(shape) ? shape->family->blocks(shape) : 0;
}
