/* The files of explanations: METHOD.h5, with rows in the order of the corpora, and summary.json.
 * Called after all units are done. */
#include "explain/pages/gather.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/score/tables/tables.h"

#include <inttypes.h>
#include <string.h>

#define VERSION 1

/* A file that is written in order. */
typedef struct method_file {
    const bp_explain_method *method;
    bp_h5_draft draft;
    json_t *figures;
    int64_t targets, inputs, sources;  /* written so far */
    int64_t values[BP_EXPLAIN_ARRAYS]; /* of each array, written so far */
} method_file;

/* A document of the corpus, with known sizes. */
static bp_explained document_of(const explainer *self, int64_t d)
{
    const explain_sizes *sizes = &self->texts.sizes[d];

    return (bp_explained){.K = sizes->K, .T = sizes->T, .S = sizes->S};
}

/* What starts count for each document, where a method has such an array. */
static const struct {
    const char *name;
    bp_explain_shape shape;
} STARTS[] = {{"matrix_start", BP_EXPLAIN_BY_INPUT},
              {"square_start", BP_EXPLAIN_BY_POSITIONS},
              {"foil_matrix_start", BP_EXPLAIN_BY_FOIL_INPUT},
              {"source_matrix_start", BP_EXPLAIN_BY_SOURCE},
              {"source_square_start", BP_EXPLAIN_BY_SOURCE_POSITIONS},
              {"source_foil_matrix_start", BP_EXPLAIN_BY_FOIL_SOURCE}};

static bool has_array(const explainer *self, const bp_explain_array *array);

/* Does the method have an array of this shape in its file? */
static bool has_shape(const explainer *self, const bp_explain_method *method,
                      bp_explain_shape shape)
{
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        if (method->arrays[k].shape == shape && has_array(self, &method->arrays[k]))
            return true;
    return false;
}

/* Sums of counts before each document. */
static bp_err write_sums(const explainer *self, bp_h5 *h5, const char *name, int64_t *counts)
{
    int64_t documents = self->texts.documents, sum = 0;
    bp_err err;

    for (int64_t d = 0; d <= documents; d++) {
        int64_t count = d < documents ? counts[d] : 0;

        counts[d] = sum;
        sum += count;
    }
    err = bp_h5_write(h5, name, BP_H5_I64, counts, documents + 1);
    return err;
}

static bp_err write_starts(const explainer *self, bp_h5 *h5, const bp_explain_method *method)
{
    int64_t documents = self->texts.documents,
            *counts = bp_alloc("explain", documents + 1, sizeof *counts);
    const explain_sizes *sizes = self->texts.sizes;
    bp_err err;

    for (int64_t d = 0; d < documents; d++)
        counts[d] = sizes[d].K;
    err = write_sums(self, h5, "target_start", counts);
    for (int64_t d = 0; d < documents; d++)
        counts[d] = sizes[d].T;
    if (err == BP_OK)
        err = write_sums(self, h5, "input_start", counts);
    for (int64_t d = 0; d < documents; d++)
        counts[d] = sizes[d].S;
    if (err == BP_OK && self->job->info.reads_source)
        err = write_sums(self, h5, "source_start", counts);
    for (size_t k = 0; k < sizeof STARTS / sizeof STARTS[0] && err == BP_OK; k++) {
        const bp_explain_array array = {.shape = STARTS[k].shape};

        for (int64_t d = 0; d < documents; d++) {
            const bp_explained document = document_of(self, d);
            const bp_explain_form form = explain_form(self, &document);

            counts[d] = bp_explain_values(&array, &form);
        }
        if (has_shape(self, method, STARTS[k].shape))
            err = write_sums(self, h5, STARTS[k].name, counts);
    }
    bp_free(counts);
    return err;
}

static int64_t sum_values(const explainer *self, const bp_explain_array *array)
{
    int64_t sum = 0;

    for (int64_t d = 0; d < self->texts.documents; d++) {
        const bp_explained document = document_of(self, d);
        const bp_explain_form form = explain_form(self, &document);

        sum += bp_explain_values(array, &form);
    }
    return sum;
}

/* Columns of a row of an array: a row is a target or a document; 0 if it is one list of values. */
static int64_t columns_of(const explainer *self, const bp_explain_array *array)
{
    const bp_explained one = {.K = 1, .T = 1, .S = self->job->info.reads_source};
    const bp_explain_form form = explain_form(self, &one);
    const bool rows[] = {[BP_EXPLAIN_BY_LAYER] = true,       [BP_EXPLAIN_TOPS] = true,
                         [BP_EXPLAIN_BY_FOIL] = true,        [BP_EXPLAIN_BY_HEAD] = true,
                         [BP_EXPLAIN_BY_SOURCE_HEAD] = true, [BP_EXPLAIN_BY_CROSS_HEAD] = true,
                         [BP_EXPLAIN_CURVES] = true,         [BP_EXPLAIN_EDITS] = true,
                         [BP_EXPLAIN_NEIGHBOURS] = true,     [BP_EXPLAIN_BY_OUTCOME] = true,
                         [BP_EXPLAIN_SHAPES - 1] = false};

    return rows[array->shape] ? bp_explain_values(array, &form) : 0;
}

