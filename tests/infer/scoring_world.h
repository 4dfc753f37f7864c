/* What tests of the scoring loop share: a language model that is a hash of all it was fed, a
 * configuration, and scoring over any mesh without a checkpoint. For one program: include
 * bp_test_mpi.h first. */
#pragma once

#include "data/toy_corpus.h"
#include "infer/score/score.h"
#include "infer/score/scorer.h"
#include "infer/score/unit.h"
#include "math/math.h"
#include "mesh/collective.h"
#include <math.h>
#include <signal.h>

/* ---- the model ---- */

typedef struct hash_lm {
    bp_model model;
    MPI_Comm group;
    int64_t windows;                         /* scored so far */
    int64_t signal_at;                       /* raise SIGUSR1 after so many; 0: never */
    int64_t nan_at;                          /* a NaN after so many; 0: never */
    uint64_t history[BP_SCORE_BATCH_TOKENS]; /* of windows that came in pieces so far, by place */
    int64_t going_on;                        /* windows of the last piece that are to go on */
    int64_t resumed;                         /* pieces that went on */
} hash_lm;

/* The log-probability of a target after a history: every token of the history counts. */
static inline uint64_t hash_step(uint64_t history, int32_t token)
{
    history = (history ^ (uint64_t)(uint32_t)(token + 1)) * UINT64_C(0x9e3779b97f4a7c15);
    return history ^ history >> 29;
}

static inline float hash_logprob(uint64_t history, int32_t target)
{
    uint64_t x = hash_step(history, target + 77777);

    return -(float)(x >> 40) * 0x1p-21F; /* 0 to -8 in steps of 2^-21 */
}

/* A statistic after the log-probability: of the same kind, and distinguished by its number. */
static inline float hash_value(uint64_t history, int32_t target, int64_t statistic)
{
    return hash_logprob(hash_step(history, (int32_t)statistic), target);
}

static inline bp_err hash_score(bp_model *model, const bp_model_batch *batch, float *values)
{
    hash_lm *self = (hash_lm *)model;
    int64_t sum = 0, count = batch->windows * batch->length;

    assert_true(batch->length <= model->info.context);
    for (int64_t i = 0; i < count; i++)
        sum += (i + 1) * (batch->inputs[i] + 3 * (int64_t)batch->targets[i]);
    sum += 7 * batch->first_slot;
    /* equal arguments on all ranks of the group */
    assert_int_equal(bp_all_max_int(sum, self->group), sum);
    assert_int_equal(bp_all_max_int(-sum, self->group), -sum);
    assert_true(batch->first_window + batch->windows <=
                (batch->resumes ? self->going_on : BP_SCORE_BATCH_TOKENS));
    self->resumed += batch->resumes ? batch->windows : 0;
    self->going_on = batch->suspends ? batch->first_window + batch->windows : 0;
    for (int64_t w = 0; w < batch->windows; w++) {
        uint64_t *kept = &self->history[batch->first_window + w];
        uint64_t history = batch->resumes ? *kept : 0;

        for (int64_t j = 0; j < batch->length; j++) {
            int64_t at = w * batch->length + j;

            history = hash_step(history, batch->inputs[at]);
            values[at] = batch->targets[at] < 0 ? NAN : hash_logprob(history, batch->targets[at]);
            for (int64_t c = 1; c < model->info.statistics; c++)
                values[c * count + at] =
                    batch->targets[at] < 0 ? NAN : hash_value(history, batch->targets[at], c);
        }
        *kept = history;
    }
    self->windows += batch->resumes ? 0 : batch->windows;
    if (self->signal_at > 0 && self->windows >= self->signal_at)
        assert_int_equal(raise(SIGUSR1), 0);
    if (self->nan_at > 0 && self->windows >= self->nan_at)
        values[(model->info.statistics - 1) * count + batch->length - 1] =
            values[(model->info.statistics - 1) * count] = NAN;
    return BP_OK;
}

static inline void hash_free(bp_model *model)
{
    bp_free(model);
}

static inline bp_model *hash_lm_new(const bp_mesh *mesh, const bp_model_info *info)
{
    static const bp_model_ops ops = {.score = hash_score, .free = hash_free};
    hash_lm *self = bp_alloc("test", 1, sizeof(*self));

    assert_non_null(self);
    self->model = (bp_model){.ops = &ops, .info = *info};
    self->group = mesh->replica;
    return &self->model;
}

/* ---- a configuration ---- */

static const bp_option world_options[] = {{.key = "run.dir", .type = BP_OPTION_STRING},
                                          {.key = "run.seed", .type = BP_OPTION_INT, .value = "1"},
                                          {.key = NULL}};

