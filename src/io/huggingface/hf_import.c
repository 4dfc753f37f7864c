/* Opening a Hugging Face folder, and converting its tensors to ours. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/hf_config_priv.h"
#include "io/huggingface/hf_import_priv.h"
#include "io/huggingface/hf_model_priv.h"

#include <stdio.h>
#include <string.h>

static bool has_prefix(const bp_hf_model *model, const char *prefix)
{
    for (int64_t f = 0; f < model->file_count; f++)
        for (int64_t k = 0; k < bp_safetensors_count(model->files[f]); k++)
            if (strncmp(bp_safetensors_at(model->files[f], k)->name, prefix, strlen(prefix)) == 0)
                return true;
    return false;
}

/* The unknown prefix of the first tensor's name. */
static bp_err fail_first(const bp_hf_model *model, const char *first, const char *full)
{
    for (int64_t f = 0; f < model->file_count; f++)
        for (int64_t k = 0; k < bp_safetensors_count(model->files[f]); k++) {
            const char *name = bp_safetensors_at(model->files[f], k)->name;
            size_t bytes = strlen(name), end = strlen(first);

            if (bytes > end + 1 && strcmp(name + bytes - end, first) == 0 &&
                name[bytes - end - 1] == '.')
                return BP_FAIL(BP_ERR_FORMAT, "huggingface.other_prefix",
                               "names of tensors begin with '%.*s', as '%.80s': in %s; save the "
                               "model itself, without what is around it",
                               (int)(bytes - end), name, name, model->folder);
        }
    return strcmp(first, full) == 0
               ? BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_missing",
                         "there is no tensor %s: in %s", first, model->folder)
               : BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_missing",
                         "there is no tensor %s (nor %s): in %s", first, full, model->folder);
}

/* Checks that all tensors have the prefix, or none. */
static bp_err find_prefix(bp_hf_model *model)
{
    const char *prefix = model->shape.table->prefix, *first = model->shape.table->first;
    char full[2 * HF_NAME];
    bp_safetensors *file;

    (void)snprintf(full, sizeof full, "%s%s", prefix, first);
    bool bare = hf_find(model, first, &file) != NULL,
         prefixed = prefix[0] != '\0' && hf_find(model, full, &file);

    if (bare && prefixed)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_twice",
                       "tensor %s is there twice, with and without '%s': in %s", first, prefix,
                       model->folder);
    model->prefixed = prefixed || (!bare && prefix[0] != '\0' && has_prefix(model, prefix));
    model->report.prefix = model->prefixed ? prefix : "";
    return hf_find_theirs(model, first, &file) ? BP_OK : fail_first(model, first, full);
}

static bool has_shape(const bp_safetensor *tensor, const hf_tensor *expected)
{
    int64_t shape[3];

    if (tensor->dims != hf_file_shape(expected, shape))
        return false;
    for (int d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] != shape[d])
            return false;
    return true;
}

static bp_err check_tensor(const bp_hf_model *model, const hf_tensor *expected)
{
    bp_safetensors *file;
    const bp_safetensor *tensor = hf_find_theirs(model, expected->name, &file);
    int64_t extents[3];
    char shape[96] = "";

    if (!tensor && expected->or_zero)
        return BP_OK;
    if (!tensor)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_missing", "tensor '%s' is missing: in %s",
                       expected->name, model->folder);
    if (has_shape(tensor, expected))
        return BP_OK;
    for (int d = 0; d < hf_file_shape(expected, extents); d++)
        (void)snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld",
                       d > 0 ? ", " : "", (long long)extents[d]);
    return BP_FAIL(BP_ERR_FORMAT, "huggingface.wrong_shape",
                   "tensor '%s' does not have the shape (%s) that config.json asks for: in %s",
                   expected->name, shape, bp_safetensors_path(file));
}

