/* An uncertainty job from end to end. Called by jobs/uncertainty.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/memory.h"
#include "infer/score/score.h"
#include "job/report/report.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <string.h>

/* A study is complete without these folders: they serve to extend it. */
static bool lacks_scores(const comparison_job *self)
{
    static const char *const scores[] = {"tokens.h5", "documents.h5", "summary.json"},
                             *const outcomes[] = {"outcomes.h5"};
    enum { TABLES = 2, ALL = 3 }; /* of scores; predictions of other programs have no summary */
    const comparison_results *results = &self->results;
    bool kept = bp_path_is_dir(bp_path_in(results->folder, "scores").text), lacks = false;

    for (int64_t m = 0; m < results->methods.count && kept && !lacks; m++) {
        const comparison_method *method = &results->methods.items[m];
        char *folder = bp_sprintf("%s/scores/%s/score", results->folder, method->name);

        lacks =
            bp_run_first_missing(folder, outcomes, 1) &&
            bp_run_first_missing(folder, scores, comparison_is_predictions(method) ? TABLES : ALL);
        bp_free(folder);
    }
    return lacks;
}

#define PAGE "index.html"

static const char *const FILES[] = {
    "record.json",       "methods.csv", "detection.csv", "differences.csv", "reliability.csv",
    "risk_coverage.csv", "roc.csv",     "histogram.csv", "summary.json",    PAGE};

/* A page is required only if its template is installed. */
static size_t count_files(void)
{
    return sizeof FILES / sizeof FILES[0] - !bp_report_has_page("uncertainty");
}

static const char *find_missing(const void *context)
{
    const comparison_job *self = context;
    const char *name = bp_run_first_missing(self->results.folder, FILES, count_files());

    return !name && lacks_scores(self) ? "a method's scores" : name;
}

static bp_err open_run(comparison_job *self)
{
    static const char *const may_change[] = {"run.dir",
                                             "uncertainty.models",
                                             "uncertainty.in_domain",
                                             "uncertainty.shifted",
                                             "uncertainty.resamples",
                                             "uncertainty.cluster",
                                             "uncertainty.coverages",
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
                        .keeps_bits = comparison_keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = self,
                        .words = &words};

    return bp_run_open(&self->run, self->mesh, self->config, &spec);
}

#define VALID "calibrated_on" /* in the record: the hash of corpus.valid; "": there was none */

/* The folder is marked finished, and the models and corpus.valid are still the same. */
static bool is_finished(comparison_job *self)
{
    bool same = false;

    if (self->mesh->coordinates && bp_run_is_finished(self->run) &&
        bp_path_exists(self->record_path) && comparison_record_open(self) == BP_OK) {
        const char *models = json_string_value(json_object_get(self->record, "models"));
        const char *valid = json_string_value(json_object_get(self->record, VALID));

        same = models && strcmp(models, self->models_hash) == 0 &&
               (!valid || strcmp(valid, self->valid_hash) == 0); /* NULL: of an older program */
        json_decref(self->record);
        self->record = NULL;
    }
    return bp_all_max_int(same, self->world) != 0;
}

/* ---- after the computing: the coordinator's ---- */

static void take_costs(comparison_job *self)
{
    comparison_results *results = &self->results;

    for (int64_t m = 0; m < results->methods.count; m++) {
        const json_t *entry = comparison_record_of(self, m);
        const json_t *temperature = results->scaled ? json_object_get(entry, "temper") : NULL;

        results->costs[m] =
            (comparison_cost){.train_seconds = results->metadata[m].train_seconds,
                              .fit_seconds = bp_json_number(entry, "fit_seconds"),
                              .score_seconds = bp_json_number(entry, "score_seconds"),
                              .memory_mib = bp_json_number(entry, "memory_mib")};
        results->temperatures[m] = (comparison_temperature){
            .temperature = bp_json_number(temperature, "temperature"),
            .before = bp_json_number(temperature, "before"),
            .after = bp_json_number(temperature, "after"),
            .at_edge = json_is_true(json_object_get(temperature, "at_edge")),
            .tokens = json_integer_value(json_object_get(temperature, "tokens")),
            .noise = bp_json_number(temperature, "noise_variance")};
        if (comparison_job_wants_sets(self))
            (void)comparison_job_recall_sets(self, m, &results->sets[m].fit);
    }
}

/* Without the installed templates, only the tables and the summary are written. */
static bp_err write_page(const comparison_results *results)
{
    bp_err err = comparison_plots_draw(results);

    if (err == BP_OK)
        err = comparison_page_write(results);
    if (err != BP_ERR_INPUT && err != BP_ERR_FORMAT)
        return err;
    bp_warn_failure("no page and no plots: %s", bp_err_text());
    return BP_OK;
}

