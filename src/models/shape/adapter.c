/* Adapters: their keys, their part of a checkpoint's "model" object, and merging one into the
 * weights that it adapts. Called by shape.c and shape_json.c. */
#include "models/shape/adapter.h"

#include "base/config/json.h"

#include <stdio.h>
#include <string.h>

static const char *const KINDS[] = {"none", "lora", "bottleneck"}, *const TARGETS[] = {
                                                                       "q",   "k",  "v",
                                                                       "out", "up", "down"};
enum {
    KIND_COUNT = sizeof KINDS / sizeof KINDS[0],
    TARGET_COUNT = sizeof TARGETS / sizeof(char *)
};

static int64_t find(const char *const *words, int count, const char *word, size_t bytes)
{
    for (int k = 0; k < count; k++)
        if (strlen(words[k]) == bytes && strncmp(words[k], word, bytes) == 0)
            return k;
    return -1;
}

/* "q,v" as bits; 0 if it is not such a list. */
static int64_t read_targets(const char *list)
{
    int64_t bits = 0;

    for (const char *at = list;; at++) {
        size_t bytes = strcspn(at, ",");
        int64_t found = find(TARGETS, TARGET_COUNT, at, bytes);

        if (found < 0)
            return 0;
        bits |= (int64_t)1 << found;
        at += bytes;
        if (*at == '\0')
            return bits;
    }
}

void bp_adapter_write_targets(char text[BP_ADAPTER_TEXT], int64_t bits)
{
    size_t used = 0;

    text[0] = '\0';
    for (int k = 0; k < TARGET_COUNT; k++)
        if (bits >> k & 1)
            used += (size_t)snprintf(text + used, BP_ADAPTER_TEXT - used, "%s%s", used ? "," : "",
                                     TARGETS[k]);
}

static bool are_equal(const bp_adapter *a, const bp_adapter *b)
{
    return a->kind == b->kind && a->rank == b->rank && a->targets == b->targets &&
           a->scale == b->scale;
}

static void check(const bp_adapter *adapter, const bp_adapter_keys *keys, const bp_adapter *known,
                  int64_t C, bp_config *config)
{
    if (adapter->kind != BP_ADAPTER_NONE && !known)
        bp_config_fault(config, "adapter.no_base",
                        "adapter.kind = %s adapts a model that is trained, and there is none: at "
                        "adapter.kind; give model.init, or leave the key out",
                        keys->kind);
    if (known && known->kind != BP_ADAPTER_NONE && !are_equal(adapter, known))
        bp_config_fault(config, "adapter.mismatch",
                        "adapter.* says otherwise than the checkpoint of model.init, which has an "
                        "adapter (%s, rank %lld): at adapter.kind; give the same keys, or merge it "
                        "by bagpipe-data export and import",
                        KINDS[known->kind], (long long)known->rank);
    if (adapter->kind == BP_ADAPTER_LORA && adapter->targets == 0)
        bp_config_fault(
            config, "adapter.bad_targets",
            "adapter.targets = %s is not a list of weights: at adapter.targets; take some "
            "of q,k,v,out,up,down",
            keys->targets);
    if (adapter->kind != BP_ADAPTER_NONE && C > 0 && adapter->rank > C)
        bp_config_fault(config, "adapter.rank_too_large",
                        "adapter.rank = %lld is more than model.width = %lld: at adapter.rank; use "
                        "less",
                        (long long)adapter->rank, (long long)C);
}

bp_adapter bp_adapter_of(const bp_adapter_keys *keys, bp_config *config, const bp_adapter *known,
                         int64_t C)
{
    bp_adapter adapter = {.kind = find(KINDS, KIND_COUNT, keys->kind, strlen(keys->kind))};

    if (adapter.kind != BP_ADAPTER_NONE)
        adapter.rank = keys->rank;
    if (adapter.kind == BP_ADAPTER_LORA) {
        adapter.scale = keys->scale;
        adapter.targets = read_targets(keys->targets);
    }
    check(&adapter, keys, known, C, config);
    return adapter;
}

void bp_adapter_to_json(json_t *model, const bp_adapter *adapter)
{
    char targets[BP_ADAPTER_TEXT];
    json_t *out;

    if (adapter->kind == BP_ADAPTER_NONE)
        return;
    out = json_pack("{s:s, s:I}", "kind", KINDS[adapter->kind], "rank", (json_int_t)adapter->rank);
    if (adapter->kind == BP_ADAPTER_LORA) {
        bp_adapter_write_targets(targets, adapter->targets);
        (void)json_object_set_new(out, "scale", json_real(adapter->scale));
        (void)json_object_set_new(out, "targets", bp_json_string(targets));
    }
    (void)json_object_set_new(model, "adapter", out);
}

