/* The training texts nearest to predictions. Called by methods/sources.c; start/load.c opens it. */
#include "explain/nearest/nearest.h"

#include "base/mem.h"
#include "base/sort.h"
#include "infer/neighbours/datastore.h"
#include "infer/score/vectors/vectors.h"
#include "models/open.h"

#include <inttypes.h>
#include <string.h>

#define POOL_BYTES 16

struct explain_nearest {
    const bp_mesh *mesh;
    const char *path;
    int64_t k, documents, width;
    /* contexts of tokens */
    bp_datastore *store;
    int64_t *starts; /* [documents + 1] rows of the file */
    /* vectors of documents */
    bp_model *headless;
    float *vectors; /* [documents][width] */
    char pool[POOL_BYTES];
    bool norm;
};

bool explain_nearest_of_documents(const bp_model_info *info)
{
    return bp_task_has_head(&info->task);
}

static bp_err refuse_few(const explain_nearest *self, int64_t entries)
{
    return BP_FAIL(BP_ERR_CONFIG, "explain.few_entries",
                   "explain.neighbours = %" PRId64 " is more than the %" PRId64
                   " entries of %s: at explain.neighbours; use %" PRId64 " or less",
                   self->k, entries, self->path, entries);
}

/* ---- contexts of tokens ---- */

static bp_err read_starts(explain_nearest *self)
{
    bp_h5 *file = bp_datastore_file(self->store);
    int64_t rows = bp_datastore_info_of(self->store)->rows, before = 0;
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_shape_of(file, "doc_start", &shape);
    bool fits = err == BP_OK && shape.dims == 1 && shape.count > 1 && !shape.is_real;

    if (err != BP_OK)
        return err;
    self->documents = fits ? shape.count - 1 : 0;
    self->starts = bp_alloc("explain.nearest", self->documents + 1, sizeof *self->starts);
    if (fits)
        err = bp_h5_read(file, "doc_start", BP_H5_I64, 0, self->starts, shape.count);
    for (int64_t d = 0; d <= self->documents && fits && err == BP_OK; d++) {
        fits = self->starts[d] >= before;
        before = self->starts[d];
    }
    return err != BP_OK || (fits && before == rows)
               ? err
               : BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                         "damaged: /doc_start is not as scores have it: at %s; score again",
                         self->path);
}

static bp_err open_store(explain_nearest *self, const bp_model *model)
{
    const bp_datastore_spec spec = {
        .path = self->path, .model = &model->info, .memory_bytes = EXPLAIN_NEAREST_BYTES};
    bp_err err = bp_datastore_open(&self->store, self->mesh->compute, self->mesh->model, &spec);

    if (err != BP_OK)
        return err;
    if (bp_datastore_info_of(self->store)->entries < self->k)
        err = refuse_few(self, bp_datastore_info_of(self->store)->entries);
    return bp_agree(self->mesh->compute, err == BP_OK ? read_starts(self) : err);
}

static explain_near near_of(const explain_nearest *self, const bp_neighbour *one)
{
    int64_t document = bp_stretch_of(self->starts, self->documents, one->row);

    return (explain_near){document, one->row - self->starts[document], one->distance};
}

/* Keys of targets [first, first + count), which one batch predicts. */
static bp_err find_keys(bp_model *model, const bp_explained *document, const bp_model_batch *batch,
                        int64_t first, int64_t count, float *queries)
{
    int64_t C = model->info.states.columns, positions = batch->windows * batch->length;
    float *values = bp_alloc("explain.nearest", positions, sizeof *values),
          *keys = bp_alloc("explain.nearest", positions * C, sizeof *keys);
    bp_err err = model->ops->keys(model, batch, values, keys);

    for (int64_t k = first; k < first + count && err == BP_OK; k++) {
        int64_t w = batch->windows > 1 ? k - first : 0;

        memcpy(queries + k * C, keys + (w * batch->length + document->positions[k]) * C,
               (size_t)C * sizeof *keys);
    }
    bp_free(keys);
    bp_free(values);
    return err;
}

