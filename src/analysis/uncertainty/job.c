/* An uncertainty job from end to end. */
#include "analysis/uncertainty/job_priv.h"

#include "analysis/uncertainty/laplace.h"
#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/score/score.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bp_err open_run(study_job *self)
{
    static const char *const may_change[] = {"run.dir",
                                             "uncertainty.models",
                                             "uncertainty.in_domain",
                                             "uncertainty.shifted",
                                             "uncertainty.resamples",
                                             "score.memory",
                                             NULL};
    static const char *const other_bits[] = {"mesh.*", "math.threads", NULL};
    static const bp_run_words words = {"corpora", "uncertainty.in_domain and uncertainty.shifted",
                                       "groups of the same files in the same order"};
    bp_run_identity identities[] = {{"corpora", self->corpora_hash},
                                    {"corpus.valid", self->valid_hash},
                                    {"corpus.train", self->train_hash},
                                    {NULL, NULL}};
    bp_run_spec spec = {.job = "uncertainty",
                        .may_change = may_change,
                        .other_bits = other_bits,
                        .keeps_bits = study_keeps_bits,
                        .identities = identities,
                        .words = &words};

    return bp_run_open(&self->run, self->mesh, self->config, &spec);
}

/* The folder says finished, and the models are still those that it is of. */
static bool is_finished(study_job *self)
{
    bool same = false;

    if (self->mesh->coordinates && bp_run_is_finished(self->run) &&
        bp_path_exists(self->record_path) && study_record_open(self) == BP_OK) {
        const char *models = json_string_value(json_object_get(self->record, "models"));

        same = models && strcmp(models, self->models_hash) == 0;
        json_decref(self->record);
        self->record = NULL;
    }
    return bp_all_max_int(same, self->world) != 0;
}

/* ---- after the computing: the coordinator's ---- */

static void take_costs(study_job *self)
{
    study_outcome *outcome = &self->outcome;

    for (int64_t m = 0; m < outcome->methods.count; m++) {
        const json_t *entry = study_record_of(self, m);
        const json_t *temper = json_object_get(entry, "temper");

        outcome->costs[m] = (study_cost){.train_seconds = outcome->peeks[m].train_seconds,
                                         .fit_seconds = study_record_real(entry, "fit_seconds"),
                                         .score_seconds = study_record_real(entry, "score_seconds"),
                                         .memory_mib = study_record_real(entry, "memory_mib")};
        outcome->tempers[m] =
            (study_temper){.temperature = study_record_real(temper, "temperature"),
                           .before = study_record_real(temper, "before"),
                           .after = study_record_real(temper, "after"),
                           .at_edge = json_is_true(json_object_get(temper, "at_edge")),
                           .tokens = json_integer_value(json_object_get(temper, "tokens"))};
    }
}

/* Without the installed templates there are the tables and the summary. */
static bp_err write_page(const study_outcome *outcome)
{
    bp_err err = study_plots_draw(outcome);

    if (err == BP_OK)
        err = study_page_write(outcome);
    if (err != BP_ERR_INPUT && err != BP_ERR_FORMAT)
        return err;
    bp_warn("no page and no plots: %s", bp_err_message());
    return BP_OK;
}

static bp_err write_outcome(study_job *self)
{
    study_outcome *outcome = &self->outcome;
    char *path = bp_path_join(outcome->folder, "summary.json");
    json_t *summary = NULL;
    bp_err err = path ? study_tables_write(outcome)
                      : BP_FAIL(BP_ERR_SYSTEM, "no memory for the summary of a study");

    if (err == BP_OK)
        err = write_page(outcome);
    if (err == BP_OK)
        err = study_summary(&summary, outcome);
    if (err == BP_OK)
        err = bp_run_check_owner(self->run);
    if (err == BP_OK)
        err = bp_json_save(path, summary);
    if (err == BP_OK &&
        json_object_set_new(self->record, "models", json_string(self->models_hash)) == 0)
        err = study_record_save(self);
    json_decref(summary);
    bp_free(path);
    return err;
}

static bp_err conclude(study_job *self)
{
    bp_err err;

    bp_log("analysing %" PRId64 " documents, %" PRId64 " resamples", self->corpora.documents,
           self->outcome.resamples);
    take_costs(self);
    err = bp_run_check_owner(self->run);
    if (err == BP_OK)
        err = study_outcome_analyse(&self->outcome, self->corpora.documents);
    if (err == BP_OK)
        err = write_outcome(self);
    if (err == BP_OK)
        study_outcome_print(&self->outcome);
    return err;
}