/* Arrays of a source exist only for models that read one. */
static bool has_array(const explainer *self, const bp_explain_array *array)
{
    const bp_explained one = {.K = 1, .T = 1, .S = self->job->info.reads_source};
    const bp_explain_form form = explain_form(self, &one);

    return bp_explain_values(array, &form) > 0;
}

static bool is_once(const bp_explain_array *array)
{
    return array->shape >= BP_EXPLAIN_BY_HEAD;
}

static bp_err make_named(const explainer *self, bp_h5 *h5, const bp_explain_array *array,
                         const char *name)
{
    int64_t columns = columns_of(self, array),
            extent[] = {is_once(array) ? self->texts.documents : self->texts.targets, columns};

    if (columns > 0)
        return bp_h5_make_array(h5, name, BP_H5_F32, 2, extent, NULL);
    return bp_h5_make(h5, name, BP_H5_F32,
                      is_once(array) ? self->texts.documents : sum_values(self, array));
}

/* A member's array: "m00.integrated". Owns: the caller's. */
static char *member_name(const explainer *self, const bp_explain_array *array, int64_t member)
{
    return bp_sprintf("%s.%s", self->list.members[member].name, array->name);
}

/* Does an ensemble have a mean of it? For one model that is its own result. */
static bool has_mean(const explainer *self, const bp_explain_method *method)
{
    return self->members == 0 || method->averages;
}

/* For the model or the mean, and for each member. */
static bp_err make_array(const explainer *self, bp_h5 *h5, const bp_explain_method *method,
                         const bp_explain_array *array)
{
    bp_err err = BP_OK;

    if (!has_array(self, array))
        return BP_OK;
    if (has_mean(self, method))
        err = make_named(self, h5, array, array->name);
    for (int64_t m = 0; m < self->members && err == BP_OK; m++) {
        char *name = member_name(self, array, m);

        err = make_named(self, h5, array, name);
        bp_free(name);
    }
    return err;
}

static bp_err make_tokens(const explainer *self, bp_h5 *h5)
{
    int64_t inputs = 0, sources = 0;
    bp_err err;

    for (int64_t d = 0; d < self->texts.documents; d++) {
        inputs += self->texts.sizes[d].T;
        sources += self->texts.sizes[d].S;
    }
    err = bp_h5_make(h5, "input", BP_H5_U32, inputs);
    if (err == BP_OK && self->job->info.reads_source)
        err = bp_h5_make(h5, "source", BP_H5_U32, sources);
    if (err == BP_OK && self->texts.framed)
        err = bp_h5_make(h5, "segment", BP_H5_U32, inputs);
    if (err == BP_OK)
        err = bp_h5_make(h5, "target", BP_H5_U32, self->texts.targets);
    if (err == BP_OK)
        err = bp_h5_make(h5, "place", BP_H5_U32, self->texts.targets);
    return err;
}

/* For tasks: the names of outcomes, and for windows of a question the document of each. */
static bp_err write_task(const explainer *self, bp_h5 *h5)
{
    const bp_task_shape *task = &self->job->info.task;
    int64_t documents = self->texts.documents, *numbers;
    bp_err err = BP_OK;

    if (bp_task_has_head(task) && bp_task_kind_of(task)->has_names)
        err = bp_h5_write_texts(h5, "outcome_names", self->texts.examples.names, task->outcomes);
    if (err != BP_OK || !bp_task_has_head(task) || !bp_task_kind_of(task)->over_positions)
        return err;
    numbers = bp_alloc("explain", documents, sizeof *numbers);
    for (int64_t d = 0; d < documents; d++)
        numbers[d] = explain_framed_document(&self->texts, d);
    err = bp_h5_write(h5, "document", BP_H5_I64, numbers, documents);
    bp_free(numbers);
    return err;
}

/* The arrays of a method with rows by document. */
static bp_err begin_rows(const explainer *self, method_file *file)
{
    bp_h5 *h5 = file->draft.file;
    bp_err err = write_starts(self, h5, file->method);

    if (err == BP_OK)
        err = make_tokens(self, h5);
    if (err == BP_OK)
        err = write_task(self, h5);
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && file->method->arrays[k].name && err == BP_OK; k++)
        err = make_array(self, h5, file->method, &file->method->arrays[k]);
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