static bp_err write_outcome(comparison_job *self)
{
    comparison_results *results = &self->results;
    char *path = bp_path_join(results->folder, "summary.json");
    json_t *summary = comparison_summary(results);
    bp_err err = comparison_tables_write(results);

    if (err == BP_OK)
        err = write_page(results);
    if (err == BP_OK)
        err = bp_json_save(path, summary);
    (void)json_object_set_new(self->record, "models", bp_json_string(self->models_hash));
    (void)json_object_set_new(self->record, VALID, bp_json_string(self->valid_hash));
    if (err == BP_OK)
        err = comparison_record_save(self);
    json_decref(summary);
    bp_free(path);
    return err;
}

static bp_err conclude(comparison_job *self)
{
    bp_log("analysing %" PRId64 " documents, %" PRId64 " resamples", self->corpora.documents,
           self->results.resamples);
    if (self->results.cluster)
        bp_log(
            "intervals are over clusters of documents, those with one value of the label %s: "
            "%" PRId64 " in the domain",
            self->results.cluster_label,
            comparison_clusters_of(NULL, self->results.cluster, &self->results.in_domain.items[0]));
    take_costs(self);
    bp_err err = comparison_results_analyse(&self->results, self->corpora.documents);
    if (err == BP_OK)
        err = write_outcome(self);
    if (err == BP_OK)
        comparison_results_print(&self->results);
    return err;
}

/* On the coordinator. */
static void add_results(const comparison_job *self)
{
    static const char *const SUFFIXES[] = {"gp", "svg", "png"};
    comparison_plot *plots = comparison_plots_list(&self->results);

    for (size_t k = 0; k < count_files(); k++)
        bp_run_add_result(self->run, bp_path_in("uncertainty", FILES[k]).text);
    if (comparison_has_sets(&self->results))
        bp_run_add_result(self->run, "uncertainty/sets.csv");
    for (const comparison_plot *plot = plots; plot->name; plot++)
        for (int s = 0; s < 3; s++) {
            char *file = bp_sprintf("uncertainty/plots/%s.%s", plot->name, SUFFIXES[s]);

            if (bp_path_exists(
                    bp_path_in(self->results.folder, file + strlen("uncertainty/")).text))
                bp_run_add_result(self->run, file);
            bp_free(file);
        }
    comparison_plots_clear(&plots);
}

static bp_err run(comparison_job *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_FIT); /* except for scoring */
    json_t *members = json_pack("{sI sI}", "methods", (json_int_t)self->results.methods.count,
                                "documents", (json_int_t)self->corpora.documents);
    bp_err err = BP_OK;

    if (self->mesh->coordinates)
        err =
            bp_run_event(self->run, bp_run_is_resumed(self->run) ? "resumed" : "started", members);
    json_decref(members);
    err = bp_agree(self->world, err);

    bp_run_take_changes(self->run);
    if (err == BP_OK)
        err = comparison_job_compute(self);
    if (err == BP_OK)
        err = bp_agree(self->world, self->mesh->coordinates ? conclude(self) : BP_OK);
    if (err == BP_OK && self->mesh->coordinates)
        add_results(self);
    (void)bp_heartbeat_phase(before);
    return err;
}

/* ---- memory: does each method fit in that of its nodes? Checked before anything is written
 * ---- */

/* Bytes of a rank to fit method m, which may have no fit. */
static int64_t fit_bytes(const comparison_job *self, int64_t m)
{
    const bp_uncertainty_method *way = self->results.methods.items[m].way;
    bp_method_case at = comparison_case(self, m);
    bp_mesh_shape shape = self->mesh_shape;

    shape.data = shape.data > 0 ? shape.data : 1; /* for one rank that acts for any mesh */
    return way->fit_bytes ? way->fit_bytes(&at, &shape) : 0;
}

static bp_err check_fits(const comparison_job *self, const bp_score_memory_spec *spec)
{
    bp_mesh_shape shape = bp_mesh_shape_of(spec->config);
    bool alone = spec->plan && bp_comm_size(self->world) == 1;
    bp_err err = alone ? bp_mesh_shape_plan(&shape, spec->plan->ranks)
                       : bp_mesh_shape_fit(&shape, bp_comm_size(self->world));

    return err == BP_OK ? bp_score_memory_check(self->world, &shape, spec) : err;
}

