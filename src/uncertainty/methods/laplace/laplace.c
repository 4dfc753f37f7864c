/* The Laplace approximation of the last layer, step by step: states of a sample of tokens,
 * curvature factors, the prior, samples of the head. Called by methods/laplace.c, once per fit. */
#include "uncertainty/methods/laplace/laplace_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/process/clock.h"
#include "data/corpus.h"
#include "data/pairs.h"
#include "infer/score/score.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define READ_VALUES ((int64_t)1 << 16) /* of the last matrix, at a time */
#define DRAWS       4                  /* how samples are made: another number, other samples */

/* A running fit. */
typedef struct fit {
    const bp_mesh *mesh;
    const bp_config *config;
    bp_model *model;
    const char *corpus, *out_path;
    const bp_laplace_spec *spec;
    bp_laplace_report *report;
    bool roots; /* rank 0 of mesh->compute: reads and writes files */
    bool ends;  /* the corpus has end-of-document tokens */
    laplace_course course;
} fit;

/* ---- before any compute ---- */

static bp_err check_model(const bp_model *model)
{
    if (!model->ops->backbone || !model->ops->logits || !model->ops->head_weights)
        return BP_FAIL(BP_ERR_CONFIG, "laplace.wrong_kind",
                       "a model of kind %s has no last linear map for the Laplace approximation: "
                       "give a checkpoint of one network",
                       model->info.kind);
    if (model->info.log_probabilities || model->info.capped_logits)
        return BP_FAIL(BP_ERR_CONFIG, "laplace.wrong_head",
                       "the Laplace approximation is of a softmax of one linear map, which the "
                       "model's head is not: at head.softmaxes, head.activation or a cap of "
                       "logits; give a checkpoint without it");
    if (model->info.vocab_size > BP_LAPLACE_VOCAB_MAX)
        return BP_FAIL(BP_ERR_CONFIG, "laplace.vocabulary_too_large",
                       "a vocabulary of %" PRId64
                       " is more than %d, for which the Laplace approximation is made (its output "
                       "factor has the square of that): leave it out, or train a tokenizer with "
                       "--size %d",
                       model->info.vocab_size, BP_LAPLACE_VOCAB_MAX, BP_LAPLACE_VOCAB_MAX);
    return BP_OK;
}

/* Its data are then documents, not tokens. */
static bool is_of_task(const fit *self)
{
    return bp_task_has_head(&self->model->info.task);
}

/* Targets: documents of a task, tokens of pairs' targets, or all tokens. */
static bp_err count_data(const fit *self, const bp_corpus *corpus, int64_t *targets)
{
    const bp_pairs_rule rule = {INT64_MAX, bp_corpus_eod(corpus) >= 0, -1};
    bp_pair_counts counts = {0};
    bp_err err = BP_OK;

    if (!self->model->info.reads_source) {
        *targets = is_of_task(self) ? bp_corpus_documents(corpus) : bp_corpus_tokens(corpus);
        return BP_OK;
    }
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++)
        err = bp_pairs_count(bp_corpus_file_at(corpus, k), &rule, &counts);
    *targets = counts.targets;
    return err;
}

/* The corpus's size, and the digest of everything that determines the samples. */
static bp_err look_at_corpus(fit *self)
{
    const bp_laplace_spec *spec = self->spec;
    bp_corpus *corpus = NULL;
    bp_precision precision;
    bp_err err = self->roots ? bp_corpus_open(&corpus, self->corpus) : BP_OK;

    if (err == BP_OK && self->roots)
        err = bp_math_precision(self->config, &precision);
    if (err == BP_OK && self->roots)
        err = count_data(self, corpus, &self->report->data_tokens);
    if (err == BP_OK && self->roots) {
        self->ends = bp_corpus_eod(corpus) >= 0;
        char *text = bp_sprintf("laplace %d\nmodel %s\ncorpus %s\nprecision %s\ntokens %" PRId64
                                "\nsamples %" PRId64 "\ntau %.17g\nseed %" PRIu64 "\n",
                                DRAWS, self->model->info.digest, bp_corpus_hash(corpus),
                                precision == BP_BF16 ? "bf16" : "f32", spec->tokens, spec->samples,
                                spec->tau, spec->seed);
        bp_sha256_of(text, strlen(text), self->report->digest);
        bp_free(text);
    }
    bp_corpus_close(&corpus);
    err = bp_agree(self->mesh->compute, err);
    bp_bcast_bytes(self->report, sizeof *self->report, 0, self->mesh->compute);
    bp_bcast_bytes(&self->ends, sizeof self->ends, 0, self->mesh->compute);
    return err;
}

