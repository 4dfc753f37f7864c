/* A checkpoint as a Hugging Face folder: config.json, the tensors in one file or in several, and
 * the tokenizer. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/huggingface/hf_config_priv.h"
#include "io/huggingface/hf_model_priv.h"
#include "io/huggingface/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bp_err read_choice(double *out, const json_t *model, const bp_hf_size *size,
                          const char *where)
{
    const char *word;
    bp_err err = bp_json_get_string(model, size->ours, &word, where);

    *out = err == BP_OK ? hf_choice_of(size, word) : 0;
    if (err == BP_OK && *out < 0)
        err = BP_FAIL(BP_ERR_FORMAT, "export.bad_model", "\"%s\" of the model is \"%.40s\": at %s",
                      size->ours, word, where);
    return err;
}

/* All rows of their learned positions are written, though training may have read shorter windows.
 */
static const char *name_in(const json_t *model, const bp_hf_size *size)
{
    return strcmp(size->ours, "context") == 0 && json_object_get(model, "positions") ? "positions"
                                                                                     : size->ours;
}

static bp_err read_size(bp_hf_shape *shape, int k, const json_t *model, const char *where)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    double *out = &shape->sizes[k];
    int64_t count = 0, most = strstr(size->ours, "layers") ? HF_MAX_LAYERS : (int64_t)1 << 31;
    bool flag = false;
    bp_err err;

    if (size->otherwise && !json_object_get(model, size->ours)) { /* of an older program */
        *out = hf_otherwise(shape, size);
        return BP_OK;
    }
    if (size->type == BP_HF_REAL)
        return bp_json_get_real(model, size->ours, out, where);
    if (size->type == BP_HF_CHOICE)
        return read_choice(out, model, size, where);
    if (size->type == BP_HF_PAIRS)
        return hf_read_pairs(hf_list_of(shape, k), out, size, json_object_get(model, size->ours),
                             where);
    if (hf_is_list(size))
        return hf_read_list(hf_list_of(shape, k), out, json_object_get(model, size->ours),
                            size->ours, where);
    if (size->type == BP_HF_FLAG) {
        err = bp_json_get_bool(model, size->ours, &flag, where);
        *out = flag;
        return err;
    }
    err = bp_json_get_int(model, name_in(model, size), &count, where);
    if (err == BP_OK && (count < (size->otherwise ? 0 : 1) || count > most))
        err = BP_FAIL(BP_ERR_FORMAT, "export.bad_model", "\"%s\" of the model is %lld: at %s",
                      size->ours, (long long)count, where);
    *out = count == 0 && size->otherwise ? hf_otherwise(shape, size) : (double)count;
    return err;
}

/* Is the table for models with the head of this model's task? */
static bool has_task(const bp_hf_table *table, const json_t *model)
{
    const char *word = json_string_value(json_object_get(model, "task"));

    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (strcmp(size->ours, "task") == 0)
            return word && hf_choice_of(size, word) == strtol(size->otherwise, NULL, 10);
    return !word;
}

static bp_err fail_size(const bp_hf_shape *shape, const bp_hf_size *size, double value,
                        const json_t *model, const char *where)
{
    const char *word = json_string_value(json_object_get(model, size->ours));
    char number[32];

    (void)snprintf(number, sizeof number, "%g", value);
    return BP_FAIL(
        BP_ERR_FORMAT, "export.no_counterpart",
        "the checkpoint's model has %s = %.40s, which a %s of Hugging Face does not have: at "
        "%s; export another one",
        size->ours, word ? word : number, shape->table->model_type, where);
}

