/* :mahalanobis, one model whose documents also have the distance of their state from those of the
 * nearest class: the class means and the shared covariance of the states of corpus.train.
 *
 * Source: Lee et al. 2018, "A simple unified framework for detecting out-of-distribution samples
 * and adversarial attacks", equations 1 and 2, of the last layer's states, without noise on inputs.
 */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "data/corpus.h"
#include "infer/score/each.h"
#include "io/h5/h5.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/open.h"
#include "run/stop_request.h"
#include "uncertainty/methods/list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KIND    "mahalanobis"
#define VERSION 1
#define RIDGE                                                                                      \
    1e-6 /* of the mean variance, added to each: so that few documents leave no direction without  \
            variance */

const bp_option bp_mahalanobis_method_options[] = {{.key = NULL}};

/* ---- fitted values ---- */

typedef struct distances {
    int64_t K, C, documents;
    char model_digest[BP_SHA256_HEX], digest[BP_SHA256_HEX];
    double *whitening; /* [C][C] lower triangular W, W^T W the inverse covariance */
    double *means;     /* [K][C] W times the mean of a class; NaN if it has no document */
} distances;

static void clear(distances *self)
{
    bp_free(self->whitening);
    bp_free(self->means);
    *self = (distances){0};
}

static bp_err allocate(distances *self)
{
    self->whitening = bp_try_alloc("uncertainty.distances", self->C * self->C, sizeof(double));
    self->means = bp_try_alloc("uncertainty.distances", self->K * self->C, sizeof(double));
    return self->whitening && self->means
               ? BP_OK
               : bp_fail_memory("a covariance", self->C * self->C, sizeof(double));
}

static bp_err save(const distances *self, const char *path)
{
    bp_h5_draft draft = {0};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);
    bp_h5 *out = draft.file;

    if (err == BP_OK)
        err = bp_h5_put_int(out, "/", "classes", self->K);
    if (err == BP_OK)
        err = bp_h5_put_int(out, "/", "width", self->C);
    if (err == BP_OK)
        err = bp_h5_put_int(out, "/", "documents", self->documents);
    if (err == BP_OK)
        err = bp_h5_put_text(out, "/", "model_digest", self->model_digest);
    if (err == BP_OK)
        err = bp_h5_put_text(out, "/", "digest", self->digest);
    if (err == BP_OK)
        err = bp_h5_write(out, "whitening", BP_H5_F64, self->whitening, self->C * self->C);
    if (err == BP_OK)
        err = bp_h5_write(out, "means", BP_H5_F64, self->means, self->K * self->C);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, KIND, VERSION);
    bp_h5_draft_end(&draft);
    return err;
}

static bp_err read_values(distances *self, bp_h5 *in)
{
    bp_h5_shape whitening, means;
    bp_err err = bp_h5_get_int(in, "/", "classes", &self->K);

    if (err == BP_OK)
        err = bp_h5_get_int(in, "/", "width", &self->C);
    if (err == BP_OK)
        err = bp_h5_get_int(in, "/", "documents", &self->documents);
    if (err == BP_OK)
        err = bp_h5_get_text(in, "/", "model_digest", self->model_digest, BP_SHA256_HEX);
    if (err == BP_OK)
        err = bp_h5_get_text(in, "/", "digest", self->digest, BP_SHA256_HEX);
    if (err == BP_OK)
        err = bp_h5_shape_of(in, "whitening", &whitening);
    if (err == BP_OK)
        err = bp_h5_shape_of(in, "means", &means);
    if (err == BP_OK && (self->K < 1 || self->C < 1 || self->C > INT32_MAX || self->K > INT32_MAX ||
                         whitening.count != self->C * self->C || means.count != self->K * self->C))
        err = BP_FAIL(BP_ERR_FORMAT, "mahalanobis.damaged",
                      "damaged: its means and its covariance do not fit: at %s; remove it, and it "
                      "is made anew",
                      bp_h5_path(in));
    if (err == BP_OK)
        err = allocate(self);
    if (err == BP_OK)
        err = bp_h5_read(in, "whitening", BP_H5_F64, 0, self->whitening, self->C * self->C);
    return err == BP_OK ? bp_h5_read(in, "means", BP_H5_F64, 0, self->means, self->K * self->C)
                        : err;
}

