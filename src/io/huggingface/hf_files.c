/* The files of a Hugging Face folder: config.json, and the safetensors files, a single one or those
 * of an index. The first step of opening a folder (hf_import.c). */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/hf_config_priv.h"
#include "io/huggingface/hf_import_priv.h"

#include <stdio.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)16 << 20)
#define INDEX_LIMIT  ((int64_t)100 << 20)
#define MAX_SHARDS   1000

static bp_err load_json(const char *folder, const char *name, int64_t limit, json_t **out,
                        char **path)
{
    *path = bp_path_join(folder, name);
    *out = NULL;
    return bp_json_load(out, *path, limit);
}

static bp_err read_config(bp_hf_model *model, const bp_hf_table *const *tables, bool checks_class)
{
    json_t *config = json_incref(model->config);
    char *path = config ? bp_strdup(model->folder) : bp_path_join(model->folder, "config.json");
    bp_err err = config ? BP_OK : bp_json_load_python(&config, path, CONFIG_LIMIT);

    if (err == BP_OK && checks_class)
        err = hf_check_class(config, tables, path);
    if (err == BP_OK)
        err = hf_config_read(&model->shape, config, tables, path);
    if (err == BP_OK) {
        model->named = hf_config_names(config, model->shape.table);
        model->nameless = json_array_size(json_object_get(config, "architectures")) == 0;
    }
    json_decref(config);
    bp_free(path);
    return err;
}

bp_err hf_read_config(bp_hf_model *model, const bp_hf_table *const *tables)
{
    return read_config(model, tables, true);
}

bp_err hf_read_config_by(bp_hf_model *model, const bp_hf_table *table)
{
    return read_config(model, (const bp_hf_table *[]){table, NULL}, false);
}

static bp_err open_file(bp_hf_model *model, const char *name)
{
    char *path = bp_path_join(model->folder, name);
    bp_err err = bp_safetensors_open(&model->files[model->file_count], path);

    if (err == BP_OK)
        model->file_count++;
    bp_free(path);
    return err;
}

/* A name in the folder itself: no path, not hidden. */
static bool shard_name_is_valid(const char *name)
{
    size_t length = strlen(name);

    return length > 12 && length < 200 && name[0] != '.' &&
           strcmp(name + length - 12, ".safetensors") == 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               length;
}

static bool is_open(const bp_hf_model *model, const char *name)
{
    for (int64_t k = 0; k < model->file_count; k++)
        if (strcmp(bp_path_base(bp_safetensors_path(model->files[k])), name) == 0)
            return true;
    return false;
}

const bp_safetensor *hf_find(const bp_hf_model *model, const char *name, bp_safetensors **file)
{
    for (int64_t k = 0; k < model->file_count; k++) {
        const bp_safetensor *tensor = bp_safetensors_find(model->files[k], name);

        if (tensor) {
            *file = model->files[k];
            return tensor;
        }
    }
    return NULL;
}

/* Checks that every tensor of the map is in its file. */
static bp_err check_map(const bp_hf_model *model, json_t *map, const char *path)
{
    const char *name;
    json_t *value;

    json_object_foreach(map, name, value)
    {
        bp_safetensors *file;
        const bp_safetensor *tensor = hf_find(model, name, &file);

        if (!tensor ||
            strcmp(bp_path_base(bp_safetensors_path(file)), json_string_value(value)) != 0)
            return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_missing",
                           "tensor '%.80s' is not in '%.80s', where the index has it: at %s", name,
                           json_string_value(value), path);
    }
    return BP_OK;
}

/* Checks that no tensor is in two files. */
static bp_err check_once(const bp_hf_model *model, const char *path)
{
    for (int64_t f = 1; f < model->file_count; f++)
        for (int64_t k = 0; k < bp_safetensors_count(model->files[f]); k++) {
            const char *name = bp_safetensors_at(model->files[f], k)->name;
            bp_safetensors *file = NULL;

            (void)hf_find(model, name, &file);
            if (file != model->files[f])
                return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_twice",
                               "tensor '%.80s' is in '%.80s' and in '%.80s': at %s", name,
                               bp_path_base(bp_safetensors_path(file)),
                               bp_path_base(bp_safetensors_path(model->files[f])), path);
        }
    return BP_OK;
}

static bp_err open_shards(bp_hf_model *model, const json_t *index, const char *path)
{
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *key;
    bp_err err = BP_OK;

    if (!json_is_object(map))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_index",
                       "\"weight_map\" is not an object: at %s", path);
    json_object_foreach(map, key, value)
    {
        const char *name = json_string_value(value);

        if (err == BP_OK && (!name || !shard_name_is_valid(name)))
            err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_index",
                          "'%.80s' is not a name of a safetensors file in the folder: at %s",
                          !name ? "" : name, path);
        if (err != BP_OK || is_open(model, name))
            continue;
        if (model->file_count == MAX_SHARDS)
            err = BP_FAIL(BP_ERR_FORMAT, "huggingface.too_many_files",
                          "there are more than %d files: at %s", MAX_SHARDS, path);
        else
            err = open_file(model, name);
    }
    if (err == BP_OK)
        err = check_once(model, path);
    return err == BP_OK ? check_map(model, map, path) : err;
}