/* The shape from the checkpoint's state, by one table. */
static bp_err read_by(bp_hf_shape *out, const bp_hf_table *table, const json_t *model,
                      const char *where)
{
    static const char *const VARIANTS[] = {"softmaxes", "head_activation", "attention_activation",
                                           "sngp", NULL};
    bp_err err = BP_OK;

    *out = (bp_hf_shape){.table = table, .labels = json_object_get(model, "labels")};
    for (int k = 0; VARIANTS[k]; k++)
        if (json_object_get(model, VARIANTS[k]))
            return BP_FAIL(
                BP_ERR_FORMAT, "export.no_counterpart",
                "the checkpoint's model has %s, which a %s of Hugging Face does not have: at "
                "%s; export another one",
                VARIANTS[k], table->model_type, where);
    for (int k = 0; err == BP_OK && table->sizes[k].ours; k++)
        err = read_size(out, k, model, where);
    if (err == BP_OK && table->derive)
        table->derive(out, true);
    for (int k = 0; err == BP_OK && table->sizes[k].ours; k++)
        if (!table->sizes[k].theirs && out->sizes[k] != hf_otherwise(out, &table->sizes[k]))
            err = fail_size(out, &table->sizes[k], out->sizes[k], model, where);
    if (err == BP_OK && bp_hf_has_size(table, "dense") &&
        !json_is_true(json_object_get(model, "dense")))
        return BP_FAIL(
            BP_ERR_FORMAT, "export.no_counterpart",
            "the checkpoint's head of a task is of an earlier version, without the layer "
            "with tanh that a %s of Hugging Face has: at %s; fine-tune again from the "
            "language model",
            table->model_type, where);
    if (err == BP_OK && table->unbiased && !json_is_true(json_object_get(model, "unbiased")))
        return BP_FAIL(
            BP_ERR_FORMAT, "export.no_counterpart",
            "the checkpoint's head of a task has a bias, and reads a text's end, which a %s of "
            "Hugging Face does not: at %s; export the language model",
            table->architecture, where);
    if (err == BP_OK && table->check(out, where) != BP_OK)
        err = bp_err_prefix(BP_ERR_FORMAT, "the checkpoint's model has sizes which can't be");
    return err;
}

const char *bp_hf_origin_of(const json_t *state)
{
    static const char *const FORMS[] = {"Hugging Face ", "GGUF "};
    const char *origin = json_string_value(json_object_get(state, "origin")),
               *type = json_string_value(json_object_get(state, "model_type"));

    for (size_t k = 0; k < sizeof FORMS / sizeof *FORMS && origin; k++)
        if (strncmp(origin, FORMS[k], strlen(FORMS[k])) == 0)
            return origin + strlen(FORMS[k]);
    return type;
}

/* Was the model imported as this type, or trained from such a model? */
static bool is_of_origin(const bp_hf_table *table, const json_t *state)
{
    const char *type = bp_hf_origin_of(state);

    return type && strcmp(type, table->model_type) == 0;
}

/* Uses the first table of its kind that accepts it (by_origin: first those of its imported type);
 * if none does, the message is that of a table for its task. */
static bp_err read_shape(bp_hf_shape *out, const bp_checkpoint *checkpoint, const json_t *part,
                         const bp_hf_table *const *tables, bool by_origin)
{
    const char *where = bp_checkpoint_folder(checkpoint), *kind;
    const json_t *state = bp_checkpoint_state(checkpoint),
                 *model = part ? part : json_object_get(state, "model");
    const json_t *eod = json_object_get(state, "eod_id"),
                 *pad = json_object_get(json_object_get(state, "roles"), "pad"),
                 *bos = json_object_get(json_object_get(state, "roles"), "bos"),
                 *ends = json_object_get(state, "end_ids"),
                 *trimmed = json_object_get(model, "padding");
    const char *task = json_string_value(json_object_get(model, "task"));
    bool known = false, has = false;
    bp_err err = bp_json_get_string(model, "kind", &kind, where);

    if (err != BP_OK)
        return err;
    for (const bp_hf_table *const *table = tables; *table; table++) {
        bool of_kind = strcmp(kind, (*table)->kind) == 0;

        known = known || of_kind;
        has = has || (of_kind && has_task(*table, model));
    }
    if (known && !has && task)
        return BP_FAIL(
            BP_ERR_FORMAT, "export.no_counterpart",
            "the checkpoint's model has task = %.40s, and Hugging Face has no class of a "
            "%.40s for it: at %s; export another one",
            task, kind, where);
    known = false;
    for (int other = 0; other < 2; other++)
        for (const bp_hf_table *const *table = tables; *table && (!known || err != BP_OK); table++)
            if (strcmp(kind, (*table)->kind) == 0 && (!has || has_task(*table, model)) &&
                (by_origin && is_of_origin(*table, state)) != (other == 1)) {
                known = true;
                err = read_by(out, *table, model, where);
            }
    if (!known)
        return BP_FAIL(BP_ERR_FORMAT, "export.unknown_kind",
                       "the checkpoint holds a model of kind '%.40s', which Hugging Face has no "
                       "folders for: at %s; export another one",
                       kind, where);
    out->eos_id = json_is_integer(eod) ? json_integer_value(eod) : -1;
    out->bos_id = json_is_integer(bos) ? json_integer_value(bos) : -1;
    out->end_ids = json_is_array(ends) ? ends : NULL;
    out->forced = json_object_get(state, "forced");
    pad = trimmed ? trimmed : pad;
    out->pad_id = json_is_integer(pad) ? json_integer_value(pad) : -1;
    out->no_pad = json_is_null(trimmed);
    out->headless = json_is_true(json_object_get(state, "headless"));
    return err;
}