/* "key=value" pairs parted by blanks. */
static inline bp_config *make_config(const char *run_dir, const char *corpus, const char *pairs)
{
    static const bp_option *const tables[] = {world_options,         bp_score_options,
                                              bp_score_rule_options, bp_mesh_options,
                                              bp_math_options,       NULL};
    bp_config *config;
    char copy[512], *rest = copy;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(config, "run.dir", run_dir), BP_OK);
    bp_test_expect(bp_config_set(config, "score.model", "none"), BP_OK);
    bp_test_expect(bp_config_set(config, "score.corpus", corpus), BP_OK);
    bp_test_expect(bp_config_set(config, "math.precision", "f32"), BP_OK);
    snprintf(copy, sizeof(copy), "%s", pairs);
    for (char *pair = strtok_r(rest, " ", &rest); pair; pair = strtok_r(rest, " ", &rest)) {
        char *value = strchr(pair, '=');

        assert_non_null(value);
        *value++ = '\0';
        bp_test_expect(bp_config_set(config, pair, value), BP_OK);
    }
    return config;
}

/* ---- a job ---- */

static const bp_model_info world_model = {.kind = "hash",
                                          .statistics = 1,
                                          .context = 64,
                                          .vocab_size = 500,
                                          .eod_id = -1,
                                          .step = 12,
                                          .digest = "d1",
                                          .tokenizer_hash = TOY_HASH_A};

/* The same without a limit: windows come in pieces. */
static inline bp_model_info hash_unlimited(void)
{
    bp_model_info info = world_model;

    info.context = BP_MODEL_UNLIMITED;
    return info;
}

/* The same as an ensemble of three. */
static inline bp_model_info hash_ensemble(void)
{
    bp_model_info info = world_model;

    info.members = 3;
    info.statistics = BP_MODEL_MEMBER + info.members;
    return info;
}

typedef struct hash_job {
    bp_work_job job;
    scorer self;
    bp_config *config;
    hash_lm *model; /* NULL on a dedicated coordinator */
} hash_job;

/* A scorer with the hash model over `comm`, up to its corpora and plan. Collective over `comm`. */
static inline bp_err job_open(hash_job *job, MPI_Comm comm, const bp_mesh_shape *shape,
                              const bp_model_info *model, const char *run_dir, const char *corpus,
                              const char *pairs)
{
    scorer *self = &job->self;

    memset(job, 0, sizeof(*job));
    job->config = self->config = make_config(run_dir, corpus, pairs);
    job->job = (bp_work_job){.self = self, .config = job->config, .mesh_shape = *shape};
    self->job = &job->job;
    bp_test_expect(bp_mesh_shape_fit(&job->job.mesh_shape, bp_comm_size(comm)), BP_OK);
    bp_test_expect(bp_mesh_new(&job->job.mesh, comm, &job->job.mesh_shape), BP_OK);
    self->mesh = job->job.mesh;
    self->folder = job->job.folder = bp_path_join(run_dir, "score");
    job->job.leads = self->leads = self->mesh->computes && bp_comm_is_root(self->mesh->replica);
    self->info = *model;
    bp_token_statistics_init(&self->statistics, model);
    for (int64_t m = 0; m < model->members; m++) {
        char name[16];

        snprintf(name, sizeof(name), "m%02d", (int)m);
        bp_token_statistics_name(&self->statistics, m, name, m == 1 ? 12.5 : NAN);
    }
    if (self->mesh->computes) {
        job->job.model = self->model = hash_lm_new(self->mesh, model);
        job->model = (hash_lm *)self->model;
    }
    return scorer_open_corpora(self);
}

static inline void job_close(hash_job *job)
{
    scorer_close(&job->self);
    bp_free(job->job.folder);
    bp_model_free(&job->job.model);
    bp_mesh_free(&job->job.mesh);
    bp_config_free(&job->config);
}

static inline bp_err job_do_units(hash_job *job)
{
    return bp_work_do_units(&job->job, scorer_units(&job->self, 0));
}

static inline bp_err job_merge(hash_job *job)
{
    return bp_work_merge(&job->job, scorer_units(&job->self, 0));
}

/* The whole of it: open, units, files. Collective over `comm`. */
static inline bp_err job_run(MPI_Comm comm, const bp_mesh_shape *shape, const bp_model_info *model,
                             const char *run_dir, const char *corpus, const char *pairs)
{
    hash_job job;
    bp_err err = job_open(&job, comm, shape, model, run_dir, corpus, pairs);

    if (err == BP_OK)
        err = job_do_units(&job);
    if (err == BP_OK)
        err = job_merge(&job);
    job_close(&job);
    return err;
}

static const bp_mesh_shape one_rank = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