static bp_err log_start(const study_job *self)
{
    json_t *members = json_pack("{sI sI}", "methods", (json_int_t)self->outcome.methods.count,
                                "documents", (json_int_t)self->corpora.documents);
    bp_err err =
        bp_run_event(self->run, bp_run_is_resumed(self->run) ? "resumed" : "started", members);

    json_decref(members);
    return err;
}

static bp_err run(study_job *self)
{
    bp_phase before = bp_beat_phase(BP_PHASE_FIT); /* but for what scores */
    bp_err err = bp_agree(self->world, self->mesh->coordinates ? log_start(self) : BP_OK);

    bp_run_take_changes(self->run);
    if (err == BP_OK)
        err = study_job_compute(self);
    if (err == BP_OK)
        err = bp_agree(self->world, self->mesh->coordinates ? conclude(self) : BP_OK);
    (void)bp_beat_phase(before);
    return err;
}

static bp_err check_memory(const study_job *self)
{
    bp_err err = BP_OK;

    for (int64_t m = 0; m < self->outcome.methods.count && err == BP_OK; m++)
        err = study_job_check_memory(self, m, NULL);
    return err;
}

bp_err bp_uncertainty(MPI_Comm world, bp_config *config, const bp_option *const *score_tables)
{
    study_job self;
    bp_err err = study_job_open(&self, world, config, score_tables, false);

    if (err == BP_OK && bp_run_has_work(world, bp_config_string(config, "run.dir")))
        err = check_memory(&self);
    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        if (is_finished(&self))
            bp_log("the run is finished: the figures are in %s", self.outcome.folder);
        else
            err = run(&self);
        bp_err closed = bp_run_close(&self.run, err);
        err = err != BP_OK ? err : closed;
    }
    study_job_close(&self);
    return err;
}

/* ---- --plan ---- */

static void print_group(const char *what, const study_group *group)
{
    bp_log("%-10s %s: %" PRId64 " documents", what, group->name, group->document_count);
}

static void print_plan(const study_job *self)
{
    const study_outcome *outcome = &self->outcome;

    bp_log("%" PRId64 " methods on %" PRId64 " documents of %" PRId64 " corpora",
           outcome->methods.count, self->corpora.documents, self->corpora.files);
    print_group("in domain", &outcome->in_domain.items[0]);
    for (int64_t s = 0; s < outcome->shifted.count; s++)
        print_group("shifted", &outcome->shifted.items[s]);
}

static void print_fit(const study_job *self, int64_t m)
{
    const study_peek *peek = &self->outcome.peeks[m];
    bp_laplace_spec spec = bp_laplace_spec_of(self->config);
    bp_mesh_shape shape = self->mesh_shape;

    shape.data = shape.data > 0 ? shape.data : 1; /* of one rank that stands for any mesh */
    bp_log("  %" PRId64 " samples repeat its last layer so many times; the fit before takes "
           "%.1f MiB on a rank besides the model",
           self->outcome.members[m],
           (double)bp_laplace_bytes(&spec, &shape, peek->vocab_size, peek->width) / 1048576);
}

/* A pass or a sample repeats a part of the model: what it costs at most is said, not measured. */
static bp_err foresee_method(study_job *self, int64_t m, const bp_planned_world *asked)
{
    const study_method *method = &self->outcome.methods.items[m];
    bp_config *config = NULL;
    bp_err err = study_job_derive(self, m, &config);

    if (err == BP_OK && !self->outcome.peeks[m].ensemble)
        err = study_job_set_mesh(self, 1, config);
    err = bp_agree(self->world, err);
    if (err == BP_OK && self->mesh->coordinates) {
        bp_log("%s: %s of %s%s", method->name, study_way_name(method->way), method->path,
               method->way == STUDY_PLAIN ? "" : "; what follows is for the model alone");
        if (method->way == STUDY_DROPOUT)
            bp_log("  %" PRId64 " passes take up to so many times as long",
                   self->outcome.members[m]);
        if (method->way == STUDY_LAPLACE)
            print_fit(self, m);
    }
    if (err == BP_OK)
        err = study_job_check_memory(self, m, asked);
    if (err == BP_OK)
        err = bp_score_foresee(self->world, config, asked);
    bp_config_free(&config);
    return err;
}

bp_err bp_uncertainty_foresee(MPI_Comm world, bp_config *config,
                              const bp_option *const *score_tables, const bp_planned_world *asked)
{
    study_job self;
    bp_err err = study_job_open(&self, world, config, score_tables, bp_comm_size(world) == 1);

    if (err == BP_OK && self.mesh->coordinates)
        print_plan(&self);
    for (int64_t m = 0; err == BP_OK && m < self.outcome.methods.count; m++)
        err = foresee_method(&self, m, asked);
    study_job_close(&self);
    return err;
}
