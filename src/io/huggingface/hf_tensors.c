/* The tensors of a Hugging Face folder: those named by rows of the table, and the others. Called by
 * hf_import.c. */
#include "base/log.h"
#include "base/mem.h"
#include "io/huggingface/hf_import_priv.h"
#include "io/huggingface/hf_model_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COMPARE_PART   65536
#define CONSTANT_ERROR 0.01 /* more than bf16 rounds a sine by */

const char *hf_without_prefix(const bp_hf_model *model, const char *name)
{
    const char *prefix = model->shape.table->prefix;

    if (hf_name_is_bare(model->shape.table, name))
        return name;
    size_t bytes = strlen(prefix);

    return strncmp(name, prefix, bytes) == 0 ? name + bytes : name;
}

/* Found by the bare name, or its other one. */
static const bp_safetensor *find_named(const bp_hf_model *model, const char *name,
                                       bp_safetensors **file)
{
    const bp_hf_table *table = model->shape.table;
    const bp_hf_alias *alias = hf_alias_of(table, name);
    char full[2 * HF_NAME], other[2 * HF_NAME];
    const bp_safetensor *tensor = NULL;

    (void)snprintf(full, sizeof full, "%s%s",
                   model->prefixed && !hf_name_is_bare(table, name) ? table->prefix : "", name);
    if (alias)
        hf_other_name(other, alias, full);
    if (alias && alias->computes)
        tensor = hf_find(model, other, file);
    if (!tensor)
        tensor = hf_find(model, full, file);
    if (!tensor && alias)
        tensor = hf_find(model, other, file);
    return tensor;
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

/* The name in the table of a tensor that has its other name. */
static const char *name_in_table(char own[2 * HF_NAME], const bp_hf_table *table, const char *name)
{
    size_t bytes = strlen(name);

    for (const bp_hf_alias *alias = table->aliases; alias && alias->name; alias++) {
        size_t end = strlen(alias->other);

        if (bytes < end || bytes >= HF_NAME || strcmp(name + bytes - end, alias->other) != 0)
            continue;
        (void)snprintf(own, 2 * HF_NAME, "%.*s%s", (int)(bytes - end), name, alias->name);
        return own;
    }
    return name;
}

/* The tensor that is read for the values that this one holds: itself, or one that it should be a
 * copy of; NULL: no row of the table has it. */
static const bp_safetensor *find_read(const bp_hf_model *model, const bp_safetensor *tensor,
                                      bp_safetensors **file)
{
    const bp_hf_table *table = model->shape.table;
    const char *name = hf_without_prefix(model, tensor->name);
    char own[2 * HF_NAME];
    bool prefixed = model->prefixed && !hf_name_is_bare(table, name);

    if ((name != tensor->name) != prefixed)
        return NULL;
    if (hf_name_is_known(&model->shape, name))
        return hf_find_theirs(model, name, file);
    name = name_in_table(own, table, name);
    if (hf_name_is_known(&model->shape, name))
        return hf_find_theirs(model, name, file);
    for (const char *const *twin = table->twins; twin && *twin; twin++)
        if (strcmp(*twin, name) == 0)
            return hf_find_theirs(model, table->tied, file);
    return NULL;
}

/* Are two tensors equal, bit for bit? */
static bp_err compare(bool *same, bp_safetensors *file_a, const bp_safetensor *tensor_a,
                      bp_safetensors *file_b, const bp_safetensor *tensor_b)
{
    float *a = bp_alloc("hf.compare", COMPARE_PART, sizeof *a),
          *b = bp_alloc("hf.compare", COMPARE_PART, sizeof *b);
    int64_t count = tensor_a->count;
    bp_err err = BP_OK;

    *same = count == tensor_b->count;
    for (int64_t done = 0; done < count && *same && err == BP_OK;) {
        int64_t take = count - done < COMPARE_PART ? count - done : COMPARE_PART;

        err = bp_safetensors_read(file_a, tensor_a, done, take, a);
        if (err == BP_OK)
            err = bp_safetensors_read(file_b, tensor_b, done, take, b);
        *same = err != BP_OK || memcmp(a, b, (size_t)take * sizeof *a) == 0;
        done += take;
    }
    bp_free(a);
    bp_free(b);
    return err;
}

static bool may_be_untied(const bp_hf_table *table)
{
    const bp_hf_size *size = table->sizes;

    while (size->ours && (!size->theirs || strcmp(size->theirs, "tie_word_embeddings") != 0))
        size++;
    return size->ours != NULL;
}

/* Checks that the head equals its tied tensor. */
static bp_err compare_head(const bp_hf_model *model, bp_safetensors *head_file,
                           const bp_safetensor *head)
{
    bp_safetensors *file;
    const bp_hf_table *table = model->shape.table;
    const bp_safetensor *wte = hf_find_theirs(model, table->tied, &file);
    bool same;
    bp_err err = compare(&same, file, wte, head_file, head);

    if (err == BP_OK && !same)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.untied", "%s is not %s: in %s; %s", table->head,
                      table->tied, bp_safetensors_path(head_file),
                      may_be_untied(table)
                          ? "if config.json said \"tie_word_embeddings\": false, both would be read"
                          : "this program has one tensor for both; export a model in which they "
                            "are equal");
    return err;
}