static bp_err load(distances *self, const char *path)
{
    bp_h5 *in = NULL;
    bp_err err = bp_h5_open_kind(&in, path, KIND, VERSION);

    *self = (distances){0};
    if (err == BP_OK)
        err = read_values(self, in);
    bp_h5_drop(&in);
    return err;
}

/* ---- the member ---- */

typedef struct measured {
    bp_member_sampler sampler;
    char *path;
    distances fitted;
    double *white; /* [C] of a row */
} measured;

static bp_err open_sampler(bp_member_sampler *sampler, MPI_Comm comm)
{
    measured *self = (measured *)sampler;
    bp_err err;

    clear(&self->fitted);
    err = bp_agree(comm, load(&self->fitted, self->path));
    bp_free(self->white);
    self->white =
        err == BP_OK ? bp_alloc("uncertainty.distances", self->fitted.C, sizeof(double)) : NULL;
    return err;
}

static bp_err check_sampler(const bp_member_sampler *sampler, const bp_model_info *model,
                            const char *path)
{
    const measured *self = (const measured *)sampler;

    if (strcmp(self->fitted.model_digest, model->digest) == 0 && self->fitted.C == model->width &&
        self->fitted.K == model->vocab_size)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "mahalanobis.other_model",
                   "the class means are of another model than %s: at %s; remove that file, and "
                   "they are made anew",
                   path, self->path);
}

static void identify(const bp_member_sampler *sampler, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "mahalanobis %s", ((const measured *)sampler)->fitted.digest);
}

/* out[r] = min_k |W (h_r - mean_k)|^2 */
static void measure(bp_member_sampler *sampler, const float *hidden, int64_t rows, int64_t width,
                    float *out)
{
    const measured *self = (const measured *)sampler;
    const distances *of = &self->fitted;

    for (int64_t r = 0; r < rows; r++) {
        double least = INFINITY;

        for (int64_t i = 0; i < of->C; i++) {
            self->white[i] = 0;
            for (int64_t j = 0; j <= i; j++)
                self->white[i] += of->whitening[i * of->C + j] * (double)hidden[r * width + j];
        }
        for (int64_t k = 0; k < of->K; k++) {
            double sum = 0;

            for (int64_t i = 0; i < of->C; i++) {
                double gap = self->white[i] - of->means[k * of->C + i];

                sum += gap * gap;
            }
            least = sum < least ? sum : least; /* a class without documents has NaN */
        }
        out[r] = (float)least;
    }
}

static int64_t bytes_of(const bp_member_sampler *sampler, const bp_model_memory *model,
                        const bp_mesh_shape *mesh)
{
    (void)sampler, (void)mesh;
    return (model->width + 2 + model->vocab_size) * model->width * (int64_t)sizeof(double);
}

static void free_sampler(bp_member_sampler *sampler)
{
    measured *self = (measured *)sampler;

    if (!self)
        return;
    clear(&self->fitted);
    bp_free(self->white);
    bp_free(self->path);
    bp_free(self);
}

static const bp_member_sampler_ops SAMPLER = {.word = "mahalanobis",
                                              .member = "model",
                                              .kind = BP_MEMBER_HEADS,
                                              .open = open_sampler,
                                              .check = check_sampler,
                                              .identify = identify,
                                              .distance = measure,
                                              .bytes = bytes_of,
                                              .free = free_sampler};

static bp_member_sampler *new_sampler(const bp_method_case *at)
{
    measured *self = bp_alloc("uncertainty.distances", 1, sizeof *self);

    *self = (measured){.sampler = {&SAMPLER, 1}, .path = bp_strdup(at->fitted)};
    return &self->sampler;
}

/* ---- the fit: sums over documents ---- */

typedef struct sums {
    const bp_method_fit *fit;
    bp_model *model;
    bool adds; /* this rank's states are counted */
    float *states;
    int64_t capacity; /* positions */
    int64_t seen, expected;
    int64_t K, C;
    double *all; /* [C][C] of products, [K][C] of states, [K] documents */
} sums;

