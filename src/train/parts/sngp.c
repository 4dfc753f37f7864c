/* A Gaussian process after a fine-tuned network (SNGP): its keys, and the covariance of its
 * weights, by Laplace's method in one pass over the training documents. The pass runs before a
 * checkpoint that will be used, with that checkpoint's weights; at all other times the network has
 * no covariance. Called by task.c. */
#include "train/parts/sngp.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "math/scalapack/distributed.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"
#include "train/loop/examples.h"
#include "train/loop/start/corpora.h"
#include "train/loop/start/duration.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- keys ---- */

/* Keys that ask for another head, another loss, or other weights. */
static bp_err refuse_others(const trainer *self)
{
    const bp_config *config = self->config;
    bool samples = bp_optimizer_row_of(bp_optimizer_kind_of(config))->samples; /* of all weights */
    const struct {
        const char *key;
        bool given;
    } others[] = {{"dirichlet.outside", bp_task_keys_of(config)->outside != NULL},
                  {"task.lm_weight", bp_task_keys_of(config)->lm_weight > 0},
                  {"adapter.kind", self->shape.adapter.kind != BP_ADAPTER_NONE},
                  {"train.softmax_samples", bp_train_keys_of(config)->softmax_samples > 0},
                  {"train.dropconnect", bp_train_keys_of(config)->dropconnect > 0},
                  {"optimizer.kind", samples}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (others[k].given)
            return BP_FAIL(BP_ERR_CONFIG, "sngp.other_method",
                           "sngp.features = %" PRId64 " does not go with %s: at %s; leave one of "
                           "both out",
                           bp_task_keys_of(config)->features, others[k].key, others[k].key);
    return BP_OK;
}

bp_err sngp_shape(const trainer *self, bp_task_shape *task)
{
    const bp_task_keys *keys = bp_task_keys_of(self->config);
    int64_t width = self->shape.width;
    bp_err err = BP_OK;

    if (!bp_task_kind_has_classes(bp_task_kind_of(task)) || keys->features == 0)
        return BP_OK;
    if (!bp_distributed_library())
        err = BP_FAIL(BP_ERR_CONFIG, "build.no_scalapack",
                      "this build has no ScaLAPACK, which sngp.features needs: install it (Debian: "
                      "libscalapack-openmpi-dev), and build anew");
    else if (keys->features < task->outcomes)
        err = BP_FAIL(BP_ERR_CONFIG, "sngp.few_features",
                      "sngp.features = %" PRId64 " are too few for %" PRId64 " classes: at "
                      "sngp.features; use %" PRId64 " or more",
                      keys->features, task->outcomes, task->outcomes);
    else if (task->outcomes > width)
        err = BP_FAIL(BP_ERR_CONFIG, "sngp.many_classes",
                      "there are %" PRId64 " classes, and a Gaussian process has model.width = "
                      "%" PRId64 " at most: at sngp.features; use a wider model, or leave it out",
                      task->outcomes, width);
    else
        err = refuse_others(self);
    task->features = keys->features;
    task->length_scale = keys->length_scale > 0 ? keys->length_scale : sqrt((double)width);
    task->prior = keys->prior;
    task->bound = keys->bound;
    task->pooler_only = strcmp(keys->bounded, "pooler") == 0;
    return err;
}

/* The largest memory of a fit. */
static bp_err bytes_of(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    int64_t D = self->shape.task.features, K = self->shape.task.outcomes, T = mesh->tensor,
            classes = (K + mesh->data - 1) / mesh->data;

    (void)own;
    (void)stage;
    if (D > 0)
        *bytes = (size_t)(classes * ((D + T - 1) / T) * D) * sizeof(double) +
                 (size_t)(mesh->data * self->spec.micro_batch * (D + K) + D * D) * sizeof(float) +
                 (size_t)bp_distributed_bytes(D, D, mesh->pipeline * mesh->tensor);
    return BP_OK;
}

/* ---- the precision of each class's weights ---- */

/* State of a fit. A rank of the stage with the features has rows [first, first + rows) of the
 * precision of every data_ranks-th class from data_rank on. */
typedef struct fit {
    trainer *self;
    bp_block *block;                 /* NULL on other stages */
    int64_t D, K, each, first, rows; /* features, classes, texts of a pass; own rows */
    int64_t documents, classes;      /* classes of this data rank */
    bp_corpus *corpus;               /* on leads, as those below */
    bp_stream *stream;
    bp_document_table *table;
    float *texts;      /* [data_ranks][each][D + K] features and their weight in each class */
    double *precision; /* [classes][rows][D], at and above the diagonal */
} fit;

/* Laplace's method: a text has weight p (1 - p) in each class. */
static void see_features(void *context, const float *features, const float *logits, int64_t n)
{
    const fit *f = context;
    float *own = f->texts + f->self->mesh->data_rank * f->each * (f->D + f->K);

    for (int64_t b = 0; b < n; b++) {
        float *text = own + b * (f->D + f->K);
        const float *row = logits + b * f->K;
        double max = -INFINITY, sum = 0;

        memcpy(text, features + b * f->D, (size_t)f->D * sizeof *text);
        for (int64_t k = 0; k < f->K; k++)
            max = fmax(max, (double)row[k]);
        for (int64_t k = 0; k < f->K; k++)
            sum += exp((double)row[k] - max);
        for (int64_t k = 0; k < f->K; k++) {
            double p = exp((double)row[k] - max) / sum;
            text[f->D + k] = (float)(p * (1 - p));
        }
    }
}

/* Adds n texts in their order, from any rank. */
static void add_texts(const fit *f, const float *texts, int64_t n)
{
    int64_t D = f->D, columns = D + f->K;

#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < f->classes * f->rows; at++) {
        int64_t k = f->self->mesh->data_rank + at / f->rows * f->self->mesh->data_ranks,
                i = f->first + at % f->rows;
        double *row = f->precision + at * D;

        for (int64_t b = 0; b < n; b++) {
            const float *text = texts + b * columns;
            double weight = (double)text[D + k] * (double)text[i];

            for (int64_t j = i; j < D; j++)
                row[j] += weight * (double)text[j];
        }
    }
}

