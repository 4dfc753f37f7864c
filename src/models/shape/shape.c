/* A model's shape from keys, and dispatch to its family's functions. */
#include "models/family.h"

#include "base/config/json.h"
#include "models/shape/shape_json.h"
#include "models/shape/sizes.h"
#include "models/task/task.h"

#include <string.h>

static double value_in(const bp_config *config, const char *key, const bp_model_size *size)
{
    return size->type == BP_SIZE_REAL     ? bp_config_real(config, key)
           : size->type == BP_SIZE_FLAG   ? bp_config_bool(config, key)
           : size->type == BP_SIZE_CHOICE ? size_number(size, bp_config_string(config, key))
                                          : (double)bp_config_int(config, key);
}

/* May the value differ from that of `known`, the checkpoint that a model starts from? A context
 * beyond its positions is rejected later. */
static bool may_differ(const bp_model_shape *known, const bp_model_size *size)
{
    return size->of_training || (size->at == BP_SIZE_AT(context) &&
                                 (known->family->any_context || known->positions > 0));
}

/* `known`: a checkpoint's, with the text `before`. */
static void check_list(bp_config *config, const char *key, const char *text, const char *before,
                       bool known)
{
    if (known && strcmp(before, text) != 0)
        bp_config_fault(config, "model.init_mismatch",
                        "%s = %s, but the checkpoint of model.init has %s: at %s; leave the "
                        "key out, or change it",
                        key, text, before[0] != '\0' ? before : "none", key);
}

/* As read_size, of a key that is set. */
static void read_reals_key(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                           const char *key, bool known)
{
    const char *given = bp_config_string(config, key);
    char before[TEXT_BYTES], text[TEXT_BYTES];
    double reals[BP_MODEL_REALS];

    if (!size_read_reals(reals, given)) {
        bp_config_fault(
            config, "model.bad_reals",
            "%s = %.60s is not a list of up to %d numbers above 0: at %s; use 1,1.05,1.2", key,
            given, BP_MODEL_REALS, key);
        return;
    }
    size_write_reals(before, size_reals(shape, size));
    size_write_reals(text, reals);
    check_list(config, key, text, before, known);
    memcpy(size_reals(shape, size), reals, sizeof reals);
}

static void read_pairs_key(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                           const char *key, bool known)
{
    const char *given = bp_config_string(config, key);
    char before[TEXT_BYTES], text[TEXT_BYTES];
    int64_t pairs[BP_MODEL_PAIRS];

    if (!size_read_pairs(pairs, size, given) && size->words) {
        bp_config_fault(
            config, "model.bad_words",
            "%s = %.200s is not a list of up to %d pairs of a word (%s) and a number from "
            "0 on: at %s; use tanh:0,relu:1",
            key, given, BP_MODEL_PAIRS, size->words, key);
        return;
    }
    if (!size_read_pairs(pairs, size, given)) {
        bp_config_fault(
            config, "model.bad_pairs",
            "%s = %.60s is not a list of up to %d pairs of numbers from 1 on: at %s; use "
            "1:32,2:64",
            key, given, BP_MODEL_PAIRS, key);
        return;
    }
    size_write_pairs(before, size, size_pairs(shape, size));
    size_write_pairs(text, size, pairs);
    check_list(config, key, text, before, known);
    size_set_pairs(shape, size, pairs);
}

/* `known`: by a checkpoint. */
static void read_size(bp_model_shape *shape, bp_config *config, const bp_model_size *size,
                      bool known)
{
    double before = size_value(shape, size), value;
    char key[KEY_BYTES], text[TEXT_BYTES], text_before[TEXT_BYTES];

    size_key(key, shape->family, size);
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
    if (size->type == BP_SIZE_REALS) {
        read_reals_key(shape, config, size, key, known);
        return;
    }
    value = value_in(config, key, size);
    size_set_text(text, size, value);
    size_set_text(text_before, size, before);
    if (known && value != before && !may_differ(shape, size))
        bp_config_fault(config, "model.init_mismatch",
                        "%s = %s, but the checkpoint of model.init has %s: at %s; leave the "
                        "key out, or change it",
                        key, text, text_before, key);
    size_set(shape, size, value);
}

/* Keys of other families. */
static void refuse_others(bp_config *config, const bp_model_family *family)
{
    for (const bp_option *row = bp_model_options; row->key; row++)
        if (!family_has_key(family, row->key) && bp_config_is_set(config, row->key))
            bp_config_fault(config, "model.unused_key",
                            "model.kind = %s has no %s: at %s; leave the key out", family->name,
                            row->key, row->key);
}

/* The checkpoint's, unless the configuration names another. */
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
        shape_fill_defaults(&shape);
    shape.adapter = bp_adapter_of(&bp_model_keys_of(config)->adapter, config,
                                  known && known->family ? &known->adapter : NULL, shape.width);
    if (shape.adapter.kind != BP_ADAPTER_NONE && !shape_has_adapters(shape.family))
        bp_config_fault(config, "adapter.no_place",
                        "adapter.kind = %s adapts layers of Transformers, and not of model.kind = "
                        "%s: at adapter.kind; leave the key out",
                        bp_model_keys_of(config)->adapter.kind, shape.family->name);
    return shape;
}