bp_err bp_adapter_from_json(bp_adapter *adapter, const json_t *model, const char *where)
{
    const json_t *found = json_object_get(model, "adapter");
    const char *kind = NULL, *targets = NULL;
    bp_err err;
    bool lora;

    *adapter = (bp_adapter){0};
    if (!found)
        return BP_OK;
    err = bp_json_get_string(found, "kind", &kind, where);
    if (err == BP_OK)
        err = bp_json_get_int(found, "rank", &adapter->rank, where);
    if (err == BP_OK)
        adapter->kind = find(KINDS, KIND_COUNT, kind, strlen(kind));
    lora = adapter->kind == BP_ADAPTER_LORA;
    if (err == BP_OK && lora)
        err = bp_json_get_real(found, "scale", &adapter->scale, where);
    if (err == BP_OK && lora)
        err = bp_json_get_string(found, "targets", &targets, where);
    if (err != BP_OK)
        return err;
    adapter->targets = lora ? read_targets(targets) : 0;
    if (adapter->kind <= BP_ADAPTER_NONE || (lora && adapter->targets == 0))
        return BP_FAIL(BP_ERR_FORMAT, "model.unknown_choice",
                       "the model's adapter is '%.40s' of '%.40s', which this version does not "
                       "know: at %s; use a newer bagpipe",
                       kind, targets ? targets : "", where);
    if (adapter->rank < 1 || adapter->rank > 1 << 20)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the adapter's rank is %lld: at %s; the checkpoint was not written by "
                       "bagpipe",
                       (long long)adapter->rank, where);
    return BP_OK;
}

/* ---- merging ---- */

bp_err bp_adapter_check_merge(const bp_checkpoint *checkpoint)
{
    const char *where = bp_checkpoint_folder(checkpoint);
    bp_adapter adapter;
    bp_err err = bp_adapter_from_json(
        &adapter, json_object_get(bp_checkpoint_state(checkpoint), "model"), where);

    if (err == BP_OK && adapter.kind == BP_ADAPTER_BOTTLENECK)
        err = BP_FAIL(BP_ERR_FORMAT, "adapter.no_merge",
                      "the checkpoint's model has bottleneck adapters, which merge into no weight "
                      "and which a folder of Hugging Face has no place for: at %s; export another "
                      "one",
                      where);
    return err;
}

static bool name_factor(char out[BP_TENSOR_NAME], const char *weight, const char *part)
{
    size_t stem = strlen(weight) - strlen(".weight");

    if (strlen(weight) < strlen(".weight") || strcmp(weight + stem, ".weight") != 0)
        return false;
    return snprintf(out, BP_TENSOR_NAME, "%.*s.%s", (int)stem, weight, part) < BP_TENSOR_NAME;
}

static bp_slice whole(const char *name, int64_t rows, int64_t columns, float *data)
{
    bp_slice slice = {.dims = 2, .shape = {rows, columns}, .extent = {rows, columns}, .data = data};

    (void)snprintf(slice.name, sizeof slice.name, "%s", name);
    return slice;
}

bp_err bp_adapter_merge(bp_checkpoint *checkpoint, const bp_slice *slice, float *values)
{
    char name_a[BP_TENSOR_NAME], name_b[BP_TENSOR_NAME];
    int64_t outs = slice->shape[0], ins = slice->shape[1];
    bp_adapter adapter;
    float *a, *b;
    bp_err err =
        bp_adapter_from_json(&adapter, json_object_get(bp_checkpoint_state(checkpoint), "model"),
                             bp_checkpoint_folder(checkpoint));

    if (err != BP_OK || adapter.kind != BP_ADAPTER_LORA || slice->dims != 2 ||
        !name_factor(name_a, slice->name, "lora_a") ||
        !name_factor(name_b, slice->name, "lora_b") || !bp_checkpoint_has(checkpoint, name_a))
        return err;
    a = bp_try_alloc("adapter", adapter.rank * ins, sizeof *a);
    b = bp_try_alloc("adapter", outs * adapter.rank, sizeof *b);
    err = a && b ? bp_checkpoint_load(checkpoint,
                                      (bp_slice[]){whole(name_a, adapter.rank, ins, a),
                                                   whole(name_b, outs, adapter.rank, b)},
                                      2)
                 : bp_fail_memory("an adapter", adapter.rank * (ins + outs), sizeof *a);
    if (err == BP_OK)
        bp_lora_merge(values, a, b, (float)(adapter.scale / (double)adapter.rank), outs,
                      adapter.rank, ins);
    bp_free(a);
    bp_free(b);
    return err;
}