static void add_slices(bp_hf_model *model, const hf_tensor *theirs, int64_t k)
{
    bp_safetensors *file;

    for (int p = 0; p < theirs->parts; p++) {
        bp_slice *slice = &model->slices[model->slice_count];

        *slice = (bp_slice){.dims = theirs->dims};
        (void)snprintf(slice->name, sizeof slice->name, "%s", theirs->ours[p]);
        hf_part_shape(theirs, p, slice->shape);
        memcpy(slice->extent, slice->shape, sizeof slice->extent);
        model->from[model->slice_count] = k;
        model->part[model->slice_count++] = p;
    }
    model->report.used += hf_find_theirs(model, theirs->name, &file) != NULL;
    model->report.transposed += theirs->transposed;
    model->report.split += theirs->parts > 1;
}

static bp_err map_tensors(bp_hf_model *model)
{
    int64_t count = hf_tensor_count(&model->shape), capacity = HF_PARTS * count;

    model->slices = bp_alloc("hf.slices", capacity, sizeof *model->slices);
    model->from = bp_alloc("hf.from", capacity, sizeof *model->from);
    model->part = bp_alloc("hf.part", capacity, sizeof *model->part);
    for (int64_t k = 0; k < count; k++) {
        hf_tensor theirs;

        hf_tensor_of(&theirs, &model->shape, k);
        if (check_tensor(model, &theirs) != BP_OK)
            return BP_ERR_FORMAT;
        add_slices(model, &theirs, k);
    }
    model->report.made = model->slice_count;
    return BP_OK;
}

/* A folder may name a class that has fewer tensors than it holds. */
static bp_err read_by_tensors(bp_hf_model *model, const bp_hf_table *const *tables)
{
    const bp_hf_table *only = model->shape.table;
    bp_safetensors *file;

    for (; *tables; tables++)
        if (strcmp((*tables)->model_type, only->model_type) == 0 && (*tables)->identified_by &&
            hf_find(model, (*tables)->identified_by, &file))
            only = *tables;
    if (only == model->shape.table)
        return BP_OK;
    json_decref(model->shape.labels);
    return hf_read_config_by(model, only);
}

/* ---- the whole ---- */

static bool has_any(const bp_hf_model *model, const char *const *prefixes)
{
    for (; prefixes && *prefixes; prefixes++)
        if (has_prefix(model, *prefixes))
            return true;
    return false;
}

static bool is_unread(const bp_hf_table *table, const char *head)
{
    for (const char *const *unread = table->unread; unread && *unread; unread++)
        if (strcmp(*unread, head) == 0)
            return true;
    return false;
}

static bool has_head(const bp_hf_model *model)
{
    const bp_hf_table *table = model->shape.table;

    for (const char *const *bare = table->bare; bare && *bare; bare++)
        if (!is_unread(table, *bare) && has_prefix(model, *bare))
            return true;
    return false;
}

static bool has_task(const bp_hf_table *table)
{
    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (strcmp(size->ours, "task") == 0)
            return true;
    return false;
}

static bp_err try_table(bp_hf_model *model, bool headless)
{
    bp_err err;

    bp_free(model->slices);
    bp_free(model->from);
    bp_free(model->part);
    model->slices = NULL;
    model->from = NULL;
    model->part = NULL;
    model->slice_count = 0;
    model->report = (bp_hf_report){.headless = headless, .wrapper = model->wrapper};
    model->shape.headless = headless;
    err = find_prefix(model);
    return err == BP_OK ? map_tensors(model) : err;
}

/* A base class has no head: config.json names only the class, which tables do not list. The folder
 * may fit any table of its type that does not require a task's head. */
static bp_err try_without_head(bp_hf_model *model, const bp_hf_table *const *tables)
{
    const bp_hf_table *chosen = model->shape.table;
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err = BP_ERR_FORMAT;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    for (const bp_hf_table *const *table = tables; *table && err != BP_OK; table++) {
        if (strcmp((*table)->model_type, chosen->model_type) != 0 || has_task(*table) ||
            (model->named && *table != chosen))
            continue;
        json_decref(model->shape.labels);
        model->shape.labels = NULL;
        err = hf_read_config_by(model, *table);
        if (err == BP_OK)
            err = try_table(model, true);
    }
    if (err != BP_OK)
        bp_err_set_message(message);
    return err;
}