static int64_t values_of(const sums *self)
{
    return self->C * self->C + self->K * self->C + self->K;
}

static void add_state(sums *self, const float *state, int32_t label)
{
    int64_t C = self->C;
    double *means = self->all + C * C;

#pragma omp parallel for schedule(static) if (C > 128)
    for (int64_t i = 0; i < C; i++)
        for (int64_t j = 0; j <= i; j++)
            self->all[i * C + j] += (double)state[i] * (double)state[j];
    for (int64_t i = 0; i < C; i++)
        means[label * C + i] += (double)state[i];
    means[self->K * C + label]++;
}

static bp_err take_batch(void *context, int64_t unit, const bp_model_batch *batch)
{
    sums *self = context;
    int64_t positions = batch->windows * batch->length;
    bp_err err = BP_OK;

    (void)unit;
    if (positions > self->capacity) {
        bp_free(self->states);
        self->states = bp_try_alloc("uncertainty.distances", positions * self->C, sizeof(float));
        self->capacity = self->states ? positions : 0;
        err = self->states ? BP_OK : bp_fail_memory("states", positions * self->C, sizeof(float));
    }
    err = bp_agree(self->fit->mesh->replica, err);
    if (err == BP_OK)
        err = self->model->ops->backbone(self->model, batch, BP_MODEL_NO_DROPOUT, self->states);
    err = bp_agree(self->fit->mesh->replica, err);
    for (int64_t t = 0; err == BP_OK && t < positions; t++)
        if (batch->targets[t] >= 0) {
            self->seen++;
            if (self->adds)
                add_state(self, self->states + t * self->C, batch->targets[t]);
        }
    return err;
}

static bp_err poll_stop(void *context)
{
    const sums *self = context;
    const bp_mesh *mesh = self->fit->mesh;
    const bp_fit_listener *listener = self->fit->listener;
    double share = (double)self->seen * mesh->data_ranks / (double)self->expected;
    bp_fit_progress progress = {1, 1, "states of the documents", share < 1 ? share : 1, NAN};
    bool stop = bp_signals_stop_asked();

    if (bp_comm_is_root(mesh->compute) && listener &&
        listener->update(listener->context, &progress))
        stop = true;
    return stop ? bp_stop_request_stopped("while class means were fitted") : BP_OK;
}

/* The sums become means of classes and the covariance around them. */
static void center(const sums *self)
{
    int64_t C = self->C, K = self->K;
    double *means = self->all + C * C, *counts = means + K * C, N = 0, trace = 0;

    for (int64_t k = 0; k < K; k++) {
        N += counts[k];
        for (int64_t i = 0; i < C; i++)
            means[k * C + i] /= counts[k]; /* NaN if there is none */
    }
    for (int64_t i = 0; i < C; i++)
        for (int64_t j = 0; j <= i; j++) {
            double *sum = &self->all[i * C + j];

            for (int64_t k = 0; k < K; k++)
                *sum -= counts[k] > 0 ? counts[k] * means[k * C + i] * means[k * C + j] : 0;
            *sum /= N;
            trace += i == j ? *sum : 0;
        }
    for (int64_t i = 0; i < C; i++)
        self->all[i * C + i] += RIDGE * trace / (double)C;
}

/* a[C][C], its lower triangle, becomes L with L L^T = a. Source: Golub and Van Loan 2013, 4.2.5. */
static bool factorise(double *a, int64_t C)
{
    for (int64_t j = 0; j < C; j++) {
        for (int64_t k = 0; k < j; k++)
            a[j * C + j] -= a[j * C + k] * a[j * C + k];
        if (!(a[j * C + j] > 0))
            return false;
        a[j * C + j] = sqrt(a[j * C + j]);
#pragma omp parallel for schedule(static) if (C > 128)
        for (int64_t i = j + 1; i < C; i++) {
            for (int64_t k = 0; k < j; k++)
                a[i * C + j] -= a[i * C + k] * a[j * C + k];
            a[i * C + j] /= a[j * C + j];
        }
    }
    return true;
}