/* plan: of a future job (NULL: of this one). Collective over world. */
static bp_err check_memory(const comparison_job *self, int64_t m, const bp_planned_world *plan)
{
    const comparison_method *method = &self->results.methods.items[m];
    bp_ensemble_spec way = {.path = method->path};
    const bp_conformal_rule sets = {.penalty = 0}; /* any */
    bp_config *config = NULL;
    bp_err err = bp_agree(self->world, comparison_job_derive(self, m, &config));
    bp_score_memory_spec spec = {.config = config, .method = &way, .plan = plan};

    if (err == BP_OK && method->way->fit) { /* first the fit, which has only the model */
        spec.more_bytes = fit_bytes(self, m);
        err = check_fits(self, &spec);
        spec.more_bytes = 0;
    }
    way.sampler = self->samplers[m];
    way.sets = comparison_job_wants_sets(self) ? &sets : NULL;
    way.temperature = self->results.scaled && !self->results.task->is_value; /* any */
    if (err == BP_OK)
        err = check_fits(self, &spec);
    bp_config_free(&config);
    return err == BP_ERR_SYSTEM ? bp_err_prefix(err, "method %s", method->name) : err;
}

static bp_err check_methods(comparison_job *self)
{
    bp_err err = BP_OK;

    for (int64_t m = 0; err == BP_OK && m < self->results.methods.count; m++)
        if (!comparison_is_predictions(&self->results.methods.items[m]))
            err = check_memory(self, m, NULL);
    return err;
}

bp_err bp_uncertainty(MPI_Comm world, bp_config *config, const bp_option *const *score_tables)
{
    comparison_job self;
    bp_err err = comparison_job_open(&self, world, config, score_tables, false);
    bool has_work = err == BP_OK && bp_run_has_work(world, bp_run_keys_of(config)->dir);

    if (has_work)
        err = check_methods(&self);
    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        bool finished = is_finished(&self);

        if (!finished && !has_work) /* one of its results is missing */
            err = check_methods(&self);
        if (finished)
            bp_log("the run is finished: the figures are in %s", self.results.folder);
        else if (err == BP_OK)
            err = run(&self);
        err = bp_run_close(&self.run, err);
    }
    comparison_job_close(&self);
    return err;
}

/* ---- --plan ---- */

static void print_plan(const comparison_job *self)
{
    const comparison_results *results = &self->results;
    const comparison_group *domain = &results->in_domain.items[0];

    bp_log("%" PRId64 " methods on %" PRId64 " documents of %" PRId64 " corpora",
           results->methods.count, self->corpora.documents, self->corpora.files);
    bp_log("in domain  %s: %" PRId64 " documents", domain->name, domain->document_count);
    for (int64_t s = 0; s < results->shifted.count; s++)
        bp_log("shifted    %s: %" PRId64 " documents", results->shifted.items[s].name,
               results->shifted.items[s].document_count);
}

/* A pass or a sample repeats a part of the model: its upper bound is printed, not measured. */
static bp_err estimate_method(comparison_job *self, int64_t m, const bp_planned_world *asked)
{
    const comparison_method *method = &self->results.methods.items[m];
    bp_method_case at = comparison_case(self, m);
    bp_config *config = NULL;
    bp_err err = comparison_job_derive(self, m, &config);

    if (err == BP_OK && !self->results.metadata[m].ensemble)
        err = comparison_job_set_mesh(self, 1, config);
    if (err == BP_OK && self->results.classes) /* a plan of one's own scores refuses it of a task */
        err = bp_config_set(config, "score.tokens", "no");
    err = bp_agree(self->world, err);
    if (err == BP_OK && self->mesh->coordinates) {
        bp_log("%s: %s of %s%s", method->name, method->way->word, method->path,
               self->samplers[m] ? "; what follows is only for the model" : "");
        if (method->way->print_plan)
            method->way->print_plan(&at, fit_bytes(self, m));
    }
    if (err == BP_OK)
        err = check_memory(self, m, asked);
    if (err == BP_OK)
        err = bp_score(self->world, config, asked);
    bp_config_free(&config);
    return err;
}

bp_err bp_uncertainty_estimate(MPI_Comm world, bp_config *config,
                               const bp_option *const *score_tables, const bp_planned_world *asked)
{
    comparison_job self;
    bp_err err = comparison_job_open(&self, world, config, score_tables, bp_comm_size(world) == 1);

    if (err == BP_OK && self.mesh->coordinates)
        print_plan(&self);
    for (int64_t m = 0; err == BP_OK && m < self.results.methods.count; m++)
        if (!comparison_is_predictions(&self.results.methods.items[m]))
            err = estimate_method(&self, m, asked);
    comparison_job_close(&self);
    return err;
}