static bp_err put_tokens(method_file *file, const bp_explained *document)
{
    bp_h5 *h5 = file->draft.file;
    bp_err err =
        bp_h5_write_slab(h5, "input", BP_H5_U32, file->inputs, document->inputs, document->T);

    if (err == BP_OK)
        err = bp_h5_write_slab(h5, "target", BP_H5_U32, file->targets, document->targets,
                               document->K);
    if (err == BP_OK)
        err = bp_h5_write_slab(h5, "place", BP_H5_U32, file->targets, document->positions,
                               document->K);
    if (err == BP_OK && document->segments)
        err = bp_h5_write_slab(h5, "segment", BP_H5_U32, file->inputs, document->segments,
                               document->T);
    if (err == BP_OK && document->S > 0)
        err = bp_h5_write_slab(h5, "source", BP_H5_U32, file->sources, document->sources,
                               document->S);
    file->targets += document->K;
    file->inputs += document->T;
    file->sources += document->S;
    return err;
}

/* A member's results are `stride` floats after the preceding ones. */
static bp_err put_array(const explainer *self, const method_file *file,
                        const bp_explain_array *array, int64_t first, const float *at,
                        int64_t count, int64_t stride)
{
    bp_h5 *h5 = file->draft.file;
    bp_err err = has_mean(self, file->method)
                     ? bp_h5_write_slab(h5, array->name, BP_H5_F32, first, at, count)
                     : BP_OK;

    for (int64_t m = 0; m < self->members && err == BP_OK; m++) {
        char *name = member_name(self, array, m);

        err = bp_h5_write_slab(h5, name, BP_H5_F32, first, at + (1 + m) * stride, count);
        bp_free(name);
    }
    return err;
}

static void add_figures(const explainer *self, const method_file *file, json_t *figures,
                        const bp_explained *document, const float *results)
{
    const bp_explain_form form = explain_form(self, document);
    const float *at[BP_EXPLAIN_ARRAYS];

    bp_explain_lay_out(at, file->method, &form, results);
    if (file->method->add)
        file->method->add(figures, &self->settings, document, at);
    bp_explain_end_document(figures);
}

/* figures.members.NAME */
static json_t *figures_of(const explainer *self, const method_file *file, int64_t member)
{
    const char *name = self->list.members[member].name;
    json_t *members = json_object_get(file->figures, "members");

    if (!members) {
        members = json_object();
        (void)json_object_set_new(file->figures, "members", members);
    }
    if (!json_object_get(members, name))
        (void)json_object_set_new(members, name, json_object());
    return json_object_get(members, name);
}

/* stride: floats from one member's results to the next one's */
static bp_err put_document(const explainer *self, method_file *file, int64_t number,
                           const bp_explained *document, const float *results, int64_t stride)
{
    const bp_explain_form form = explain_form(self, document);
    const float *at = results;
    bp_err err = put_tokens(file, document);

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && file->method->arrays[k].name && err == BP_OK; k++) {
        const bp_explain_array *array = &file->method->arrays[k];
        int64_t count = bp_explain_values(array, &form),
                first = is_once(array) ? number * count : file->values[k];

        if (count > 0)
            err = put_array(self, file, array, first, at, count, stride);
        file->values[k] += count;
        at += count;
    }
    if (has_mean(self, file->method))
        add_figures(self, file, file->figures, document, results);
    for (int64_t m = 0; m < self->members && !has_mean(self, file->method); m++)
        add_figures(self, file, figures_of(self, file, m), document, results + (1 + m) * stride);
    return err;
}

/* Everything written while documents are read. */
typedef struct merger {
    method_file files[EXPLAIN_METHODS];
    explain_weights_file weights;
    explain_gathered gathered;
    explain_reading read;
    int64_t broken; /* documents */
} merger;

