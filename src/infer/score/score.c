/* A scoring job from end to end. */
#include "infer/score/scorer_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/signals.h"
#include "infer/score/memory.h"
#include "infer/score/page/page_priv.h"
#include "infer/score/score.h"
#include "infer/score/tables/tables.h"
#include "infer/score/unit.h"
#include "job/report/report.h"
#include "mesh/collective.h"
#include "models/weights.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool bp_score_keeps_bits(const bp_config *config, const char *key, const char *before,
                         const char *now)
{
    static const char *const CHANGE[] = {"mesh.members", "mesh.pipeline", "mesh.tensor",
                                         "math.threads"};

    (void)config, (void)before, (void)now;
    for (size_t k = 0; k < sizeof CHANGE / sizeof CHANGE[0]; k++)
        if (strcmp(key, CHANGE[k]) == 0)
            return false;
    return true;
}

/* A page is asked for where there is a template of it: without, none was made. */
static const char *find_missing(const void *context)
{
    const scorer *self = context;
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    bool of_task = bp_task_has_head(&self->info.task);
    bool compared = of_task && self->method;
    const char *names[] = {
        compared ? NULL : "summary.json",
        compared  ? "outcomes.h5"
        : of_task ? "predictions.csv"
                  : "documents.h5",
        keys->tokens && !of_task ? "tokens.h5" : NULL,
        keys->candidates ? "candidates.jsonl" : NULL,
        keys->states ? "states.h5" : NULL,
        self->page && bp_report_has_page(of_task ? "task" : "score") ? "index.html" : NULL};

    return bp_run_first_missing(self->folder, names, sizeof names / sizeof names[0]);
}

static bp_err open_run(scorer *self)
{
    static const char *const may_change[] = {"run.dir", "score.memory", "neighbours.memory", NULL};
    static const char *const other_bits[] = {"mesh.*", "math.threads", NULL};
    char model[128]; /* an ensemble of one returns more statistics than its model alone */
    bp_run_identity identities[] = {{"score.corpus", self->corpus_hash},
                                    {"score.model", model},
                                    {NULL, NULL},
                                    {NULL, NULL},
                                    {NULL, NULL}};
    int count = 2;
    bp_run_spec spec = {.job = "score",
                        .may_change = may_change,
                        .other_bits = other_bits,
                        .keeps_bits = bp_score_keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = self};

    if (bp_score_keys_of(self->config)->candidates)
        identities[count++] = (bp_run_identity){"score.candidates", self->candidates_hash};
    if (bp_score_keys_of(self->config)->neighbours)
        identities[count++] = (bp_run_identity){"score.neighbours", self->datastore.hash};
    if (self->info.members > 0)
        snprintf(model, sizeof(model), "%s, an ensemble of %" PRId64, self->info.digest,
                 self->info.members);
    else
        snprintf(model, sizeof(model), "%s", self->info.digest);
    return bp_run_open(&self->run, self->mesh, self->config, &spec);
}

static json_t *describe_neighbours(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);

    return json_pack("{ss sI sI so so}", "datastore", self->datastore.hash, "entries",
                     (json_int_t)self->datastore.entries, "k", (json_int_t)keys->nearest,
                     "temperature", bp_json_real(keys->temperature), "weight",
                     bp_json_real(keys->weight));
}

static bp_err write_results(scorer *self, bp_parts *parts)
{
    bool tokens = bp_score_keys_of(self->config)->tokens;
    char *tokens_path = bp_path_join(self->folder, "tokens.h5");
    char *documents_path = bp_path_join(self->folder, "documents.h5");
    char *summary_path = bp_path_join(self->folder, "summary.json");
    bp_score_table table = {0};
    bp_err err = bp_run_check_owner(self->run);

    if (err == BP_OK)
        err = bp_score_table_init(&table, &self->plan, &self->statistics);
    if (err == BP_OK)
        err = bp_score_table_merge(&table, parts, tokens ? tokens_path : NULL);
    if (err == BP_OK)
        err = bp_run_check_owner(self->run);
    if (err == BP_OK)
        err = bp_documents_write(&table, documents_path);
    for (int64_t d = 0; err == BP_OK && d < self->plan.documents; d++)
        self->unscored += table.rows[d].unscored;
    if (err == BP_OK)
        err = bp_score_summarise(&self->summary, &table, &self->info,
                                 (uint64_t)bp_run_keys_of(self->config)->seed);
    if (err == BP_OK)
        bp_weights_record(self->summary, self->config);
    if (err == BP_OK && self->choices)
        (void)json_object_set(self->summary, "candidates", self->choices);
    if (err == BP_OK && bp_score_keys_of(self->config)->neighbours)
        (void)json_object_set_new(self->summary, "neighbours", describe_neighbours(self));
    if (err == BP_OK)
        err = bp_run_check_owner(self->run);
    if (err == BP_OK)
        err = bp_json_save(summary_path, self->summary);
    if (err == BP_OK && self->page && score_page_write(self, &table) != BP_OK) {
        bp_warn_failure("the page of the scores was not written: %s", bp_err_text());
        self->page = false;
    }
    bp_score_table_clear(&table);
    bp_free(summary_path);
    bp_free(documents_path);
    bp_free(tokens_path);
    return err;
}

