/* The tensors of a Hugging Face folder: those named by rows of the table, and the others. Called by
 * hf_import.c. */
#include "base/mem.h"
#include "io/huggingface/hf_import_priv.h"
#include "io/huggingface/hf_model_priv.h"

#include <stdio.h>
#include <string.h>

#define COMPARE_PART 65536

const char *hf_without_prefix(const bp_hf_model *model, const char *name)
{
    const char *prefix = model->shape.table->prefix;

    if (hf_name_is_bare(model->shape.table, name))
        return name;
    size_t bytes = strlen(prefix);

    return strncmp(name, prefix, bytes) == 0 ? name + bytes : name;
}

/* The name that older files have; NULL: the same. */
static const char *older_name(char older[2 * HF_NAME], const bp_hf_table *table, const char *name)
{
    size_t bytes = strlen(name);

    for (const bp_hf_alias *alias = table->older; alias && alias->name; alias++) {
        size_t end = strlen(alias->name);

        if (bytes < end || strcmp(name + bytes - end, alias->name) != 0)
            continue;
        (void)snprintf(older, 2 * HF_NAME, "%.*s%s", (int)(bytes - end), name, alias->older);
        return older;
    }
    return NULL;
}

/* Found by the bare name, or an older one. */
static const bp_safetensor *find_named(const bp_hf_model *model, const char *name,
                                       bp_safetensors **file)
{
    const bp_hf_table *table = model->shape.table;
    char full[2 * HF_NAME], older[2 * HF_NAME];
    const bp_safetensor *tensor;

    (void)snprintf(full, sizeof full, "%s%s",
                   model->prefixed && !hf_name_is_bare(table, name) ? table->prefix : "", name);
    tensor = hf_find(model, full, file);
    if (!tensor && older_name(older, table, full))
        tensor = hf_find(model, older, file);
    return tensor;
}

bool hf_is_tied(const bp_hf_shape *shape)
{
    for (const bp_hf_size *size = shape->table->sizes; size->ours; size++)
        if (strcmp(size->ours, "tied") == 0)
            return bp_hf_size_of(shape, "tied") != 0;
    return true; /* a table without the choice */
}

const bp_safetensor *hf_find_theirs(const bp_hf_model *model, const char *name,
                                    bp_safetensors **file)
{
    const bp_hf_table *table = model->shape.table;
    const bp_safetensor *tensor = find_named(model, name, file);

    if (tensor || !table->tied || strcmp(name, table->tied) != 0)
        return tensor;
    for (const char *const *twin = table->twins; twin && *twin && !tensor; twin++)
        tensor = find_named(model, *twin, file);
    if (!tensor && table->head && hf_is_tied(&model->shape))
        tensor = hf_find(model, table->head, file);
    return tensor;
}

/* ---- the rest of the folder's tensors ---- */

/* Its name in the table, if its ending has changed. */
static const char *present_name(char present[2 * HF_NAME], const bp_hf_table *table,
                                const char *name)
{
    size_t bytes = strlen(name);

    for (const bp_hf_alias *alias = table->older; alias && alias->name; alias++) {
        size_t end = strlen(alias->older);

        if (bytes < end || bytes >= HF_NAME || strcmp(name + bytes - end, alias->older) != 0)
            continue;
        (void)snprintf(present, 2 * HF_NAME, "%.*s%s", (int)(bytes - end), name, alias->name);
        return present;
    }
    return name;
}

/* One of a tensor's two names is redundant. */
static bool is_wanted(const bp_hf_model *model, const char *full)
{
    const bp_hf_table *table = model->shape.table;
    const char *name = hf_without_prefix(model, full);
    char present[2 * HF_NAME];
    bp_safetensors *file;
    bool prefixed = model->prefixed && !hf_name_is_bare(table, name);

    if ((name != full) != prefixed)
        return false;
    if (hf_name_is_known(&model->shape, name))
        return true;
    return present_name(present, table, name) != name && hf_name_is_known(&model->shape, present) &&
           strcmp(hf_find_theirs(model, present, &file)->name, full) == 0;
}