static const char *type_name(const char *dtype)
{
    return strcmp(dtype, "F32") == 0   ? "float32"
           : strcmp(dtype, "F16") == 0 ? "float16"
                                       : "bfloat16";
}

static bp_err write_config(const bp_hf_shape *shape, const char *dtype, const char *folder)
{
    char *path = bp_path_join(folder, "config.json"),
         *other = bp_path_join(folder, "generation_config.json");
    json_t *config = hf_config_json(shape), *generation = hf_generation_json(shape, config);

    (void)json_object_set_new(config, "torch_dtype", bp_json_string(type_name(dtype)));
    bp_err err = bp_json_save(path, config);
    if (err == BP_OK && generation)
        err = bp_json_save(other, generation);

    json_decref(generation);
    json_decref(config);
    bp_free(other);
    bp_free(path);
    return err;
}

/* ---- tensors ---- */

static int64_t volume_of(int dims, const int64_t *shape)
{
    return dims == 3 ? shape[0] * shape[1] * shape[2] : dims == 2 ? shape[0] * shape[1] : shape[0];
}

/* Part `part` of one of theirs, as a slice of ours. */
static bp_slice slice_of(const hf_tensor *theirs, int part, float *data)
{
    bp_slice slice = {.dims = theirs->dims, .data = data};

    (void)snprintf(slice.name, sizeof slice.name, "%s", theirs->ours[part]);
    hf_part_shape(theirs, part, slice.shape);
    memcpy(slice.extent, slice.shape, sizeof slice.extent);
    return slice;
}

static bp_err load_part(bp_checkpoint *checkpoint, const hf_tensor *theirs, int part, float *ours,
                        const bp_hf_export_options *options)
{
    bp_slice slice = slice_of(theirs, part, ours);
    bp_err err = bp_checkpoint_load(checkpoint, &slice, 1);

    if (err == BP_OK)
        err = bp_checkpoint_check_digests(checkpoint, &slice, 1);
    return err == BP_OK && options->merge ? options->merge(checkpoint, &slice, ours) : err;
}

/* One of theirs, in *whole (bp_free). */
static bp_err load_tensor(bp_checkpoint *checkpoint, const hf_tensor *theirs,
                          const bp_hf_export_options *options, float **whole)
{
    int64_t count = volume_of(theirs->dims, theirs->shape);
    float *ours = bp_try_alloc("hf.ours", count, sizeof *ours);
    bp_err err = BP_OK;

    *whole = bp_try_alloc("hf.theirs", count, sizeof **whole);
    if (!*whole || !ours)
        err = bp_fail_memory("a tensor", count, sizeof **whole);
    for (int p = 0; p < theirs->parts && err == BP_OK; p++) {
        err = load_part(checkpoint, theirs, p, ours, options);
        if (err == BP_OK)
            hf_put_part(*whole, ours, theirs, p);
    }
    bp_free(ours);
    return err;
}

