/* A model's shape: from keys, from a checkpoint, and what its family says of it. */
#include "models/family.h"

#include "base/json.h"

#include "models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES  64
#define TEXT_BYTES 512

/* A value as all types have it. */
static double value_of(const bp_model_shape *shape, const bp_model_size *size)
{
    const char *at = (const char *)shape + size->at;

    if (size->type == BP_SIZE_REAL)
        return *(const double *)(const void *)at;
    int64_t number = *(const int64_t *)(const void *)at;
    return size->inverse ? number == 0 : (double)number;
}

static void set_value(bp_model_shape *shape, const bp_model_size *size, double value)
{
    char *at = (char *)shape + size->at;

    if (size->type == BP_SIZE_REAL)
        *(double *)(void *)at = value;
    else
        *(int64_t *)(void *)at = size->inverse ? value == 0 : (int64_t)value;
}

static void settle(bp_model_shape *shape)
{
    if (shape->family->settle)
        shape->family->settle(shape);
    shape->softmaxes = shape->softmaxes > 0 ? shape->softmaxes : 1;
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (size->at == BP_SIZE_AT(positions))
            shape->positions = bp_model_positions(shape);
}

/* In a checkpoint. */
static const char *stored_name(const bp_model_size *size)
{
    return size->stored ? size->stored : size->name;
}

/* Is it written, into a checkpoint and config.ini? */
static bool is_given(const bp_model_shape *shape, const bp_model_size *size)
{
    bool number = size->type == BP_SIZE_COUNT || size->type == BP_SIZE_REAL;
    bp_model_shape plain = *shape;

    if (size->optional && number && value_of(shape, size) == 0)
        return false;
    if (!size->quiet)
        return true;
    set_value(&plain, size, size->inverse);
    settle(&plain);
    return value_of(&plain, size) != value_of(shape, size);
}

/* "1:32,2:64", or bilm-tf's [[1, 32], [2, 64]]: false: it is neither, or too long. */
static bool read_pairs(int64_t pairs[BP_MODEL_PAIRS], const char *text)
{
    const int64_t most = (int64_t)1 << 20;
    int64_t number[2];
    int count = 0;

    memset(pairs, 0, BP_MODEL_PAIRS * sizeof *pairs);
    for (const char *at = text + strspn(text, "[ "); *at != '\0'; count++) {
        for (int k = 0; k < 2; k++) {
            char *end;

            number[k] = strtoll(at, &end, 10);
            if (end == at || number[k] < 1 || number[k] > most)
                return false;
            at = end + strspn(end, k == 0 ? ":, " : "], [");
            if (at == end && *at != '\0')
                return false;
        }
        if (count == BP_MODEL_PAIRS)
            return false;
        pairs[count] = number[0] << 32 | number[1];
    }
    return count > 0;
}

static const int64_t *pairs_of(const bp_model_shape *shape, const bp_model_size *size)
{
    return (const int64_t *)(const void *)((const char *)shape + size->at);
}

static void set_pairs(bp_model_shape *shape, const bp_model_size *size, const int64_t *pairs)
{
    memcpy((char *)shape + size->at, pairs, BP_MODEL_PAIRS * sizeof *pairs);
}

static void write_pairs(char text[TEXT_BYTES], const int64_t pairs[BP_MODEL_PAIRS])
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < BP_MODEL_PAIRS && pairs[k] != 0; k++)
        used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%lld:%lld", k > 0 ? "," : "",
                                 (long long)bp_pair_first(pairs[k]),
                                 (long long)bp_pair_second(pairs[k]));
}

static const char *section_of(const bp_model_family *family)
{
    return family->section ? family->section : "model";
}

static void name_key(char key[KEY_BYTES], const bp_model_family *family, const bp_model_size *size)
{
    (void)snprintf(key, KEY_BYTES, "%s.%s", size->section ? size->section : section_of(family),
                   size->name);
}

/* The number of a choice's word; -1: it is none of them. */
static int number_of(const bp_model_size *size, const char *word)
{
    const char *at = size->words;

    for (int k = 0;; k++) {
        size_t bytes = strcspn(at, "|");

        if (bytes == strlen(word) && strncmp(at, word, bytes) == 0)
            return k;
        if (at[bytes] == '\0')
            return -1;
        at += bytes + 1;
    }
}