/* ---- the report, as in the file ---- */

static void write_notes(const bp_laplace_report *report, char *notes, size_t bytes)
{
    int length = snprintf(notes, bytes,
                          "{\"tokens\": %" PRId64 ", \"data_tokens\": %" PRId64
                          ", \"tau\": %.17g, \"log_likelihood\": %.17g, \"log_evidence\": %.17g, "
                          "\"effective_parameters\": %.17g, \"factor_seconds\": %.3f, "
                          "\"eigen_seconds\": %.3f, \"prior_seconds\": %.3f}",
                          report->tokens, report->data_tokens, report->tau, report->log_likelihood,
                          report->log_evidence, report->effective_parameters,
                          report->factor_seconds, report->eigen_seconds, report->prior_seconds);

    BP_ASSERT(length > 0 && (size_t)length < bytes);
}

static bp_err read_notes(bp_laplace_report *report, const char *notes, const char *path)
{
    const struct {
        const char *key;
        double *to;
    } reals[] = {{"tau", &report->tau},
                 {"log_likelihood", &report->log_likelihood},
                 {"log_evidence", &report->log_evidence},
                 {"effective_parameters", &report->effective_parameters},
                 {"factor_seconds", &report->factor_seconds},
                 {"eigen_seconds", &report->eigen_seconds},
                 {"prior_seconds", &report->prior_seconds}};
    json_t *root = NULL;
    bp_err err = bp_json_parse(&root, notes, strlen(notes), path);

    if (err == BP_OK)
        err = bp_json_get_int(root, "tokens", &report->tokens, path);
    if (err == BP_OK)
        err = bp_json_get_int(root, "data_tokens", &report->data_tokens, path);
    for (size_t k = 0; err == BP_OK && k < sizeof reals / sizeof reals[0]; k++)
        err = bp_json_get_real(root, reals[k].key, reals[k].to, path);
    json_decref(root);
    return err;
}

/* Is there a finished file of this fit? A damaged file, or one of another fit, is made again. */
static void find_finished(const fit *self)
{
    bp_laplace_report found = *self->report;
    bp_head_samples *file = NULL;

    if (self->roots && bp_path_exists(self->out_path) &&
        bp_head_samples_open(&file, MPI_COMM_SELF, self->out_path) == BP_OK) {
        const bp_head_samples_info *info = bp_head_samples_info_of(file);

        if (strcmp(info->digest, found.digest) == 0 &&
            read_notes(&found, info->notes, self->out_path) == BP_OK) {
            found.reused = true;
            *self->report = found;
        }
    }
    bp_head_samples_close(&file);
    bp_bcast_bytes(self->report, sizeof *self->report, 0, self->mesh->compute);
}

/* ---- the matrix ---- */

/* W as a matrix over ranks, from the tensor ranks of one copy's last stage. */
static bp_err spread_weights(const fit *self, bp_grid *grid, bp_distributed *matrix)
{
    const bp_mesh *mesh = self->mesh;
    const bp_model_info *info = &self->model->info;
    bool gives = mesh->pipeline_rank == mesh->pipeline_ranks - 1 && mesh->data_rank == 0 &&
                 mesh->member_index == 0;
    int64_t own = gives ? info->vocab_count * info->width : 0;
    const float *values = own > 0 ? self->model->ops->head_weights(self->model) : NULL;
    double *rows = bp_try_alloc("uncertainty.laplace", own > 0 ? own : 1, sizeof *rows);
    bp_placement *placement = NULL;
    bp_err err =
        rows ? BP_OK
             : BP_FAIL(BP_ERR_SYSTEM, "memory.short", "memory is short: at the last matrix");

    err = bp_agree(mesh->compute, err);
    if (err == BP_OK)
        err = bp_placement_new(&placement, grid, gives ? mesh->tensor_rank : -1, gives ? 0 : -1);
    if (err == BP_OK) {
        for (int64_t i = 0; i < own; i++)
            rows[i] = (double)values[i];
        bp_distributed_take(matrix, placement, rows);
    }
    bp_placement_free(&placement);
    bp_free(rows);
    return err;
}