static bp_err find_queries(bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document, float *queries)
{
    int64_t K = document->K, T = document->T, most;
    bool in_turn = document->hides >= 0;
    bp_explain_batch batch;
    bp_err err = bp_agree(settings->group, bp_explain_batch_new(&batch, settings));

    most = bp_explain_batch_windows(&batch, document, T);
    for (int64_t first = 0, count; first < K && err == BP_OK; first += count) {
        count = !in_turn || K - first < most ? K - first : most;
        for (int64_t w = 0; w < (in_turn ? count : 1); w++)
            bp_explain_batch_set(&batch, document, w, first + w, T);
        err = bp_explain_step(settings);
        if (err == BP_OK)
            err = find_keys(model, document, &batch.batch, first, count, queries);
    }
    bp_explain_batch_free(&batch);
    return err;
}

static bp_err search_store(explain_nearest *self, bp_model *model,
                           const bp_explain_settings *settings, const bp_explained *document,
                           explain_near *out)
{
    int64_t K = document->K;
    float *queries = bp_alloc("explain.nearest", K * model->info.states.columns, sizeof *queries);
    bp_neighbour *found = bp_alloc("explain.nearest", K * self->k, sizeof *found);
    bp_err err = find_queries(model, settings, document, queries);

    if (err == BP_OK)
        err = bp_datastore_search(self->store, queries, K, self->k, found);
    for (int64_t i = 0; i < K * self->k && err == BP_OK; i++)
        out[i] = near_of(self, &found[i]);
    bp_free(found);
    bp_free(queries);
    return err;
}

/* ---- vectors of documents ---- */

static bp_err refuse_file(const explain_nearest *self, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "explain.no_vectors",
                   "%s: at explain.datastore = %s; score the training texts with "
                   "score.vectors=mean and this model",
                   what, self->path);
}

static bp_err read_vectors(explain_nearest *self, bp_h5 *h5, const bp_model *model)
{
    char digest[sizeof model->info.digest];
    bp_h5_shape shape = {0};
    int64_t norm = 0;
    bp_err err;

    if (!bp_h5_has(h5, "vector") || !bp_h5_has_attribute(h5, "/", "model_digest") ||
        !bp_h5_has_attribute(h5, "/", "pool") || !bp_h5_has_attribute(h5, "/", "norm"))
        return refuse_file(self, "there are no vectors of documents");
    err = bp_h5_get_text(h5, "/", "model_digest", digest, sizeof digest);
    if (err == BP_OK && strcmp(digest, model->info.digest) != 0)
        return refuse_file(self, "the vectors are of another model");
    if (err == BP_OK)
        err = bp_h5_get_text(h5, "/", "pool", self->pool, sizeof self->pool);
    if (err == BP_OK)
        err = bp_h5_get_int(h5, "/", "norm", &norm);
    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "vector", &shape);
    if (err != BP_OK)
        return err;
    if (shape.dims != 2 || !shape.is_real || shape.columns < 1)
        return refuse_file(self, "/vector is no matrix");
    self->norm = norm != 0;
    self->width = shape.columns;
    self->documents = shape.count / shape.columns;
    if (self->documents < self->k)
        return refuse_few(self, self->documents);
    if (shape.count > EXPLAIN_NEAREST_BYTES / (int64_t)sizeof *self->vectors)
        return refuse_file(self, "there are more than 1 GiB of vectors");
    self->vectors = bp_try_alloc("explain.nearest", shape.count, sizeof *self->vectors);
    return self->vectors ? bp_h5_read(h5, "vector", BP_H5_F32, 0, self->vectors, shape.count)
                         : bp_fail_memory("vectors of documents", shape.count, sizeof(float));
}