static bp_err write_tensor(bp_checkpoint *checkpoint, const hf_tensor *theirs,
                           const bp_hf_export_options *options, bp_safetensors_writer *writer)
{
    float *whole;
    bp_err err = load_tensor(checkpoint, theirs, options, &whole);

    if (err == BP_OK)
        err = bp_safetensors_write(writer, whole, volume_of(theirs->dims, theirs->shape));
    bp_free(whole);
    return err;
}

/* Checks that every tensor exists, in its shape, before anything is written. */
static bp_err check_tensor(const bp_checkpoint *checkpoint, const hf_tensor *theirs)
{
    bp_err err = BP_OK;

    for (int p = 0; p < theirs->parts && err == BP_OK; p++) {
        bp_slice slice = slice_of(theirs, p, NULL);

        err = bp_checkpoint_check_tensor(checkpoint, &slice);
    }
    return err;
}

/* All tensors, with their files: file f has [first[f], first[f + 1]). */
typedef struct layout {
    const bp_hf_shape *shape;
    const bp_hf_export_options *options;
    bp_safetensor *specs;
    char (*names)[2 * HF_NAME];
    int64_t *of; /* the tensor of the table that it is, or is a copy of */
    int64_t count, *first, files;
    int64_t values, written; /* of all tensors */
} layout;

static void lay_out_clear(layout *all)
{
    bp_free(all->specs);
    bp_free(all->names);
    bp_free(all->of);
    bp_free(all->first);
}

/* A file ends before the tensor that exceeds its limit. */
static void cut_files(layout *all)
{
    int64_t limit = all->options->shard_bytes, used = 0;

    all->first = bp_alloc("hf.files", all->count + 1, sizeof *all->first);
    for (int64_t k = 0; k < all->count; k++) {
        int64_t bytes = volume_of(all->specs[k].dims, all->specs[k].shape) *
                        bp_safetensors_element_bytes(all->options->dtype);

        if (k == 0 || (limit > 0 && used + bytes > limit)) {
            all->first[all->files++] = k;
            used = 0;
        }
        used += bytes;
    }
    all->first[all->files] = all->count;
}

static void add_spec(layout *all, const hf_tensor *theirs, int64_t k, const char *name)
{
    const bp_hf_shape *shape = all->shape;
    bool bare = shape->headless || hf_name_is_bare(shape->table, theirs->name);
    bp_safetensor *spec = &all->specs[all->count];

    (void)snprintf(all->names[all->count], sizeof *all->names, "%s%s",
                   bare ? "" : shape->table->prefix, name);
    *spec = (bp_safetensor){.name = all->names[all->count], .dtype = all->options->dtype};
    spec->dims = hf_file_shape(theirs, spec->shape);
    all->of[all->count++] = k;
    all->values += volume_of(theirs->dims, theirs->shape);
}

/* With `copies`: what classes of transformers read under either name has both. */
static bp_err lay_out(layout *all, const bp_checkpoint *checkpoint, const bp_hf_shape *shape,
                      const bp_hf_export_options *options, bool copies)
{
    hf_tensor theirs;
    char other[2 * HF_NAME];
    int64_t count = hf_tensor_count(shape);
    bp_err err = BP_OK;

    *all = (layout){.shape = shape, .options = options};
    all->specs = bp_alloc("hf.specs", 2 * count, sizeof *all->specs);
    all->names = bp_alloc("hf.names", 2 * count, sizeof *all->names);
    all->of = bp_alloc("hf.of", 2 * count, sizeof *all->of);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        hf_tensor_of(&theirs, shape, k);
        err = check_tensor(checkpoint, &theirs);
        add_spec(all, &theirs, k, theirs.name);
        if (copies && hf_has_copy(other, shape, theirs.name))
            add_spec(all, &theirs, k, other);
    }
    if (err == BP_OK)
        cut_files(all);
    return err;
}

static void set_file_name(char name[64], const layout *all, int64_t file)
{
    if (all->files == 1)
        (void)snprintf(name, 64, "model.safetensors");
    else
        (void)snprintf(name, 64, "model-%05lld-of-%05lld.safetensors", (long long)file + 1,
                       (long long)all->files);
}