/* W, whole, on the root; |W|^2 on all ranks. */
static bp_err gather_weights(const fit *self, bp_grid *grid, float *weights, double *square)
{
    MPI_Comm comm = self->mesh->compute;
    int64_t V = self->model->info.vocab_size, C = self->model->info.width;
    int64_t block = READ_VALUES / C > 1 ? READ_VALUES / C : 1;
    double *rows = bp_alloc("uncertainty.laplace", block * C, sizeof *rows);
    bp_distributed *matrix = NULL;
    bp_err err = bp_distributed_new(&matrix, grid, V, C, 0);

    if (err == BP_OK)
        err = spread_weights(self, grid, matrix);
    *square = 0;
    for (int64_t first = 0; err == BP_OK && first < V; first += block) {
        int64_t count = V - first < block ? V - first : block;

        bp_distributed_read(matrix, first, count, rows);
        for (int64_t i = 0; self->roots && i < count * C; i++) {
            weights[first * C + i] = (float)rows[i];
            *square += rows[i] * rows[i];
        }
    }
    if (err == BP_OK)
        bp_bcast_bytes(square, sizeof *square, 0, comm);
    bp_distributed_free(&matrix);
    bp_free(rows);
    return err;
}

/* ---- the fit ---- */

static bp_err choose_prior(const fit *self, laplace_evidence *evidence)
{
    bp_laplace_report *report = self->report;
    double start = bp_clock_now();
    bp_err err = laplace_evidence_open(evidence);

    report->tau = self->spec->tau;
    if (err == BP_OK && !(report->tau > 0))
        err = bp_agree(self->mesh->compute, laplace_best_tau(&report->tau, evidence));
    if (err == BP_OK) {
        bp_bcast_bytes(&report->tau, sizeof report->tau, 0, self->mesh->compute);
        report->log_evidence = report->log_likelihood + laplace_log_evidence(evidence, report->tau);
        report->effective_parameters = laplace_effective_parameters(evidence, report->tau);
        report->prior_seconds = bp_clock_now() - start;
    }
    laplace_evidence_close(evidence);
    return err;
}

static bp_err draw_into_file(const fit *self, const laplace_draw *draw)
{
    bp_laplace_report *report = self->report;
    bp_head_samples_info info = {
        .samples = self->spec->samples, .vocab_size = draw->spectra->V, .width = draw->spectra->C};
    bp_head_samples *file = NULL;
    double start = bp_clock_now();
    bp_err err = BP_OK;

    if (self->roots) {
        snprintf(info.model_digest, sizeof info.model_digest, "%s", self->model->info.digest);
        snprintf(info.digest, sizeof info.digest, "%s", report->digest);
        write_notes(report, info.notes, sizeof info.notes);
        err = bp_head_samples_create(&file, self->out_path, &info);
    }
    err = bp_agree(self->mesh->compute, err);
    if (err == BP_OK)
        err = laplace_draw_samples(draw, self->mesh->compute, file, self->spec->samples);
    if (err == BP_OK)
        err = bp_agree(self->mesh->compute, self->roots ? bp_head_samples_commit(&file) : BP_OK);
    bp_head_samples_close(&file);
    report->sample_seconds = bp_clock_now() - start;
    return err;
}

/* From factors to the file. The factors are freed on the way. */
static bp_err fit_posterior(fit *self, laplace_factors *factors, float *weights)
{
    bp_laplace_report *report = self->report;
    laplace_spectra spectra = {0};
    double square = 0, start = bp_clock_now();
    bp_err err = gather_weights(self, factors->grid, weights, &square);

    if (err == BP_OK)
        err = laplace_spectra_init(&spectra, factors, &self->course);
    report->eigen_seconds = bp_clock_now() - start;
    if (err == BP_OK)
        err = choose_prior(self, &(laplace_evidence){.output_values = spectra.output_values,
                                                     .input_values = spectra.input_values,
                                                     .V = spectra.V,
                                                     .C = spectra.C,
                                                     .data_tokens = (double)report->data_tokens,
                                                     .weights_square = square,
                                                     .comm = self->mesh->compute});
    if (err == BP_OK)
        err = draw_into_file(self, &(laplace_draw){.spectra = &spectra,
                                                   .grid = factors->grid,
                                                   .weights = weights,
                                                   .data_tokens = (double)report->data_tokens,
                                                   .tau = report->tau,
                                                   .seed = self->spec->seed,
                                                   .course = &self->course});
    laplace_spectra_clear(&spectra);
    return err;
}