bp_err scorer_finish(scorer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_MERGE);
    bp_parts *parts = NULL;
    bp_err err = BP_OK;

    if (self->mesh->coordinates) {
        err = bp_parts_open(&parts, self->parts_folder, self->key, self->plan.units);
        if (err == BP_OK)
            err = write_results(self, parts);
        bp_parts_free(&parts);
    }
    err = bp_agree(self->mesh->world, err);
    (void)bp_heartbeat_phase(before);
    return err;
}

static void say_what(const scorer *self)
{
    if (self->mesh->coordinates && !bp_task_has_head(&self->info.task))
        bp_log("scoring %" PRId64 " documents in %" PRId64 " windows of up to %" PRId64
               " inputs (%s), %" PRId64 " inputs in %" PRId64 " work units",
               self->plan.scored, self->plan.windows,
               self->rule.context == BP_MODEL_UNLIMITED ? self->plan.longest : self->rule.context,
               bp_score_convention_name(self->rule.convention), self->plan.inputs,
               self->plan.units);
}

static bp_err run(scorer *self)
{
    json_t *members = json_pack("{sI sI}", "documents", (json_int_t)self->plan.scored, "units",
                                (json_int_t)self->plan.units);
    bp_err err = BP_OK;

    bp_run_take_changes(self->run);
    say_what(self);
    if (self->mesh->coordinates)
        err =
            bp_run_event(self->run, bp_run_is_resumed(self->run) ? "resumed" : "started", members);
    json_decref(members);
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK && bp_task_has_head(&self->info.task))
        return self->method ? scorer_run_outcomes(self) : scorer_run_task(self);
    if (err == BP_OK)
        err = scorer_run_units(self);
    if (err == BP_OK)
        err = scorer_run_candidates(self);
    if (err == BP_OK)
        err = scorer_run_states(self);
    if (err == BP_OK)
        err = scorer_finish(self);
    if (err == BP_OK && self->mesh->coordinates)
        scorer_report(self);
    return err;
}

static bp_err score(MPI_Comm world, bp_config *config, const bp_ensemble_spec *method, bool page)
{
    scorer self;
    bp_err err = scorer_open(&self, world, config, method);

    self.page = page;
    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        if (bp_run_is_finished(self.run))
            bp_log("the run is finished: the scores are in %s", self.folder);
        else
            err = run(&self);
        bp_err closed = bp_run_close(&self.run, err);
        err = err != BP_OK ? err : closed;
    }
    /* parts go when the folder says "finished": not before, or a start in between would find
     * neither */
    if (err == BP_OK)
        err = bp_agree(world, self.mesh->coordinates ? bp_dir_remove(self.parts_folder) : BP_OK);
    scorer_close(&self);
    return err;
}

bp_err bp_score(MPI_Comm world, bp_config *config)
{
    return score(world, config, NULL, true);
}

bp_err bp_score_as(MPI_Comm world, bp_config *config, const bp_ensemble_spec *method)
{
    return score(world, config, method, false);
}

/* For a whole batch; of a model that takes longer a part is measured. */
#define PATIENCE_SECONDS 5

typedef struct measurement {
    int64_t windows, whole; /* of a batch: measured, and in a score */
    double speed;           /* tokens a second through one model group */
} measurement;

/* Did any rank receive a stop request? */
static bp_err look_for_stop(const scorer *self)
{
    return bp_all_max_int(bp_signals_stop_asked(), self->mesh->compute) == 0
               ? BP_OK
               : bp_stop_request_stopped("while it estimated");
}

/* Some windows of zeros, twice; the last pass is timed, and a slow one is the last. */
static bp_err run_windows(scorer *self, measurement *m, int64_t windows, double *seconds)
{
    int64_t length = bp_score_piece_inputs(&self->rule);
    int32_t *zeros = bp_try_alloc("score.batch", windows * length, sizeof(*zeros));
    float *values =
        bp_try_alloc("score.batch", self->statistics.count * windows * length, sizeof(*values));
    bp_model_batch batch = {
        .windows = windows, .length = length, .inputs = zeros, .targets = zeros};
    int32_t *lengths = NULL;
    bool slow = false;
    bp_err err =
        zeros && values ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for a batch");

    err = bp_agree(self->mesh->compute, err);
    if (self->info.reads_source && err == BP_OK) {
        batch.source_length = length;
        batch.sources = zeros;
        batch.source_lengths = lengths = bp_alloc("score.batch", windows, sizeof(*lengths));
        for (int64_t w = 0; w < windows; w++)
            lengths[w] = (int32_t)length;
    }
    for (int pass = 0; err == BP_OK && pass < 2 && !slow; pass++) {
        double began;

        err = look_for_stop(self);
        began = bp_clock_now();
        if (err == BP_OK)
            err = bp_model_score(self->lm, &batch, values);
        *seconds = bp_clock_now() - began;
        slow = bp_all_max_int(*seconds > PATIENCE_SECONDS, self->mesh->compute) != 0;
    }
    m->windows = windows;
    m->speed = (double)(windows * length) / *seconds;
    bp_free(lengths);
    bp_free(values);
    bp_free(zeros);
    return err;
}