static int64_t texts_of(const fit *f, int64_t piece)
{
    int64_t left = f->documents - piece * f->each;

    return left < 0 ? 0 : left < f->each ? left : f->each;
}

static bp_err read_piece(const fit *f, int64_t piece, int64_t n)
{
    trainer *self = f->self;
    const bp_document *document;
    bp_err err = BP_OK;

    for (int64_t b = 0; b < n && err == BP_OK; b++) {
        err = bp_document_table_read(f->table, piece * f->each + b, NULL, &document);
        if (err == BP_OK)
            bp_example_make_document(&self->examples.maker, document, 0, piece * f->each + b,
                                     self->examples.buffer, n, b);
    }
    return err;
}

static void run_piece(const fit *f, int64_t n)
{
    trainer *self = f->self;
    double loss[BP_TERMS];
    int64_t count[BP_TERMS];

    if (n == 0)
        return;
    bp_bcast_bytes(self->examples.buffer, (int64_t)bp_batch_bytes(&self->examples.maker.form, n), 0,
                   self->mesh->model);
    bp_batch batch = bp_batch_over(&self->examples.maker.form, n, self->examples.buffer);
    bp_engine_evaluate(self->engine, &(bp_evaluation){.batch = &batch}, loss, count);
}

/* Each data rank has a piece of the documents at a time; all of them add up all pieces. */
static bp_err add_documents(fit *f)
{
    trainer *self = f->self;
    const bp_mesh *mesh = self->mesh;
    int64_t floats = f->each * (f->D + f->K), pieces = (f->documents + f->each - 1) / f->each;

    for (int64_t first = 0; first < pieces; first += mesh->data_ranks) {
        int64_t n = texts_of(f, first + mesh->data_rank);
        bp_err err;

        (void)bp_signals_stop_asked();
        bp_heartbeat_progress();
        err = bp_agree(mesh->compute,
                       self->data.leads ? read_piece(f, first + mesh->data_rank, n) : BP_OK);
        if (err != BP_OK)
            return err;
        run_piece(f, n);
        if (!f->block)
            continue;
        BP_MPI_WAIT("all_gather", MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, f->texts,
                                                bp_mpi_count(floats), MPI_FLOAT, mesh->data));
        for (int d = 0; d < mesh->data_ranks; d++)
            add_texts(f, f->texts + d * floats, texts_of(f, first + d));
    }
    return BP_OK;
}