static bp_err write_file(layout *all, bp_checkpoint *checkpoint, int64_t file, const char *folder)
{
    int64_t first = all->first[file], end = all->first[file + 1];
    bp_safetensors_writer *writer = NULL;
    char name[64], *path;
    bp_err err;

    set_file_name(name, all, file);
    path = bp_path_join(folder, name);
    err = bp_safetensors_create(&writer, path, all->specs + first, end - first, "pt");
    for (int64_t k = first; k < end && err == BP_OK; k++) {
        hf_tensor theirs;

        hf_tensor_of(&theirs, all->shape, all->of[k]);
        err = write_tensor(checkpoint, &theirs, all->options, writer);
        all->written += volume_of(theirs.dims, theirs.shape);
        if (err == BP_OK && all->options->progress)
            all->options->progress(all->options->context, all->written, all->values);
    }
    if (err == BP_OK)
        err = bp_safetensors_finish(&writer);
    bp_safetensors_drop(&writer);
    bp_free(path);
    return err;
}

/* The file of each tensor. */
static bp_err write_index(const layout *all, const char *folder)
{
    int64_t bytes = all->values * bp_safetensors_element_bytes(all->options->dtype);
    json_t *map = json_object(), *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                                                    (json_int_t)bytes, "weight_map", map);
    char *path = bp_path_join(folder, "model.safetensors.index.json"), name[64];
    bp_err err;

    for (int64_t file = 0; file < all->files; file++) {
        set_file_name(name, all, file);
        for (int64_t k = all->first[file]; k < all->first[file + 1]; k++)
            (void)json_object_set_new(map, all->names[k], bp_json_string(name));
    }
    err = bp_json_save(path, index);
    json_decref(index);
    bp_free(path);
    return err;
}

static bp_err write_model(bp_checkpoint *checkpoint, const bp_hf_shape *shape,
                          const bp_hf_export_options *options, const char *folder)
{
    layout all;
    bp_err err = lay_out(&all, checkpoint, shape, options, true);

    for (int64_t file = 0; file < all.files && err == BP_OK; file++)
        err = write_file(&all, checkpoint, file, folder);
    if (err == BP_OK && all.files > 1)
        err = write_index(&all, folder);
    lay_out_clear(&all);
    return err;
}

static bp_err write_to(layout *all, bp_checkpoint *checkpoint, const bp_hf_sink *sink)
{
    json_t *config = hf_config_json(all->shape);
    bp_err err = sink->begin(sink->context, config, all->specs, all->count);

    json_decref(config);
    for (int64_t k = 0; k < all->count && err == BP_OK; k++) {
        hf_tensor theirs;
        float *whole;

        hf_tensor_of(&theirs, all->shape, all->of[k]);
        err = load_tensor(checkpoint, &theirs, all->options, &whole);
        if (err == BP_OK)
            err = sink->write(sink->context, k, whole);
        bp_free(whole);
        all->written += volume_of(theirs.dims, theirs.shape);
        if (err == BP_OK && all->options->progress)
            all->options->progress(all->options->context, all->written, all->values);
    }
    return err;
}

bp_err bp_hf_export_to(bp_checkpoint *checkpoint, const bp_hf_sink *sink,
                       const bp_hf_export_options *options, const bp_hf_table *const *tables)
{
    bp_hf_shape shape = {0};
    bp_hf_export_options own = *options;
    layout all = {0};
    bp_err err = read_shape(&shape, checkpoint, options->model, tables, false);

    own.dtype = "F32";
    own.shard_bytes = 0;
    if (err == BP_OK)
        err = lay_out(&all, checkpoint, &shape, &own, false);
    if (err == BP_OK)
        err = write_to(&all, checkpoint, sink);
    lay_out_clear(&all);
    return err;
}

static bp_err write_tokenizer(const bp_hf_export_options *options, const char *folder)
{
    char *path = bp_path_join(folder, "tokenizer.json"),
         *config = bp_path_join(folder, "tokenizer_config.json");
    bp_err err = bp_file_write(path, options->tokenizer, strlen(options->tokenizer));

    if (err == BP_OK && options->tokenizer_config)
        err = bp_json_save(config, options->tokenizer_config);
    bp_free(config);
    bp_free(path);
    return err;
}

