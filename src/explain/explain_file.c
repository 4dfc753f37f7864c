/* What is left of explanations: METHOD.h5, whose rows are those of the corpora in their order, and
 * summary.json. Called once all units are done. */
#include "explain/explain_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/tables/tables.h"

#include <string.h>

#define VERSION 1

/* One file while it is written, front to back. */
typedef struct method_file {
    const bp_explain_method *method;
    bp_h5_draft draft;
    json_t *figures;
    int64_t targets, cells; /* so far */
} method_file;

static bp_err write_starts(const explainer *self, bp_h5 *h5, int64_t *cells)
{
    int64_t documents = self->texts.plan.documents,
            *starts = bp_alloc("explain", 2 * (documents + 1), sizeof *starts),
            *cell_starts = starts + documents + 1;
    bp_err err;

    for (int64_t d = 0; d < documents; d++) {
        int64_t T = self->texts.places[d];

        starts[d + 1] = starts[d] + T;
        cell_starts[d + 1] = cell_starts[d] + T * T;
    }
    *cells = cell_starts[documents];
    err = bp_h5_write(h5, "target_start", BP_H5_I64, starts, documents + 1);
    if (err == BP_OK)
        err = bp_h5_write(h5, "matrix_start", BP_H5_I64, cell_starts, documents + 1);
    bp_free(starts);
    return err;
}

/* Rows are targets, or documents; of matrices all is one row. */
static bp_err make_array(const explainer *self, bp_h5 *h5, const bp_explain_array *array,
                         int64_t cells)
{
    const bp_explain_form one = explain_form(self, 1);
    int64_t extent[] = {bp_explain_is_of_document(array) ? self->texts.plan.documents
                                                         : self->texts.tokens,
                        bp_explain_values(array, &one)};

    if (array->shape == BP_EXPLAIN_BY_INPUT)
        return bp_h5_make(h5, array->name, BP_H5_F32, cells);
    if (array->shape == BP_EXPLAIN_BY_TARGET || array->shape == BP_EXPLAIN_BY_DOCUMENT)
        return bp_h5_make(h5, array->name, BP_H5_F32, extent[0]);
    return bp_h5_make_array(h5, array->name, BP_H5_F32, 2, extent, NULL);
}

/* The arrays of a method with rows by document. */
static bp_err begin_rows(const explainer *self, method_file *file)
{
    int64_t targets = self->texts.tokens, cells = 0;
    bp_h5 *h5 = file->draft.file;
    bp_err err = write_starts(self, h5, &cells);

    if (err == BP_OK)
        err = bp_h5_make(h5, "input", BP_H5_U32, targets);
    if (err == BP_OK)
        err = bp_h5_make(h5, "target", BP_H5_U32, targets);
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && file->method->arrays[k].name && err == BP_OK; k++)
        err = make_array(self, h5, &file->method->arrays[k], cells);
    return err;
}

static bp_err begin(const explainer *self, method_file *file)
{
    char *name = bp_sprintf("%s.h5", file->method->name),
         *path = bp_path_join(self->job->folder, name);
    bp_err err = bp_h5_draft_begin(&file->draft, path, VERSION);
    bp_h5 *h5 = file->draft.file;

    file->figures = json_object();
    if (err == BP_OK && file->method->run)
        err = begin_rows(self, file);
    if (err == BP_OK)
        err = bp_score_ids_write(h5, &self->texts.plan);
    if (err == BP_OK)
        err = bp_h5_put_text(h5, "/", "model_digest", self->job->info.digest);
    bp_free(path);
    bp_free(name);
    return err;
}

/* Where a document's values of an array begin. */
static int64_t first_of(const method_file *file, const bp_explain_array *array, int64_t document,
                        int64_t T, int64_t count)
{
    return bp_explain_is_of_document(array)      ? document * count
           : array->shape == BP_EXPLAIN_BY_INPUT ? file->cells
                                                 : file->targets * (count / T);
}