/* The time of one window gives that of a whole batch, and one is enough where that is long. */
static bp_err measure(scorer *self, measurement *m)
{
    double seconds = 0;
    bool short_enough;
    bp_err err = run_windows(self, m, 1, &seconds);

    short_enough = seconds * (double)m->whole < PATIENCE_SECONDS;
    if (err == BP_OK && m->whole > 1 &&
        bp_all_max_int(!short_enough, self->mesh->compute) == 0) /* as one for all */
        err = run_windows(self, m, m->whole, &seconds);
    return err;
}

/* What a rank holds, as it was measured on this mesh. */
static void print_memory(const scorer *self, const measurement *m, int64_t bytes)
{
    const bp_mesh *mesh = self->mesh;
    int ranks = mesh->members * mesh->pipelines * mesh->tensors;
    char batch[80] = "batch";

    if (m->windows < m->whole)
        snprintf(batch, sizeof batch, "%" PRId64 " of the %" PRId64 " windows of a batch",
                 m->windows, m->whole);
    if (!self->ensemble) {
        bp_log("memory: %.1f MiB on a rank, model and %s (measured on %d rank%s a model)",
               (double)bytes / 1048576, batch, ranks, ranks == 1 ? "" : "s");
        return;
    }
    bp_log("memory: %.1f MiB on a rank, %" PRId64
           " members and %s (measured with all of them on %d rank%s); of it up to "
           "score.memory = %.1f MiB for their distributions",
           (double)bytes / 1048576, self->info.members, batch, ranks, ranks == 1 ? "" : "s",
           (double)bp_score_rule_keys_of(self->config)->memory / 1048576);
}

static void print_mesh(const scorer *self)
{
    const bp_mesh_shape *shape = &self->mesh_shape;
    char members[32] = "";

    if (self->ensemble)
        snprintf(members, sizeof(members), "members %d x ", shape->members);
    bp_log("mesh: %spipeline %d x data %d x tensor %d%s", members, shape->pipeline, shape->data,
           shape->tensor,
           shape->coordinator == BP_COORDINATOR_DEDICATED ? ", and a coordinator" : "");
}

/* With the model open: what a batch of it takes, in memory and time. */
static bp_err estimate_batch(scorer *self)
{
    MPI_Comm world = self->mesh->world;
    measurement m = {0};
    bp_err err = scorer_open_model(self);

    if (err != BP_OK)
        return err;
    m.whole = bp_score_batch_windows(bp_score_piece_inputs(&self->rule));
    err = bp_agree(world, self->mesh->computes ? measure(self, &m) : BP_OK);
    int64_t bytes = bp_all_max_int((int64_t)bp_mem_peak_bytes(), world);
    bp_bcast_bytes(&m, sizeof(m), bp_comm_size(world) - 1, world);
    if (err == BP_OK && self->mesh->coordinates) {
        const bp_mesh_shape *shape = &self->mesh_shape;
        char duration[64];

        say_what(self);
        print_memory(self, &m, bytes);
        /* members side by side are that many times as fast as measured one after another */
        m.speed *= (double)shape->members / self->mesh->members;
        bp_clock_duration(duration, sizeof(duration),
                          (double)self->plan.inputs / (m.speed * shape->data));
        bp_log("time: about %s at %.0f tokens/s from each of %d %s copies", duration, m.speed,
               shape->data, self->ensemble ? "ensemble" : "model");
    }
    return err;
}

bp_err bp_score_estimate(MPI_Comm world, bp_config *config, const bp_planned_world *asked)
{
    scorer self;
    const bp_score_memory_spec memory = {.config = config, .plan = asked};
    bool fits_here = true;
    bp_err err = scorer_open_mesh(&self, world, config, NULL, asked);

    if (err == BP_OK && self.mesh->coordinates)
        print_mesh(&self);
    if (err == BP_OK)
        err = bp_score_memory_check(world, &self.mesh_shape, &memory, &fits_here);
    if (err == BP_OK && fits_here)
        err = estimate_batch(&self);
    else if (err == BP_OK)
        bp_log("time: not measured, since the model does not fit into this process alone");
    scorer_close(&self);
    return err;
}