/* Checks that a copy of a tensor equals the one that is read; if classes compute only with the one
 * that is read, a difference is only reported. */
static bp_err compare_copy(const bp_hf_model *model, bp_safetensors *copy_file,
                           const bp_safetensor *copy, bp_safetensors *file,
                           const bp_safetensor *read)
{
    const bp_hf_alias *alias = hf_alias_of(model->shape.table, copy->name);
    bool same;
    bp_err err = compare(&same, file, read, copy_file, copy);

    if (err != BP_OK || same)
        return err;
    if (!alias || !alias->computes)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.copies_differ",
                       "%s is not %s, and this program has one tensor for both: in %s; export a "
                       "model in which they are equal",
                       copy->name, read->name, bp_safetensors_path(copy_file));
    bp_log("%s is not %s, which the model computes with, and is left out", copy->name, read->name);
    return BP_OK;
}

static bool is_in(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* Checks a table of positions that the program computes. */
static bp_err compare_constant(const bp_hf_model *model, bp_safetensors *file,
                               const bp_safetensor *tensor)
{
    const bp_hf_shape *shape = &model->shape;
    int64_t width = bp_hf_size_of(shape, "width"), rows = bp_hf_size_of(shape, "context");
    float *row = bp_alloc("hf.compare", width, sizeof *row);
    bool same = tensor->dims == 2 && tensor->shape[1] == width && tensor->shape[0] >= rows;
    bp_err err = BP_OK;

    for (int64_t t = 0; t < rows && same && err == BP_OK; t++) {
        err = bp_safetensors_read(file, tensor, t * width, width, row);
        for (int64_t c = 0; c < width && err == BP_OK; c++)
            same = same && fabs(row[c] - shape->table->constant(shape, t, c)) < CONSTANT_ERROR;
    }
    bp_free(row);
    return err != BP_OK || same
               ? err
               : BP_FAIL(BP_ERR_FORMAT, "huggingface.other_constant",
                         "'%.80s' is not the table that this program computes in its place: in %s; "
                         "a model with its own table of positions is not read",
                         tensor->name, bp_safetensors_path(file));
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

static bp_err sort_out(bp_hf_model *model, bp_safetensors *file, const bp_safetensor *tensor)
{
    const bp_hf_table *table = model->shape.table;
    const char *rest;
    int64_t layers,
        layer = hf_layer_of(&model->shape, hf_without_prefix(model, tensor->name), &rest, &layers);
    bp_safetensors *read_file;
    const bp_safetensor *read = find_read(model, tensor, &read_file);

    if (read == tensor)
        return BP_OK;
    if (read) {
        ignore(model, tensor);
        model->report.buffers++;
        return compare_copy(model, file, tensor, read_file, read);
    }
    if (table->tied && hf_find_theirs(model, table->tied, &read_file) == tensor)
        return BP_OK; /* the head, in place of its tied tensor */
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
    if (layer < 0)
        rest = hf_without_prefix(model, tensor->name);
    if (is_in(table->buffers, rest) || is_in(table->constants, rest)) {
        ignore(model, tensor);
        model->report.buffers++;
        return is_in(table->constants, rest) ? compare_constant(model, file, tensor) : BP_OK;
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