/* Is it the folder of a base class? Some name a class with a head anyway. */
static bool is_of_base_class(const bp_hf_model *model)
{
    const bp_hf_table *table = model->shape.table;
    bool named =
        model->named && (table->prefix[0] == '\0' || model->prefixed || !hf_is_tied(&model->shape));

    return table->bare && (!named || has_any(model, table->unread)) && !has_head(model) &&
           !has_task(table);
}

/* Without a class a causal stack is a language model, but not with another head. */
static bp_err check_nameless(const bp_hf_model *model)
{
    const bp_hf_table *table = model->shape.table;

    return model->nameless && table->scores && has_prefix(model, "score.")
               ? BP_FAIL(BP_ERR_FORMAT, "huggingface.no_class",
                         "config.json names no class, and score.weight is the head of a task: in "
                         "%s; write \"architectures\": [\"%sForSequenceClassification\"] into it, "
                         "or the class that it is",
                         model->folder, table->stem)
               : BP_OK;
}

static bp_err find_tensors(bp_hf_model *model, const bp_hf_table *const *tables)
{
    bp_err err = try_table(model, model->shape.table->headless);

    return err == BP_ERR_FORMAT && is_of_base_class(model) ? try_without_head(model, tables) : err;
}

static bp_hf_model *new_model(const char *folder)
{
    bp_hf_model *model = bp_alloc("hf", 1, sizeof *model);

    model->fetched = -1;
    model->folder = bp_strdup(folder);
    return model;
}

/* Finds the tensors, once configuration and files are open. */
static bp_err open_model(bp_hf_model **out, bp_hf_model *model, bp_err err,
                         const bp_hf_table *const *tables)
{
    *out = NULL;
    if (err == BP_OK)
        err = hf_unwrap(model);
    if (err == BP_OK)
        err = read_by_tensors(model, tables);
    if (err == BP_OK)
        err = check_nameless(model);
    if (err == BP_OK)
        err = find_tensors(model, tables);
    if (err == BP_OK)
        err = hf_sort_out(model);
    if (err != BP_OK)
        bp_hf_close(&model);
    *out = model;
    return bp_err_advise(err, "export the model again");
}

bp_err bp_hf_open(bp_hf_model **out, const char *folder, const bp_hf_table *const *tables)
{
    bp_hf_model *model = new_model(folder);
    bp_err err = BP_OK;

    if (!bp_path_is_dir(folder))
        err = BP_FAIL(BP_ERR_INPUT, "huggingface.no_folder",
                      "there is no such file or folder: at %s", folder);
    if (err == BP_OK)
        err = hf_read_config(model, tables);
    if (err == BP_OK)
        err = hf_open_files(model);
    return open_model(out, model, err, tables);
}

bp_err bp_hf_open_as(bp_hf_model **out, const char *path, json_t *config, bp_safetensors *tensors,
                     const bp_hf_table *const *tables)
{
    bp_hf_model *model = new_model(path);

    model->config = json_incref(config);
    model->files = bp_alloc("hf.files", 1, sizeof *model->files);
    model->files[model->file_count++] = tensors;
    return open_model(out, model, hf_read_config(model, tables), tables);
}

void bp_hf_close(bp_hf_model **out)
{
    bp_hf_model *model = *out;

    if (!model)
        return;
    for (int64_t k = 0; k < model->file_count; k++)
        bp_safetensors_close(&model->files[k]);
    bp_free(model->files);
    bp_free(model->slices);
    bp_free(model->from);
    bp_free(model->part);
    bp_free(model->left);
    bp_free(model->ignored);
    bp_free(model->theirs);
    bp_free(model->ours);
    bp_free(model->folder);
    json_decref(model->config);
    json_decref(model->shape.labels);
    bp_free(model);
    *out = NULL;
}

bp_hf_shape bp_hf_shape_of(const bp_hf_model *model)
{
    return model->shape;
}