static bp_err open_vectors(explain_nearest *self, const bp_config *config, const bp_model *model,
                           const explain_nearest_spec *spec)
{
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open(&h5, self->path);

    if (err == BP_OK)
        err = read_vectors(self, h5, model);
    if (h5)
        (void)bp_h5_close(&h5);
    err = bp_agree(self->mesh->compute, err);
    if (err == BP_OK)
        err = bp_model_open_vectors(&self->headless, self->mesh, config, spec->model, spec->context,
                                    self->pool);
    if (err == BP_OK && self->headless->info.vocab_size != self->width)
        err = bp_agree(self->mesh->compute, refuse_file(self, "/vector has another width"));
    return err;
}

static double distance_of(const float *a, const float *b, int64_t width)
{
    double sum = 0;

    for (int64_t c = 0; c < width; c++)
        sum += ((double)a[c] - (double)b[c]) * ((double)a[c] - (double)b[c]);
    return sum;
}

/* The nearest documents of a vector, the first of equal ones. */
static void rank_documents(const explain_nearest *self, const float *query, explain_near *out)
{
    int64_t count = 0;

    for (int64_t d = 0; d < self->documents; d++) {
        double distance = distance_of(query, self->vectors + d * self->width, self->width);
        int64_t at = count < self->k ? count++ : self->k;

        for (; at > 0 && out[at - 1].distance > distance; at--)
            if (at < self->k)
                out[at] = out[at - 1];
        if (at < self->k)
            out[at] = (explain_near){d, 0, distance};
    }
}

/* The inputs that score.vectors reads of a document: for a causal model without the token after
 * it. */
static int64_t length_of(const bp_explain_settings *settings, const bp_explained *document)
{
    int64_t T = document->T;
    bool ends = bp_explain_is_causal(settings->info) && T > 1 &&
                bp_explain_is_special(settings, document->inputs[T - 1]);

    return T - ends;
}

/* A text has one vector: all its targets have the same neighbours. */
static bp_err search_vectors(explain_nearest *self, const bp_explain_settings *settings,
                             const bp_explained *document, explain_near *out)
{
    int64_t T = length_of(settings, document);
    int32_t *targets = bp_alloc("explain.nearest", T, sizeof *targets);
    float *query = bp_alloc("explain.nearest", self->width, sizeof *query);
    const bp_model_batch batch = {.windows = 1,
                                  .length = T,
                                  .inputs = document->inputs,
                                  .targets = targets,
                                  .segments = document->segments};
    bp_err err;

    for (int64_t t = 0; t < T; t++)
        targets[t] = t == 0 ? 0 : -1;
    err = bp_model_distribution(self->headless, &batch, query, NULL);
    if (err == BP_OK) {
        if (self->norm)
            bp_vectors_normalise(query, self->width);
        rank_documents(self, query, out);
        for (int64_t i = self->k; i < document->K * self->k; i++)
            out[i] = out[i - self->k];
    }
    bp_free(query);
    bp_free(targets);
    return err;
}

/* ---- both ---- */

bp_err explain_nearest_open(explain_nearest **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model *model, const explain_nearest_spec *spec)
{
    explain_nearest *self = bp_alloc("explain.nearest", 1, sizeof *self);
    bp_err err;

    *self = (explain_nearest){.mesh = mesh, .path = spec->path, .k = spec->k};
    err = explain_nearest_of_documents(&model->info) ? open_vectors(self, config, model, spec)
                                                     : open_store(self, model);
    if (err != BP_OK)
        explain_nearest_close(&self);
    *out = self;
    return err;
}

void explain_nearest_close(explain_nearest **nearest)
{
    explain_nearest *self = *nearest;

    if (!self)
        return;
    bp_datastore_close(&self->store);
    bp_model_free(&self->headless);
    bp_free(self->starts);
    bp_free(self->vectors);
    bp_free(self);
    *nearest = NULL;
}

bp_err explain_nearest_find(explain_nearest *nearest, bp_model *model,
                            const bp_explain_settings *settings, const bp_explained *document,
                            explain_near *out)
{
    return nearest->headless ? search_vectors(nearest, settings, document, out)
                             : search_store(nearest, model, settings, document, out);
}