static bp_err put_document(const explainer *self, method_file *file, int64_t number,
                           const bp_explained *document, const float *results)
{
    const bp_explain_form form = explain_form(self, document->T);
    bp_h5 *h5 = file->draft.file;
    int64_t T = document->T;
    const float *at = results;
    bp_err err = bp_h5_write_slab(h5, "input", BP_H5_U32, file->targets, document->inputs, T);

    if (err == BP_OK)
        err = bp_h5_write_slab(h5, "target", BP_H5_U32, file->targets, document->targets, T);
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && file->method->arrays[k].name && err == BP_OK; k++) {
        const bp_explain_array *array = &file->method->arrays[k];
        int64_t count = bp_explain_values(array, &form);

        err = bp_h5_write_slab(h5, array->name, BP_H5_F32, first_of(file, array, number, T, count),
                               at, count);
        at += count;
    }
    if (file->method->add)
        file->method->add(file->figures, &self->settings, document, results);
    file->targets += T;
    file->cells += T * T;
    return err;
}

/* A unit's result: T targets, then what each method has of them. */
static bp_err put_unit(explainer *self, const bp_part_result *part, method_file *files,
                       int32_t *tokens)
{
    int64_t T = self->texts.places[part->unit];
    const bp_explain_form form = explain_form(self, T);
    size_t bytes = (size_t)explain_results_bytes(self, part->unit);
    bp_explained document = {
        .T = T, .inputs = tokens, .targets = (const int32_t *)(const void *)part->data};
    bp_err err = T > 0 && part->bytes > bytes && explain_collects(self)
                     ? BP_OK
                     : bp_part_result_expect(part, T > 0 ? bytes : 0);
    const float *results = (const float *)(const void *)(part->data + (size_t)T * sizeof(float));

    if (err == BP_OK && T > 0)
        err = explain_texts_read(&self->texts, part->unit, tokens);
    for (int k = 0; k < self->count && err == BP_OK && T > 0; k++) {
        if (self->methods[k]->run)
            err = put_document(self, &files[k], part->unit, &document, results);
        results += bp_explain_floats(self->methods[k], &form);
    }
    return err;
}

static bp_err commit(method_file *file)
{
    char *kind = bp_sprintf("explain-%s", file->method->name);
    bp_err err = bp_h5_draft_commit(&file->draft, kind, VERSION);

    if (file->method->finish)
        file->method->finish(file->figures);
    bp_free(kind);
    return err;
}

static bp_err save_summary(explainer *self, const method_file *files)
{
    char *path = bp_path_join(self->job->folder, "summary.json");
    json_t *methods = json_object();
    bp_err err;

    for (int k = 0; k < self->count; k++)
        (void)json_object_set(methods, files[k].method->name, files[k].figures);
    self->summary =
        json_pack("{s{ss ss} sI sI so}", "model", "kind", self->job->info.kind, "digest",
                  self->job->info.digest, "documents", (json_int_t)self->texts.plan.documents,
                  "targets", (json_int_t)self->texts.tokens, "methods", methods);
    err = bp_json_save(path, self->summary);
    bp_free(path);
    return err;
}

bp_err explain_merge(void *context, bp_parts *parts)
{
    explainer *self = context;
    int32_t *tokens = bp_alloc("explain", self->settings.most + 1, sizeof *tokens);
    method_file files[EXPLAIN_METHODS] = {0};
    bp_part_result part = {0};
    bp_err err = BP_OK;

    for (int k = 0; k < self->count && err == BP_OK; k++) {
        files[k].method = self->methods[k];
        err = begin(self, &files[k]);
    }
    while (err == BP_OK && bp_parts_next(parts, &part, &err))
        err = put_unit(self, &part, files, tokens);
    for (int k = 0; k < self->count && err == BP_OK; k++)
        if (self->methods[k]->merge)
            err = explain_merge_method(self, k, parts, files[k].draft.file, files[k].figures);
    for (int k = 0; k < self->count && err == BP_OK; k++)
        err = commit(&files[k]);
    if (err == BP_OK)
        err = save_summary(self, files);
    for (int k = 0; k < self->count; k++) {
        bp_h5_draft_end(&files[k].draft);
        json_decref(files[k].figures);
    }
    bp_free(tokens);
    return err;
}