/* ---- covariances ---- */

/* Broadcasts R of one class from the first rank of this copy of the model to all of its ranks. */
static bp_err share_factor(const fit *f, const bp_distributed *inverse, float *values)
{
    const bp_mesh *mesh = f->self->mesh;
    bool root = bp_comm_is_root(mesh->model);
    double *row = root ? bp_alloc("sngp", f->D, sizeof *row) : NULL;

    for (int64_t i = 0; i < f->D; i++) {
        bp_distributed_read(inverse, i, 1, row);
        for (int64_t j = 0; j < f->D && root; j++)
            values[i * f->D + j] = j < i ? 0 : (float)row[j];
    }
    bp_bcast_bytes(values, f->D * f->D * (int64_t)sizeof *values, 0, mesh->model);
    bp_free(row);
    return BP_OK;
}

/* The classes of this data rank, on all ranks of its copy. */
static bp_err invert(const fit *f, bp_grid *grid, const bp_placement *placement, float *values)
{
    const bp_mesh *mesh = f->self->mesh;
    bp_distributed *matrix = NULL;
    bp_err err = bp_distributed_new(&matrix, grid, f->D, f->D, 0);

    for (int64_t c = 0; c < f->classes && err == BP_OK; c++) {
        bp_distributed_take(matrix, placement, f->block ? f->precision + c * f->rows * f->D : NULL);
        err = bp_distributed_invert(matrix);
        if (err == BP_OK)
            err = share_factor(f, matrix, values);
        if (err == BP_OK && f->block)
            memcpy(bp_random_features_factor(f->block, mesh->data_rank + c * mesh->data_ranks),
                   values, (size_t)(f->D * f->D) * sizeof *values);
        bp_heartbeat_progress();
    }
    bp_distributed_free(&matrix);
    return err;
}

/* ScaLAPACK works over each copy of the model by itself, so that its sums do not depend on the
 * number of data ranks. */
static bp_err find_factors(const fit *f)
{
    const bp_mesh *mesh = f->self->mesh;
    float *values = bp_try_alloc("sngp", f->D * f->D, sizeof *values);
    bp_placement *placement = NULL;
    bp_grid *grid = NULL;
    bp_err err = values ? BP_OK
                        : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                                  "memory is short: at a covariance of %" PRId64 " x %" PRId64
                                  "; use a smaller sngp.features",
                                  f->D, f->D);

    err = bp_agree(mesh->compute, err);
    if (err == BP_OK)
        err = bp_grid_new(&grid, mesh->model);
    if (err == BP_OK)
        err = bp_placement_new(&placement, grid, f->block ? mesh->tensor_rank : -1,
                               f->block ? 0 : -1);
    if (err == BP_OK)
        err = invert(f, grid, placement, values);
    bp_placement_free(&placement);
    bp_grid_free(&grid);
    bp_free(values);
    err = bp_agree(mesh->compute, err);
    for (int64_t k = 0; k < f->K && f->block && err == BP_OK; k++)
        bp_bcast_bytes(bp_random_features_factor(f->block, k), f->D * f->D * (int64_t)sizeof(float),
                       (int)(k % mesh->data_ranks), mesh->data);
    return err;
}

/* ---- before a checkpoint ---- */

static bp_block *find_block(bp_network *network)
{
    for (int b = 0; b < network->block_count; b++)
        if (bp_is_random_features(network->blocks[b]))
            return network->blocks[b];
    return NULL;
}

/* The corpus is opened once more: the data loader's thread reads the other one. */
static bp_err open_documents(fit *f)
{
    const trainer *self = f->self;
    const bp_config *config = self->config;
    bp_err err = bp_corpus_open(&f->corpus, bp_corpus_keys_of(config)->train);

    if (err == BP_OK)
        err = bp_stream_new(&f->stream,
                            &(bp_stream_spec){.corpus = f->corpus,
                                              .bag = trainer_bags(config),
                                              .seed = (uint64_t)bp_run_keys_of(config)->seed,
                                              .member = bp_corpus_keys_of(config)->member,
                                              .cluster = bp_corpus_keys_of(config)->cluster});
    if (err == BP_OK)
        err = bp_trainer_open_table(self, f->stream, &f->table);
    if (err == BP_OK)
        f->documents = bp_document_table_count(f->table);
    return err;
}