/* A unit's result: K targets, the results of each method, and the weights of an example. */
static bp_err put_unit(explainer *self, const bp_part_result *part, merger *to)
{
    const bp_explained sizes = document_of(self, part->unit);
    const bp_explain_form form = explain_form(self, &sizes);
    bool example = explain_examples_find(&self->examples, part->unit) >= 0;
    int64_t floats = explain_floats(self, &form);
    size_t bytes = (size_t)explain_results_bytes(self, part->unit);
    bp_err err = sizes.K > 0 && part->bytes > bytes && explain_collects(self)
                     ? BP_OK
                     : bp_part_result_expect(part, sizes.K > 0 ? bytes : 0);
    const float *results =
        (const float *)(const void *)(part->data + (size_t)sizes.K * sizeof(float));
    explain_shown shown = {&self->settings,
                           &to->read.document,
                           &form,
                           self->methods,
                           self->count,
                           results,
                           NULL,
                           explain_outcomes(self),
                           &to->gathered.entries};

    if (err == BP_OK && sizes.K > 0) {
        to->broken += results[explain_unit_floats(self, &form, example) - 1] > 0;
        err = explain_texts_read(&self->texts, part->unit, &to->read);
    }
    if (sizes.K > 0)
        memcpy(to->read.targets, part->data, (size_t)sizes.K * sizeof *to->read.targets);
    for (int k = 0; k < self->count && err == BP_OK && sizes.K > 0; k++) {
        if (self->methods[k]->run)
            err =
                put_document(self, &to->files[k], part->unit, &to->read.document, results, floats);
        results += bp_explain_floats(self->methods[k], &form);
    }
    if (example && self->examples.weights && sizes.K > 0) {
        shown.weights = results + self->members * floats;
        if (err == BP_OK)
            err = explain_weights_file_add(&to->weights, shown.weights, &form);
    }
    if (err == BP_OK && sizes.K > 0)
        err = explain_gather_add(&to->gathered, self, part->unit, &shown);
    return err;
}

static bp_err commit(method_file *file)
{
    char *kind = bp_sprintf("explain-%s", file->method->name);
    const char *name;
    json_t *own;
    bp_err err = bp_h5_draft_commit(&file->draft, kind, VERSION);

    json_object_foreach(json_object_get(file->figures, "members"), name,
                        own) if (file->method->finish) file->method->finish(own);
    if (file->method->finish && !json_object_get(file->figures, "members"))
        file->method->finish(file->figures);
    bp_free(kind);
    return err;
}

static bp_err save_summary(explainer *self, const merger *from)
{
    char *path = bp_path_join(self->job->folder, "summary.json");
    json_t *methods = json_object();
    bp_err err;

    for (int k = 0; k < self->count; k++)
        (void)json_object_set(methods, from->files[k].method->name, from->files[k].figures);
    self->summary =
        json_pack("{s{ss ss} sI sI sI so}", "model", "kind", self->job->info.kind, "digest",
                  self->job->info.digest, "documents", (json_int_t)self->texts.documents, "targets",
                  (json_int_t)self->texts.targets, "not_finite", (json_int_t)from->broken,
                  "methods", methods);
    explain_gather_finish(&from->gathered, self, self->summary);
    err = bp_json_save(path, self->summary);
    bp_free(path);
    return err;
}

static bp_err begin_all(explainer *self, merger *to)
{
    bp_err err = explain_choose(self);

    for (int k = 0; k < self->count && err == BP_OK; k++) {
        to->files[k].method = self->methods[k];
        err = begin(self, &to->files[k]);
    }
    if (err == BP_OK)
        err = explain_weights_file_begin(&to->weights, self);
    return err == BP_OK ? explain_gather_begin(&to->gathered, self) : err;
}

static bp_err commit_all(explainer *self, merger *to)
{
    bp_err err = BP_OK;

    for (int k = 0; k < self->count && err == BP_OK; k++)
        err = commit(&to->files[k]);
    if (err == BP_OK)
        err = explain_weights_file_commit(&to->weights);
    return err == BP_OK ? save_summary(self, to) : err;
}

static void warn_of_broken(const explainer *self, int64_t broken)
{
    if (broken > 0)
        BP_WARN(
            "explain.not_finite",
            "of %" PRId64 " of %" PRId64
            " documents the model gives values that are not finite (null in summary.json and on "
            "pages): at explain.model = %s; its weights are damaged or its numbers overflow: "
            "explain an earlier checkpoint",
            broken, self->texts.documents, bp_explain_keys_of(self->job->config)->model);
}

bp_err explain_merge(void *context, bp_parts *parts)
{
    explainer *self = context;
    merger to = {0};
    bp_part_result part = {0};
    bp_err err = begin_all(self, &to);

    explain_reading_new(&to.read, &self->texts);
    while (err == BP_OK && bp_parts_next(parts, &part, &err))
        err = put_unit(self, &part, &to);
    warn_of_broken(self, to.broken);
    for (int k = 0; k < self->count && err == BP_OK; k++)
        if (self->methods[k]->merge)
            err = explain_merge_method(self, k, parts, to.files[k].draft.file, to.files[k].figures);
    if (err == BP_OK)
        err = commit_all(self, &to);
    if (err == BP_OK)
        explain_index_write(&to.gathered, self, self->summary);
    for (int k = 0; k < self->count; k++) {
        bp_h5_draft_end(&to.files[k].draft);
        json_decref(to.files[k].figures);
    }
    explain_weights_file_end(&to.weights);
    explain_gather_clear(&to.gathered);
    explain_reading_clear(&to.read);
    return err;
}