/* As a key's value. */
static void set_text(char text[TEXT_BYTES], const bp_model_size *size, double value)
{
    const char *at = size->words;

    if (size->type == BP_SIZE_FLAG) {
        (void)snprintf(text, TEXT_BYTES, "%s", value != 0 ? "yes" : "no");
    } else if (size->type == BP_SIZE_CHOICE) {
        for (int k = 0; k < (int)value; k++)
            at += strcspn(at, "|") + 1;
        (void)snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(at, "|"), at);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%.17g", value);
    }
}

/* The same of a shape's. */
static void write_size(char text[TEXT_BYTES], const bp_model_shape *shape,
                       const bp_model_size *size)
{
    if (size->type == BP_SIZE_PAIRS)
        write_pairs(text, pairs_of(shape, size));
    else
        set_text(text, size, value_of(shape, size));
}

static double value_in(const bp_config *config, const char *key, const bp_model_size *size)
{
    return size->type == BP_SIZE_REAL     ? bp_config_real(config, key)
           : size->type == BP_SIZE_FLAG   ? bp_config_bool(config, key)
           : size->type == BP_SIZE_CHOICE ? number_of(size, bp_config_string(config, key))
                                          : (double)bp_config_int(config, key);
}

/* Than in the checkpoint that a model starts from, `known`; a longer context than its positions is
 * refused later. */
static bool may_differ(const bp_model_shape *known, const bp_model_size *size)
{
    return size->of_training || (size->at == BP_SIZE_AT(context) &&
                                 (known->family->any_context || known->positions > 0));
}

/* As read_size, of a key that is set. */
static void read_pairs_key(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                           const char *key, bool known)
{
    const char *given = bp_config_string(config, key);
    char before[TEXT_BYTES], text[TEXT_BYTES];
    int64_t pairs[BP_MODEL_PAIRS];

    if (!read_pairs(pairs, given)) {
        bp_config_fault(config, "model.bad_pairs",
                        "%s = %.60s is no list of up to %d pairs of numbers from 1 on: at %s; use "
                        "1:32,2:64",
                        key, given, BP_MODEL_PAIRS, key);
        return;
    }
    write_pairs(before, pairs_of(shape, size));
    write_pairs(text, pairs);
    if (known && strcmp(before, text) != 0)
        bp_config_fault(config, "model.init_mismatch",
                        "%s = %s, but the checkpoint of model.init has %s: at %s; leave the "
                        "key out, or change it",
                        key, text, before, key);
    set_pairs(shape, size, pairs);
}

/* `known`: by a checkpoint. */
static void read_size(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                      bool known)
{
    double before = value_of(shape, size), value;
    char key[KEY_BYTES], text[TEXT_BYTES], text_before[TEXT_BYTES];

    name_key(key, shape->family, size);
    if (!bp_config_is_set(config, key)) {
        if (before == 0 && !size->optional)
            bp_config_fault(
                config, "model.missing_key",
                "%s is missing: at the configuration; give it, or a checkpoint in model.init", key);
        return;
    }
    if (size->type == BP_SIZE_PAIRS) {
        read_pairs_key(shape, config, size, key, known);
        return;
    }
    value = value_in(config, key, size);
    set_text(text, size, value);
    set_text(text_before, size, before);
    if (known && value != before && !may_differ(shape, size))
        bp_config_fault(config, "model.init_mismatch",
                        "%s = %s, but the checkpoint of model.init has %s: at %s; leave the "
                        "key out, or change it",
                        key, text, text_before, key);
    set_value(shape, size, value);
}

/* In its own section a family has keys that are no sizes, too. */
static bool has_key(const bp_model_family *family, const char *key)
{
    size_t bytes = strlen(section_of(family));
    bool inside = strncmp(key, section_of(family), bytes) == 0 && key[bytes] == '.';

    if (family->section && inside)
        return true;
    for (const bp_model_size *size = family->sizes; size->name; size++) {
        char own[KEY_BYTES];

        name_key(own, family, size);
        if (strcmp(own, key) == 0)
            return true;
    }
    return false;
}

/* Keys that other families have. */
static void refuse_others(bp_config *config, const bp_model_family *family)
{
    static const char *const ALL[] = {"model.kind",      "model.dropout", "model.init",
                                      "adapter.kind",    "adapter.rank",  "adapter.scale",
                                      "adapter.targets", "adapter.alone", NULL};

    for (const bp_option *row = bp_model_options; row->key; row++) {
        bool of_all = false;

        for (int k = 0; ALL[k]; k++)
            of_all = of_all || strcmp(row->key, ALL[k]) == 0;
        if (!of_all && !has_key(family, row->key) && bp_config_is_set(config, row->key))
            bp_config_fault(config, "model.unused_key",
                            "model.kind = %s has no %s: at %s; leave the key out", family->name,
                            row->key, row->key);
    }
}