/* The precision begins with the prior's. */
static bp_err open_precision(fit *f)
{
    const bp_mesh *mesh = f->self->mesh;
    int64_t part = (f->D + mesh->tensor_ranks - 1) / mesh->tensor_ranks;

    f->classes = (f->K - mesh->data_rank + mesh->data_ranks - 1) / mesh->data_ranks;
    if (!f->block)
        return BP_OK;
    f->first = mesh->tensor_rank * part < f->D ? mesh->tensor_rank * part : f->D;
    f->rows = f->D - f->first < part ? f->D - f->first : part;
    f->texts = bp_try_alloc("sngp", mesh->data_ranks * f->each * (f->D + f->K), sizeof *f->texts);
    f->precision = bp_try_alloc("sngp", f->classes * f->rows * f->D + 1, sizeof *f->precision);
    if (!f->texts || !f->precision)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the precision of %" PRId64 " classes in %" PRId64
                       " features; use a smaller sngp.features, or more ranks",
                       f->classes, f->D);
    for (int64_t at = 0; at < f->classes * f->rows; at++)
        f->precision[at * f->D + f->first + at % f->rows] = f->self->shape.task.prior;
    return BP_OK;
}

static bp_err run_fit(fit *f)
{
    const bp_mesh *mesh = f->self->mesh;
    const bp_feature_watch watch = {see_features, f};
    bp_err err = f->self->data.leads ? open_documents(f) : BP_OK;

    if (err == BP_OK)
        err = open_precision(f);
    err = bp_agree(mesh->compute, err);
    f->documents = bp_all_max_int(f->documents, mesh->compute);
    if (err == BP_OK) {
        if (f->block)
            bp_random_features_watch(f->block, &watch);
        err = add_documents(f);
        if (f->block)
            bp_random_features_watch(f->block, NULL);
    }
    return err == BP_OK ? find_factors(f) : err;
}

static bool is_due(const trainer *self, bool best)
{
    return self->shape.task.features > 0 && (best || bp_trainer_is_done(self));
}

static void put_state(const trainer *self, const void *own, bool best, json_t *state)
{
    json_t *model = json_object_get(state, "model");

    (void)own;
    if (is_due(self, best))
        (void)json_object_set_new(json_object_get(model, "sngp"), "fitted", json_true());
}

/* At a new best, or at the end: computes the covariance of the weights, which the network keeps
 * until `forget`. */
static bp_err fit_weights(trainer *self, void *own, bool best)
{
    fit f = {.self = self,
             .D = self->shape.task.features,
             .K = self->shape.task.outcomes,
             .each = self->spec.micro_batch};
    bp_phase before;
    double began = bp_clock_now();
    bp_err err;

    (void)own;
    if (!is_due(self, best))
        return BP_OK;
    before = bp_heartbeat_phase(BP_PHASE_VALIDATE);
    f.block = find_block(bp_engine_network(self->engine));
    err = run_fit(&f);
    bp_free(f.texts);
    bp_free(f.precision);
    bp_document_table_free(&f.table);
    bp_stream_free(&f.stream);
    bp_corpus_close(&f.corpus);
    if (err == BP_OK && self->mesh->coordinates)
        bp_log("the covariance of %" PRId64 " x %" PRId64 " weights, from %" PRId64
               " documents: %.1f s",
               f.K, f.D, f.documents, bp_clock_now() - began);
    (void)bp_heartbeat_phase(before);
    return err;
}

static bp_err forget(trainer *self, void *own)
{
    bp_block *block = self->shape.task.features > 0 && self->engine
                          ? find_block(bp_engine_network(self->engine))
                          : NULL;
    int64_t D = self->shape.task.features;

    (void)own;
    if (block)
        bp_zero(bp_random_features_factor(block, 0), self->shape.task.outcomes * D * D);
    return BP_OK;
}

const bp_training_part training_sngp = {
    .name = "covariance",
    .memory = "of a Gaussian process, before a checkpoint",
    .bytes = bytes_of,
    .at = {[PART_LOADED] = forget, [PART_COMMITTED] = forget},
    .before_commit = fit_weights,
    .put_state = put_state,
};