/* ---- names of programs that wrap a model ---- */

/* Parts of a name that torch.compile, FSDP, activation checkpointing and DeepSpeed add anywhere,
 * and models of images and text before those of text;
 * and what DistributedDataParallel and PEFT set before all. */
static const char *const ANYWHERE[] = {"_orig_mod.",
                                       "_fsdp_wrapped_module.",
                                       "_checkpoint_wrapped_module.",
                                       "_forward_module.",
                                       "language_model.",
                                       NULL},
                         *const BEFORE[] = {"module.", "base_model.model.", NULL};

/* Removes the first of `parts` found at `at`, and appends it to `taken` (may be NULL); false if
 * there is none. */
static bool take_off(char *at, const char *const *parts, bp_buffer *taken)
{
    for (; *parts; parts++) {
        size_t bytes = strlen(*parts);

        if (strncmp(at, *parts, bytes) == 0) {
            if (taken)
                bp_buffer_add(taken, *parts, bytes);
            memmove(at, at + bytes, strlen(at + bytes) + 1);
            return true;
        }
    }
    return false;
}

static void unwrap_to(char *name, bp_buffer *taken)
{
    while (take_off(name, BEFORE, taken) || take_off(name, ANYWHERE, taken)) {
    }
    for (char *at = strchr(name, '.'); at; at = strchr(at, '.')) {
        at++;
        while (take_off(at, ANYWHERE, taken)) {
        }
    }
}

static void unwrap(char *name)
{
    unwrap_to(name, NULL);
}

/* Tensors of a PEFT adapter, or of a model with one. */
static bool is_of_adapter(const char *name)
{
    return strstr(name, ".lora_A.") || strstr(name, ".lora_B.") || strstr(name, ".base_layer.");
}

bp_err hf_unwrap(bp_hf_model *model)
{
    bool wrapped = false, unique = true;

    for (int64_t f = 0; f < model->file_count; f++)
        for (int64_t k = 0; k < bp_safetensors_count(model->files[f]); k++) {
            const char *name = bp_safetensors_at(model->files[f], k)->name;
            bp_buffer taken = {0};
            char *plain;

            if (is_of_adapter(name))
                return BP_FAIL(BP_ERR_FORMAT, "huggingface.adapter",
                               "tensor '%.80s' is of an adapter: in %s; merge it into the model "
                               "(PEFT's merge_and_unload) and save that",
                               name, model->folder);
            plain = bp_strdup(name);
            unwrap_to(plain, &taken);
            if (!wrapped && taken.bytes > 0) {
                wrapped = true;
                (void)snprintf(model->wrapper, sizeof model->wrapper, "%.*s", (int)taken.bytes,
                               taken.data);
            }
            bp_buffer_clear(&taken);
            bp_free(plain);
        }
    for (int64_t f = 0; f < model->file_count && wrapped; f++)
        unique = bp_safetensors_rename(model->files[f], unwrap) && unique;
    if (!unique)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_twice",
                       "a tensor is there twice, with and without '%s': in %s", model->wrapper,
                       model->folder);
    return wrapped ? check_once(model, model->folder) : BP_OK;
}

static bool has(const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bool there = path && bp_path_exists(path);

    bp_free(path);
    return there;
}

static bp_err fail_weights(const char *folder)
{
    static const char *const OTHERS[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "tf_model.h5",       "flax_model.msgpack",
                                         "model.ckpt.index",  NULL};

    if (has(folder, "adapter_model.safetensors"))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.adapter",
                       "there are only the tensors of an adapter: in %s; merge it into its model "
                       "(PEFT's merge_and_unload) and save that",
                       folder);
    for (int k = 0; k < 2; k++)
        if (has(folder, OTHERS[k]))
            return BP_FAIL(BP_ERR_INPUT, "huggingface.no_weights",
                           "there is no model.safetensors: in %s; %s is not read, as it may run "
                           "code: in that folder run " BP_HF_CONVERT,
                           folder, OTHERS[k]);
    for (int k = 2; OTHERS[k]; k++)
        if (has(folder, OTHERS[k]))
            return BP_FAIL(BP_ERR_INPUT, "huggingface.no_weights",
                           "there is neither model.safetensors nor model.safetensors.index.json: "
                           "in %s; %s is not read: save the model with safe_serialization=True",
                           folder, OTHERS[k]);
    return BP_FAIL(BP_ERR_INPUT, "huggingface.no_weights",
                   "there is neither model.safetensors nor model.safetensors.index.json: in %s",
                   folder);
}

bp_err hf_open_files(bp_hf_model *model)
{
    json_t *index;
    char *path;
    bp_err err;

    model->files = bp_alloc("hf.files", MAX_SHARDS, sizeof *model->files);
    if (has(model->folder, "model.safetensors"))
        return open_file(model, "model.safetensors");
    if (!has(model->folder, "model.safetensors.index.json"))
        return fail_weights(model->folder);
    err = load_json(model->folder, "model.safetensors.index.json", INDEX_LIMIT, &index, &path);
    if (err == BP_OK)
        err = open_shards(model, index, path);
    json_decref(index);
    bp_free(path);
    return err;
}