/* out = the inverse of the lower triangle of l: columns are independent. */
static void invert(double *out, const double *l, int64_t C)
{
    memset(out, 0, (size_t)(C * C) * sizeof *out);
#pragma omp parallel for schedule(dynamic, 8) if (C > 128)
    for (int64_t j = 0; j < C; j++)
        for (int64_t i = j; i < C; i++) {
            double sum = i == j;

            for (int64_t k = j; k < i; k++)
                sum -= l[i * C + k] * out[k * C + j];
            out[i * C + j] = sum / l[i * C + i];
        }
}

static bp_err find_distances(distances *out, const sums *self, const char *corpus)
{
    int64_t C = self->C, K = self->K;
    const double *means = self->all + C * C, *counts = means + K * C;
    bp_err err;

    out->K = K;
    out->C = C;
    center(self);
    for (int64_t k = 0; k < K; k++)
        out->documents += (int64_t)counts[k];
    if (out->documents == 0 || !factorise(self->all, C))
        return BP_FAIL(BP_ERR_FORMAT, "mahalanobis.no_covariance",
                       "the states of %" PRId64 " predictions have no covariance: at %s; give the "
                       "corpus that the model was trained on",
                       out->documents, corpus);
    err = allocate(out);
    if (err != BP_OK)
        return err;
    invert(out->whitening, self->all, C);
    for (int64_t k = 0; k < K; k++)
        for (int64_t i = 0; i < C; i++) {
            out->means[k * C + i] = counts[k] > 0 ? 0 : NAN;
            for (int64_t j = 0; j <= i && counts[k] > 0; j++)
                out->means[k * C + i] += out->whitening[i * C + j] * means[k * C + j];
        }
    return BP_OK;
}

/* Digest of everything that determines the sums. On rank 0 of mesh->compute. */
static bp_err name_fit(distances *out, sums *self, const char *corpus_path)
{
    bp_corpus *corpus = NULL;
    bp_precision precision;
    bp_err err = bp_corpus_open(&corpus, corpus_path);

    if (err == BP_OK)
        err = bp_math_precision(self->fit->config, &precision);
    if (err == BP_OK) {
        char *text = bp_sprintf("mahalanobis 1\nmodel %s\ncorpus %s\nprecision %s\n",
                                self->model->info.digest, bp_corpus_hash(corpus),
                                precision == BP_BF16 ? "bf16" : "f32");

        bp_sha256_of(text, strlen(text), out->digest);
        (void)snprintf(out->model_digest, sizeof out->model_digest, "%s", self->model->info.digest);
        self->expected = bp_corpus_documents(corpus);
        bp_free(text);
    }
    bp_corpus_close(&corpus);
    return err;
}

/* A finished file of the same fit. */
static bool is_there(const char *path, distances *named)
{
    distances found = {0};
    bool is = bp_path_exists(path) && load(&found, path) == BP_OK &&
              strcmp(found.digest, named->digest) == 0;

    if (is)
        named->documents = found.documents;
    clear(&found);
    return is;
}

/* Sums of all data ranks, and the file. */
static bp_err fit_anew(const bp_method_case *at, sums *self, distances *out)
{
    const bp_mesh *mesh = self->fit->mesh;
    const char *corpus = bp_corpus_keys_of(at->config)->train;
    bp_score_each each = {.mesh = mesh,
                          .model = &self->model->info,
                          .corpus = corpus,
                          .path = at->path,
                          .batch = take_batch,
                          .poll = poll_stop,
                          .context = self};
    int64_t scored = 0;
    bool root = bp_comm_is_root(mesh->compute);
    bp_err err;

    self->all = bp_try_alloc("uncertainty.distances", values_of(self), sizeof(double));
    err = bp_agree(mesh->compute,
                   self->all ? BP_OK
                             : bp_fail_memory("a covariance", values_of(self), sizeof(double)));
    if (err == BP_OK)
        err = bp_score_each_batch(&each, &scored);
    if (err == BP_OK)
        bp_all_sum_double(self->all, values_of(self), mesh->compute);
    if (err == BP_OK && root)
        err = find_distances(out, self, corpus);
    if (err == BP_OK && root)
        err = save(out, at->fitted);
    return bp_agree(mesh->compute, err);
}