/* Of the checkpoint, unless the configuration names another. */
static const bp_model_family *find_family(bp_config *config, const bp_model_shape *known)
{
    const char *kind = bp_model_keys_of(config)->kind;

    if (known && known->family) {
        if (bp_config_is_given(config, "model.kind") && strcmp(kind, known->family->name) != 0)
            bp_config_fault(config, "model.init_mismatch",
                            "model.kind = %s, but the checkpoint of model.init has %s: at "
                            "model.kind; leave the key out, or change it",
                            kind, known->family->name);
        return known->family;
    }
    return bp_model_family_find(kind);
}

void bp_model_require_keys(bp_config *config)
{
    static const char *const BY_GRADIENTS[] = {"train.steps", "train.batch", NULL};
    const bp_model_family *family = find_family(config, NULL);

    for (const char *const *key = family->required ? family->required : BY_GRADIENTS; *key; key++)
        bp_config_require(config, *key);
}

/* Its layers are those of Transformers. */
static bool has_adapters(const bp_model_family *family)
{
    return family->backbone || family->start_token;
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
    if (bp_model_shape_is_whole(&shape))
        settle(&shape);
    shape.adapter = bp_adapter_of(&bp_model_keys_of(config)->adapter, config,
                                  known && known->family ? &known->adapter : NULL, shape.width);
    if (shape.adapter.kind != BP_ADAPTER_NONE && !has_adapters(shape.family))
        bp_config_fault(config, "adapter.no_place",
                        "adapter.kind = %s adapts layers of Transformers, and not of model.kind = "
                        "%s: at adapter.kind; leave the key out",
                        bp_model_keys_of(config)->adapter.kind, shape.family->name);
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
    char key[KEY_BYTES], text[TEXT_BYTES];

    if (bp_config_set(config, "model.kind", shape->family->name) != BP_OK)
        bp_config_fault_err(config);
    for (const bp_model_size *size = shape->family->sizes; size->name; size++) {
        if (!is_given(shape, size))
            continue;
        name_key(key, shape->family, size);
        write_size(text, shape, size);
        if (bp_config_set(config, key, text) != BP_OK)
            bp_config_fault_err(config);
    }
}

/* Heads of keys that tensor ranks have copies of (nn/transformer_keys.c) are not adapted. */
static void check_adapter(const bp_model_shape *shape, int tensors, bp_config *config)
{
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (strcmp(size->name, "kv_heads") == 0 && shape->adapter.kind == BP_ADAPTER_LORA &&
            (int64_t)value_of(shape, size) % tensors != 0)
            bp_config_fault(config, "mesh.not_dividing",
                            "mesh.tensor = %d does not divide model.kv_heads = %.0f, and weights "
                            "are adapted: at mesh.tensor; use a divisor of both",
                            tensors, value_of(shape, size));
    if (shape->adapter.kind != BP_ADAPTER_NONE && shape->softmaxes > 1)
        bp_config_fault(config, "adapter.no_mixture",
                        "head.softmaxes = %lld has parameters that adapter.kind would freeze: at "
                        "head.softmaxes; use 1",
                        (long long)shape->softmaxes);
}

void bp_model_shape_check(const bp_model_shape *shape, int tensors, int stages, bp_config *config)
{
    int blocks = bp_model_blocks(shape);

    if (!bp_model_shape_is_whole(shape))
        return;
    shape->family->check(shape, tensors, config);
    check_adapter(shape, tensors, config);
    if (!bp_model_may_read(shape, shape->context))
        bp_config_fault(config, "model.few_positions",
                        "model.context = %lld is more than model.positions = %lld: at "
                        "model.context; use %lld or less",
                        (long long)shape->context, (long long)shape->positions,
                        (long long)shape->positions);
    if (shape->head_entmax == 1 && shape->softmaxes > 1)
        bp_config_fault(config, "model.two_heads",
                        "head.activation = entmax15 does not go with head.softmaxes = %lld: at "
                        "head.softmaxes; leave one of them out",
                        (long long)shape->softmaxes);
    if (blocks > 0 && stages > blocks)
        bp_config_fault(config, "mesh.too_few_blocks",
                        "mesh.pipeline = %d is more than the model's %d blocks (%s): at "
                        "mesh.pipeline; use 1 to %d",
                        stages, blocks, shape->family->blocks_are, blocks);
}