static bp_err write_more(const json_t *files, const char *folder)
{
    const char *name;
    json_t *value;
    bp_err err = BP_OK;

    json_object_foreach((json_t *)files, name, value)
    {
        const char *slash = strchr(name, '/');
        char *below = bp_sprintf("%s/%.*s", folder, slash ? (int)(slash - name) : 0, name),
             *path = bp_path_join(folder, name);

        if (err == BP_OK && slash)
            err = bp_dir_make(below);
        if (err == BP_OK)
            err = bp_json_save(path, value);
        if (err == BP_OK && slash)
            err = bp_path_sync(below);
        bp_free(path);
        bp_free(below);
    }
    return err;
}

static bp_err write_folder(bp_checkpoint *checkpoint, const bp_hf_shape *shape,
                           const bp_hf_export_options *options, const char *hidden, const char *out)
{
    bp_err err = write_model(checkpoint, shape, options, hidden);

    if (err == BP_OK)
        err = write_config(shape, options->dtype, hidden);
    if (err == BP_OK && options->tokenizer)
        err = write_tokenizer(options, hidden);
    if (err == BP_OK)
        err = write_more(options->files, hidden);
    if (err == BP_OK && options->also)
        err = options->also(checkpoint, options->dtype, hidden);
    if (err == BP_OK)
        err = bp_path_sync(hidden);
    return err == BP_OK ? bp_rename_new(hidden, out) : err;
}

/* transformers' Marian of old never writes the padding token. */
static void warn_of_padding(const bp_hf_shape *shape, const char *out)
{
    json_t *config = hf_config_json(shape);
    const json_t *pad = json_object_get(config, "pad_token_id"),
                 *eos = json_object_get(config, "eos_token_id");

    if (strcmp(shape->table->model_type, "marian") == 0 && json_is_integer(pad) &&
        json_equal(pad, eos))
        BP_WARN("export.padding_ends_texts",
                "the token that ends texts is the padding, which transformers' Marian of 4.26 "
                "never writes, so its texts do not end (those of 4.54 do): at %s; for it, train "
                "with a tokenizer that has padding (bagpipe-data tokenizer --special '<pad>', "
                "which says its number) and model.start_token = that number + 1",
                out);
    json_decref(config);
}

static void remove_quietly(const char *folder)
{
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (bp_dir_remove(folder) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_err_set_message(message);
}

bp_err bp_hf_export(bp_checkpoint *checkpoint, const char *out, const bp_hf_export_options *options,
                    const bp_hf_table *const *tables)
{
    bp_hf_shape shape = {0};
    struct stat status;
    char *hidden = NULL;
    int lock = -1;
    bp_err err = read_shape(&shape, checkpoint, options->model, tables, true);

    BP_ASSERT(bp_comm_size(bp_checkpoint_comm(checkpoint)) == 1);
    if (err == BP_OK && lstat(out, &status) == 0)
        err = BP_FAIL(BP_ERR_CREATE, "file.in_the_way",
                      "something is there already: at %s; move it away", out);
    if (err == BP_OK) {
        bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
        err = bp_hidden_make(out, BP_HIDDEN_FOLDER, &hidden, &lock);
    }
    if (hidden) {
        err = write_folder(checkpoint, &shape, options, hidden, out);
        if (err != BP_OK)
            remove_quietly(hidden);
    }
    if (err == BP_OK && shape.table->headless && !shape.headless)
        bp_log("left out: the head of words, which a %s does not have", shape.table->architecture);
    if (err == BP_OK && shape.table->instead)
        BP_WARN("export.only_bagpipe",
                "transformers has no class %s: only bagpipe reads this folder: at %s; for "
                "transformers, train a model.kind of %s",
                shape.table->architecture, out, shape.table->instead);
    if (err == BP_OK)
        warn_of_padding(&shape, out);
    if (lock >= 0)
        (void)close(lock);
    bp_free(hidden);
    return err;
}