static bp_err fit_model(const bp_method_case *at, sums *self, bp_fit_report *report)
{
    const bp_mesh *mesh = self->fit->mesh;
    distances out = {0};
    double start = bp_clock_now();
    bool root = bp_comm_is_root(mesh->compute),
         last = mesh->pipeline_rank == mesh->pipeline_ranks - 1;
    bp_err err = bp_agree(
        mesh->compute, root ? name_fit(&out, self, bp_corpus_keys_of(at->config)->train) : BP_OK);

    self->adds = last && mesh->tensor_rank == 0 && mesh->member_index == 0;
    self->K = self->model->info.vocab_size;
    self->C = self->model->info.width;
    report->reused = err == BP_OK && root && is_there(at->fitted, &out);
    bp_bcast_bytes(&report->reused, sizeof report->reused, 0, mesh->compute);
    bp_bcast_bytes(&self->expected, sizeof self->expected, 0, mesh->compute);
    if (err == BP_OK && !report->reused)
        err = fit_anew(at, self, &out);
    report->seconds = report->reused ? 0 : bp_clock_now() - start;
    report->count = 1;
    (void)snprintf(report->figures[0].key, sizeof report->figures[0].key, "predictions");
    report->figures[0].value = (double)out.documents;
    (void)snprintf(report->summary, sizeof report->summary,
                   "means of %" PRId64 " classes, covariance of %" PRId64 " numbers, from %" PRId64
                   " predictions",
                   self->K, self->C, out.documents);
    bp_bcast_bytes(report, sizeof *report, 0, mesh->compute);
    clear(&out);
    return err;
}

static bp_err fit(const bp_method_case *at, const bp_method_fit *fit, bp_fit_report *report)
{
    sums self = {.fit = fit};
    bp_err err =
        bp_agree(fit->mesh->compute, bp_model_open(&self.model, fit->mesh, fit->config, at->path));

    *report = (bp_fit_report){0};
    if (err == BP_OK)
        err = fit_model(at, &self, report);
    bp_model_free(&self.model);
    bp_free(self.states);
    bp_free(self.all);
    return err;
}

/* ---- the row of the table ---- */

static void check(bp_config *config)
{
    if (!bp_config_is_set(config, "corpus.train"))
        bp_config_fault(config, "mahalanobis.no_corpus",
                        "a model with :mahalanobis, but no corpus.train: at uncertainty.models; "
                        "name the corpus that it was trained on");
}

static bp_err suits(const bp_method_case *at)
{
    const bp_task_kind *kind = bp_task_kind_of(at->task);

    if (bp_task_has_head(at->task) && kind->has_names && at->task->features == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "mahalanobis.no_classes",
                   "method %s has %s, and :mahalanobis is of the states before a linear map to "
                   "classes or tags: at %s; leave :mahalanobis out",
                   at->name,
                   at->task->features > 0 ? "a Gaussian process, which has a distance of its own"
                                          : "no classes",
                   at->path);
}

static void warn(const bp_method_case *at)
{
    if (at->trained_on[0] && at->train_hash[0] && strcmp(at->trained_on, at->train_hash) != 0)
        BP_WARN("mahalanobis.other_corpus",
                "method %s was trained on another corpus than corpus.train, whose states its "
                "distances are from: at %s; name the corpus of its training",
                at->name, bp_corpus_keys_of(at->config)->train);
}

static int64_t fit_bytes(const bp_method_case *at, const bp_mesh_shape *shape)
{
    (void)shape;
    return (2 * at->width + 2 * at->outcomes) * at->width * (int64_t)sizeof(double);
}

static void print_plan(const bp_method_case *at, int64_t bytes)
{
    (void)at;
    bp_log("  the covariance before takes %.1f MiB on a rank besides the model",
           (double)bytes / 1048576);
}

const bp_uncertainty_method bp_mahalanobis_method = {.word = "mahalanobis",
                                                     .check = check,
                                                     .suits = suits,
                                                     .warn = warn,
                                                     .sampler = new_sampler,
                                                     .fit = fit,
                                                     .fit_bytes = fit_bytes,
                                                     .print_plan = print_plan};