static json_t *json_of(const bp_model_shape *shape, const bp_model_size *size)
{
    double value = value_of(shape, size);
    char text[TEXT_BYTES];

    write_size(text, shape, size);
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
        if (is_given(shape, size))
            (void)json_object_set_new(model, stored_name(size), json_of(shape, size));
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

/* Sizes of a checkpoint are held to the range of their key. */
static bp_err check_range(const bp_model_shape *shape, const bp_model_size *size, double value,
                          const char *where)
{
    const bp_option *option = bp_model_options;
    char key[KEY_BYTES];

    name_key(key, shape->family, size);
    while (option->key && strcmp(option->key, key) != 0)
        option++;
    if (!option->key || (option->min == 0 && option->max == 0) || (size->optional && value == 0) ||
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
    const json_t *found = json_object_get(model, stored_name(size));

    if (size->optional && json_is_integer(found) && json_integer_value(found) == 0)
        return BP_OK;
    return read_value(value, model, stored_name(size), where);
}

static bp_err read_choice(double *value, const json_t *model, const bp_model_size *size,
                          const char *where)
{
    const char *word = NULL;
    bp_err err = bp_json_get_string(model, stored_name(size), &word, where);

    *value = err == BP_OK ? number_of(size, word) : 0;
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
    bp_err err = bp_json_get_string(model, stored_name(size), &text, where);

    if (err == BP_OK && !read_pairs(pairs, text))
        err = BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                      "the model's %s is '%.40s': at %s; the checkpoint was not written by bagpipe",
                      size->name, text, where);
    if (err == BP_OK)
        set_pairs(shape, size, pairs);
    return err;
}

static bp_err read_json(bp_model_shape *shape, const bp_model_size *size, const json_t *model,
                        const char *where)
{
    int64_t count = 0;
    double value = 0;
    bool flag = false;
    bp_err err = BP_OK;

    if (size->optional && !json_object_get(model, stored_name(size)))
        return BP_OK;
    if (size->type == BP_SIZE_PAIRS)
        return read_json_pairs(shape, size, model, where);
    if (size->type == BP_SIZE_REAL) {
        err = bp_json_get_real(model, stored_name(size), &value, where);
    } else if (size->type == BP_SIZE_CHOICE) {
        err = read_choice(&value, model, size, where);
    } else if (size->type == BP_SIZE_FLAG) {
        err = bp_json_get_bool(model, stored_name(size), &flag, where);
        value = flag;
    } else {
        err = read_count(&count, model, size, where);
        value = (double)count;
    }
    if (err == BP_OK && (size->type == BP_SIZE_REAL || size->type == BP_SIZE_COUNT))
        err = check_range(shape, size, value, where);
    if (err == BP_OK)
        set_value(shape, size, value);
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
        return BP_FAIL(BP_ERR_FORMAT, "model.unknown_kind",
                       "the model is of kind '%s', which this version does not know: at %s; use a "
                       "newer bagpipe",
                       kind, where);
    for (const bp_model_size *size = shape->family->sizes; size->name && err == BP_OK; size++)
        err = read_json(shape, size, model, where);
    if (err == BP_OK)
        err = read_value(&shape->vocab_size, model, "vocab_size", where);
    if (err == BP_OK)
        settle(shape);
    if (err == BP_OK)
        err = bp_task_from_json(&shape->task, model, where);
    if (err == BP_OK)
        err = bp_adapter_from_json(&shape->adapter, model, where);
    if (err == BP_OK && shape->adapter.kind != BP_ADAPTER_NONE && !has_adapters(shape->family))
        err = BP_FAIL(BP_ERR_FORMAT, "adapter.misplaced",
                      "a model of kind %s has no adapter: at %s; the checkpoint was not written by "
                      "bagpipe",
                      kind, where);
    if (err == BP_OK && bp_task_has_head(&shape->task) && !shape->family->backbone)
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

int64_t bp_model_state_width(const bp_model_shape *shape)
{
    return shape->family->state_width ? shape->family->state_width(shape) : shape->width;
}

bool bp_model_may_read(const bp_model_shape *shape, int64_t inputs)
{
    return shape->family->any_context || inputs <= bp_model_positions(shape);
}

int64_t bp_model_most_inputs(const bp_model_shape *shape)
{
    return shape->family->unlimited ? BP_MODEL_UNLIMITED : shape->context;
}