const bp_slice *bp_hf_slices(const bp_hf_model *model, int64_t *count)
{
    *count = model->slice_count;
    return model->slices;
}

bp_hf_report bp_hf_report_of(const bp_hf_model *model)
{
    return model->report;
}

const char *bp_hf_left(const bp_hf_model *model, int64_t k)
{
    BP_ASSERT(k >= 0 && k < model->report.left);
    return model->left[k];
}

const char *bp_hf_ignored(const bp_hf_model *model, int64_t k)
{
    BP_ASSERT(k >= 0 && k < model->report.buffers + model->report.tied_heads);
    return model->ignored[k];
}

bp_hf_source bp_hf_source_of(const bp_hf_model *model, int64_t k)
{
    bp_safetensors *file;
    hf_tensor theirs;

    BP_ASSERT(k >= 0 && k < model->slice_count);
    hf_tensor_of(&theirs, &model->shape, model->from[k]);
    const bp_safetensor *tensor = hf_find_theirs(model, theirs.name, &file);

    return (bp_hf_source){.theirs = tensor ? tensor->name : "nothing, 0",
                          .part = model->part[k],
                          .parts = theirs.parts,
                          .transposed = theirs.transposed};
}

/* q, k and v request the same tensor in sequence: it is read once. */
static bp_err read_theirs(bp_hf_model *model, int64_t k, const hf_tensor *theirs)
{
    bp_safetensors *file;
    const bp_safetensor *tensor;
    int64_t count;
    bp_err err = BP_OK;

    if (model->fetched == k)
        return BP_OK;
    model->fetched = -1;
    bp_free(model->theirs);
    model->theirs = NULL;
    tensor = hf_find_theirs(model, theirs->name, &file);
    BP_ASSERT(tensor || theirs->or_zero);
    count = theirs->shape[0] * (theirs->dims == 2 ? theirs->shape[1] : 1);
    model->theirs = bp_try_alloc("hf.theirs", count, sizeof *model->theirs);
    if (!model->theirs)
        return bp_fail_memory("a tensor", count, sizeof *model->theirs);
    if (tensor)
        err = bp_safetensors_read(file, tensor, 0, count, model->theirs);
    else
        memset(model->theirs, 0, (size_t)count * sizeof *model->theirs);
    if (err == BP_OK)
        model->fetched = k;
    return err;
}

bp_err bp_hf_fetch(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    bp_hf_model *model = context;
    hf_tensor theirs;
    int64_t count = slice->extent[0] * (slice->dims == 2 ? slice->extent[1] : 1);
    bp_err err;

    hf_tensor_of(&theirs, &model->shape, model->from[index]);
    err = read_theirs(model, model->from[index], &theirs);
    if (err != BP_OK)
        return err;
    *data = model->theirs;
    if (!theirs.transposed && theirs.parts == 1 && theirs.pairs == 0)
        return BP_OK;
    bp_free(model->ours);
    model->ours = bp_try_alloc("hf.ours", count, sizeof *model->ours);
    if (!model->ours)
        return bp_fail_memory("a tensor", count, sizeof *model->ours);
    hf_take_part(model->ours, model->theirs, &theirs, model->part[index]);
    *data = model->ours;
    return BP_OK;
}

json_t *bp_hf_model_json(const bp_hf_shape *shape)
{
    json_t *model = json_pack("{s:s}", "kind", shape->table->kind);

    for (int k = 0; shape->table->sizes[k].ours; k++)
        if (bp_hf_is_given(shape, k))
            (void)json_object_set_new(model, shape->table->sizes[k].ours, hf_size_json(shape, k));
    if (shape->labels)
        (void)json_object_set(model, "labels", shape->labels);
    if (shape->table->members && has_task(shape->table)) {
        json_t *members = json_loads(shape->table->members, 0, NULL);

        (void)json_object_update(model, members);
        json_decref(members);
    }
    if (shape->table->trims)
        (void)json_object_set_new(model, "padding",
                                  shape->no_pad ? json_null() : json_integer(shape->pad_id));
    return model;
}