/* Checks that the head equals its tied tensor, bit for bit. */
static bp_err compare_head(const bp_hf_model *model, bp_safetensors *head_file,
                           const bp_safetensor *head)
{
    bp_safetensors *file;
    const bp_hf_table *table = model->shape.table;
    const bp_safetensor *wte = hf_find_theirs(model, table->tied, &file);
    float *a = bp_alloc("hf.compare", COMPARE_PART, sizeof *a),
          *b = bp_alloc("hf.compare", COMPARE_PART, sizeof *b);
    bool same = head->count == wte->count;
    bp_err err = BP_OK;

    for (int64_t done = 0; done < wte->count && same && err == BP_OK;) {
        int64_t take = wte->count - done < COMPARE_PART ? wte->count - done : COMPARE_PART;

        err = bp_safetensors_read(file, wte, done, take, a);
        if (err == BP_OK)
            err = bp_safetensors_read(head_file, head, done, take, b);
        same = err != BP_OK || memcmp(a, b, (size_t)take * sizeof *a) == 0;
        done += take;
    }
    bp_free(a);
    bp_free(b);
    if (err == BP_OK && !same)
        err =
            BP_FAIL(BP_ERR_FORMAT, "huggingface.untied",
                    "%s is not %s: in %s; if config.json said \"tie_word_embeddings\": false, both "
                    "would be read",
                    table->head, table->tied, bp_safetensors_path(head_file));
    return err;
}

static bool is_buffer(const bp_hf_table *table, const char *rest)
{
    for (const char *const *name = table->buffers; *name; name++)
        if (strcmp(*name, rest) == 0)
            return true;
    return false;
}

/* The name of a size in config.json. */
static const char *their_name(const bp_hf_table *table, const char *ours)
{
    const bp_hf_size *size = table->sizes;

    while (strcmp(size->ours, ours) != 0)
        size++;
    return size->theirs;
}

static void ignore(bp_hf_model *model, const bp_safetensor *tensor)
{
    model->ignored[model->report.buffers + model->report.tied_heads] = tensor->name;
}

/* Is it read in place of its tied tensor? */
static bool is_in_place_of_tied(const bp_hf_model *model, const bp_safetensor *tensor)
{
    const bp_hf_table *table = model->shape.table;
    bp_safetensors *file;

    return table->tied && hf_find_theirs(model, table->tied, &file) == tensor;
}

static bp_err sort_out(bp_hf_model *model, bp_safetensors *file, const bp_safetensor *tensor)
{
    const bp_hf_table *table = model->shape.table;
    const char *rest;
    int64_t layers,
        layer = hf_layer_of(&model->shape, hf_without_prefix(model, tensor->name), &rest, &layers);

    if (is_wanted(model, tensor->name) || is_in_place_of_tied(model, tensor))
        return BP_OK;
    if (table->head && strcmp(tensor->name, table->head) == 0) {
        ignore(model, tensor);
        model->report.tied_heads++;
        return compare_head(model, file, tensor);
    }
    if (layer >= layers)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.extra_layer",
            "tensor '%.80s' is of a layer that config.json's %s = %lld leaves out: in %s",
            tensor->name, their_name(table, "layers"), (long long)layers,
            bp_safetensors_path(file));
    if (is_buffer(table, layer >= 0 ? rest : hf_without_prefix(model, tensor->name))) {
        ignore(model, tensor);
        model->report.buffers++;
        return BP_OK;
    }
    model->left[model->report.left++] = tensor->name;
    return BP_OK;
}

bp_err hf_sort_out(bp_hf_model *model)
{
    bp_err err = BP_OK;

    for (int64_t f = 0; f < model->file_count; f++)
        model->report.tensors += bp_safetensors_count(model->files[f]);
    model->left = bp_alloc("hf.left", model->report.tensors, sizeof *model->left);
    model->ignored = bp_alloc("hf.left", model->report.tensors, sizeof *model->ignored);
    for (int64_t f = 0; f < model->file_count; f++)
        for (int64_t k = 0; k < bp_safetensors_count(model->files[f]) && err == BP_OK; k++)
            err = sort_out(model, model->files[f], bp_safetensors_at(model->files[f], k));
    return err;
}