void bp_model_shape_resolve(const bp_model_shape *shape, bp_config *config)
{
    char key[KEY_BYTES], text[TEXT_BYTES];

    if (bp_config_set(config, "model.kind", shape->family->name) != BP_OK)
        bp_config_fault_err(config);
    for (const bp_model_size *size = shape->family->sizes; size->name; size++) {
        if (!size_is_given(shape, size))
            continue;
        size_key(key, shape->family, size);
        size_write(text, shape, size);
        if (bp_config_set(config, key, text) != BP_OK)
            bp_config_fault_err(config);
    }
}

/* Heads of keys that tensor ranks have copies of (nn/transformer/transformer_keys.c) are not
 * adapted. */
static void check_adapter(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    for (const bp_model_size *size = shape->family->sizes; size->name; size++)
        if (strcmp(size->name, "kv_heads") == 0 && shape->adapter.kind == BP_ADAPTER_LORA &&
            (int64_t)size_value(shape, size) % tensor_ranks != 0)
            bp_config_fault(config, "mesh.not_dividing",
                            "mesh.tensor = %d does not divide model.kv_heads = %.0f, and weights "
                            "are adapted: at mesh.tensor; use a divisor of both",
                            tensor_ranks, size_value(shape, size));
    if (shape->adapter.kind != BP_ADAPTER_NONE && shape->softmaxes > 1)
        bp_config_fault(config, "adapter.no_mixture",
                        "head.softmaxes = %lld has parameters that adapter.kind would freeze: at "
                        "head.softmaxes; use 1",
                        (long long)shape->softmaxes);
}

/* Does a list of these targets adapt anything? */
static bool adapts(const bp_model_shape *shape, int64_t targets)
{
    bp_model_shape other = *shape, none = *shape;

    other.adapter.targets = targets;
    none.adapter.targets = 0;
    return bp_model_trained_parameters(&other) > bp_model_trained_parameters(&none);
}

bp_err bp_model_check_targets(const bp_model_shape *shape)
{
    int64_t wanted = shape->adapter.targets, there = 0;
    char idle[BP_ADAPTER_TEXT], names[BP_ADAPTER_TEXT];

    if (shape->adapter.kind != BP_ADAPTER_LORA)
        return BP_OK;
    for (int k = 0; k < BP_ADAPTER_TARGETS; k++)
        there |= adapts(shape, (int64_t)1 << k) ? (int64_t)1 << k : 0;
    if ((wanted & ~there) == 0)
        return BP_OK;
    bp_adapter_write_targets(idle, wanted & ~there);
    bp_adapter_write_targets(names, there);
    return BP_FAIL(BP_ERR_CONFIG, "adapter.no_weights",
                   "adapter.targets names %s, and this model of kind %s has no such weight outside "
                   "of experts and state-space layers: at adapter.targets; take some of %s",
                   idle, shape->family->name, names);
}

void bp_model_shape_check(const bp_model_shape *shape, int tensor_ranks, int stages,
                          bp_config *config)
{
    int blocks = bp_model_blocks(shape);

    if (!bp_model_shape_is_whole(shape))
        return;
    shape->family->check(shape, tensor_ranks, config);
    check_adapter(shape, tensor_ranks, config);
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
    if (stages > 1 && shape->family->blocks && shape->family->blocks->one_stage &&
        !bp_task_has_head(&shape->task) && !bp_task_is_asked(config))
        bp_config_fault(config, "model.one_stage",
                        "mesh.pipeline = %d, but blocks of %s share their embeddings, which lie on "
                        "one stage: at mesh.pipeline; leave it at 1, use mesh.tensor",
                        stages, shape->family->name);
    if (blocks > 0 && stages > blocks)
        bp_config_fault(config, "mesh.too_few_blocks",
                        "mesh.pipeline = %d is more than the model's %d blocks (%s): at "
                        "mesh.pipeline; use 1 to %d",
                        stages, blocks, shape->family->blocks->are, blocks);
}

bp_err bp_model_shape_read(bp_model_shape *shape, const json_t *state, const char *where)
{
    const bp_model_family *family;
    const char *kind = NULL;
    bp_err err = bp_json_get_string(json_object_get(state, "model"), "kind", &kind, where);

    *shape = (bp_model_shape){0};
    if (err != BP_OK)
        return err;
    family = bp_model_family_find(kind);
    if (!family)
        return BP_FAIL(BP_ERR_FORMAT, "model.unknown_kind",
                       "the model is of kind '%s', which this version does not know: at %s; use a "
                       "newer bagpipe",
                       kind, where);
    return bp_model_shape_read_as(shape, family, state, where);
}