static bp_err fit_anew(fit *self)
{
    const bp_model_info *info = &self->model->info;
    laplace_text text = {.corpus = self->corpus,
                         .path = is_of_task(self) ? bp_score_keys_of(self->config)->model : NULL,
                         .tokens = self->spec->tokens,
                         .ends = self->ends};
    laplace_factors factors = {0};
    double start = bp_clock_now();
    float *weights = self->roots ? bp_try_alloc("uncertainty.laplace",
                                                info->vocab_size * info->width, sizeof *weights)
                                 : NULL;
    bp_err err = BP_OK;

    if (self->roots && !weights)
        err = BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                      "memory is short: at a last matrix of %" PRId64 " x %" PRId64,
                      info->vocab_size, info->width);
    err = bp_agree(self->mesh->compute, err);
    if (err == BP_OK)
        err = laplace_factors_init(&factors, self->mesh, self->model, &text, &self->course);
    self->report->tokens = factors.tokens;
    self->report->log_likelihood = factors.log_likelihood * (double)self->report->data_tokens;
    self->report->factor_seconds = bp_clock_now() - start;
    if (err == BP_OK)
        err = fit_posterior(self, &factors, weights);
    laplace_factors_clear(&factors);
    bp_free(weights);
    return err;
}

/* The memory in use at once in each step, on the rank with most: the root, which also has W. */
int64_t bp_laplace_bytes(const bp_laplace_spec *spec, const bp_mesh_shape *shape,
                         int64_t vocab_size, int64_t width)
{
    int64_t V = vocab_size, C = width, reals = sizeof(double);
    int ranks = shape->members * shape->pipeline * shape->data * shape->tensor;
    int64_t output = bp_distributed_bytes(V, V, ranks), input = bp_distributed_bytes(C, C, ranks);
    int64_t matrix = bp_distributed_bytes(V, C, ranks), values = (V + C) * reals;
    int64_t factors = laplace_factors_bytes(spec->tokens, shape, V, C);
    int64_t given = (V + shape->tensor - 1) / shape->tensor * C * reals; /* spread_weights */
    int64_t gather = output + input + matrix + given + bp_max(READ_VALUES, C) * reals;
    int64_t eigen = values + bp_max(output + bp_distributed_eigen_bytes(C, ranks),
                                    input + bp_distributed_eigen_bytes(V, ranks));
    int64_t draw = values + output + input + 2 * matrix + laplace_draw_bytes(C);

    return V * C * (int64_t)sizeof(float) + bp_max(bp_max(factors, gather), bp_max(eigen, draw));
}

bp_err bp_laplace_fit_model(const bp_mesh *mesh, const bp_config *config, bp_model *model,
                            const char *corpus, const bp_laplace_spec *spec, const char *out_path,
                            const bp_fit_listener *listener, bp_laplace_report *report)
{
    fit self = {.mesh = mesh,
                .config = config,
                .model = model,
                .corpus = corpus,
                .out_path = out_path,
                .spec = spec,
                .report = report,
                .roots = bp_comm_is_root(mesh->compute)};
    bp_err err = check_model(model);

    *report = (bp_laplace_report){0};
    if (err == BP_OK)
        err = look_at_corpus(&self);
    if (err == BP_OK)
        find_finished(&self);
    self.course = (laplace_course){
        .listener = self.roots ? listener : NULL,
        .tokens = spec->tokens < report->data_tokens ? spec->tokens : report->data_tokens,
        .V = model->info.vocab_size,
        .C = model->info.width,
        .samples = spec->samples};
    if (err == BP_OK && !report->reused)
        err = fit_anew(&self);
    return err;
}

bp_err bp_laplace_fit(const bp_mesh *mesh, const bp_config *config, const char *checkpoint,
                      const char *corpus, const bp_laplace_spec *spec, const char *out_path,
                      const bp_fit_listener *listener, bp_laplace_report *report)
{
    bp_model *model = NULL;
    bp_err err = bp_agree(mesh->compute, bp_model_open_with_head(&model, mesh, config, checkpoint));

    *report = (bp_laplace_report){0};
    if (err == BP_OK)
        err = bp_laplace_fit_model(mesh, config, model, corpus, spec, out_path, listener, report);
    bp_model_free(&model);
    return err;
}
