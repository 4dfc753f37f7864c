/* A training from its opening to its end. Called by jobs/pretrain.c, jobs/finetune.c, and for each
 * member of an ensemble. */
#include "train/loop/pretrain.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "job/report/training.h"
#include "train/loop/commit.h"
#include "train/loop/counting.h"
#include "train/loop/memory/peak.h"
#include "train/loop/memory/plan_text.h"
#include "train/loop/memory/remedy.h"
#include "train/loop/memory/rows.h"
#include "train/loop/parts.h"
#include "train/loop/reports/report.h"
#include "train/loop/reports/serve.h"
#include "train/loop/scale_plan.h"
#include "train/loop/start/corpora.h"
#include "train/loop/start/duration.h"
#include "train/loop/start/resume.h"
#include "train/loop/start/run_identity.h"
#include "train/loop/start/setup.h"
#include "train/loop/steps.h"

#include <stdio.h>

/* Meshes of a planned job, searched by one process. */
static bp_err print_scale(const trainer *self, const bp_planned_world *asked)
{
    bp_scale_plan plan;
    bp_err err = bp_scale_plan_find(&plan, self, asked);

    if (err == BP_OK)
        bp_scale_plan_print(self, &plan);
    if (err == BP_OK && asked->schedule)
        err = bp_scale_plan_write(self, &plan, asked->schedule);
    bp_free(plan.rows);
    return err;
}

/* The memory of its ranks on each node, and its time. */
static bp_err print_plan(trainer *self, const bp_planned_world *asked)
{
    MPI_Comm world = self->mesh->world;
    memory_case one = bp_training_memory_case_of(self);
    bp_node_memory *node = &self->estimate.node;
    bool root = bp_comm_is_root(world);
    int stage = 0;
    bp_err err = bp_agree(world, bp_trainer_plan(self, &self->estimate.plan, &stage));

    if (err == BP_OK)
        err = bp_comm_size(world) > 1
                  ? bp_training_memory_find(node, world, self->config, self, &one)
                  : bp_training_memory_find_planned(node, self, &one, asked->nodes);
    if (err != BP_OK)
        return err;
    if (!trainer_learner(self))
        bp_trainer_plan_peak(self, asked);
    bp_training_plan_print(self, &self->estimate.plan, stage);
    if (root)
        bp_trainer_warn_of_rows(self, &one);
    if (asked->ranks > 0 && !trainer_learner(self))
        err = print_scale(self, asked);
    if (err != BP_OK)
        return err;
    return bp_agree(world, root ? bp_training_memory_check(node, self, &one) : BP_OK);
}

static bp_err print_count_plan(trainer *self, const bp_planned_world *asked)
{
    (void)asked;
    return bp_trainer_count_plan(self);
}

static bp_err train_steps(trainer *self);
static bp_err count(trainer *self);

/* How a training goes: in steps, of an engine or a learner, or in one count of the corpus. */
typedef struct training_way {
    bp_err (*plan)(trainer *self, const bp_planned_world *asked);
    bp_err (*train)(trainer *self);        /* from where it starts, to its end */
    void (*finished)(const trainer *self); /* removes what a finished run has left; may be NULL */
    bool has_steps; /* its memory is estimated; it writes metrics.jsonl and a page */
} training_way;

static const training_way STEPS = {print_plan, train_steps, NULL, true};
static const training_way COUNTED = {print_count_plan, count, trainer_remove_counts, false};

static const training_way *way_of(const trainer *self)
{
    return trainer_counts(self) ? &COUNTED : &STEPS;
}

bp_err bp_pretrain_plan(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                        const bp_planned_world *asked)
{
    trainer self;
    bp_err err = bp_trainer_open(&self, parts, world, config, asked);

    if (err == BP_OK)
        err = way_of(&self)->plan(&self, asked);
    if (err == BP_OK && bp_path_exists(bp_path_in(bp_run_keys_of(config)->dir, "run.json").text))
        bp_log("note: %s holds a run: a job there goes on with it, and refuses other keys that its "
               "results depend on; give run.dir=NEW for another",
               bp_run_keys_of(config)->dir);
    bp_trainer_close(&self);
    return err;
}

/* Writes an event, and logs where training begins or resumes. */
static bp_err say_begin(trainer *self)
{
    int64_t step = self->progress.step;
    json_t *members;
    bp_err err;

    if (!self->mesh->coordinates)
        return BP_OK;
    members = json_pack("{s:I}", "step", (json_int_t)step);
    err = bp_run_event(self->run, step > 0 ? "resumed" : "started", members);
    json_decref(members);
    if (step > 0)
        bp_log("going on from step %lld", (long long)step);
    return err;
}

static bp_err serve(trainer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_STEP);
    bp_err err = report_serve(self);

    (void)bp_heartbeat_phase(before);
    return err;
}

/* Parts report however the training ended; returns `err`, or if that is BP_OK their failure. */
static bp_err stop_parts(trainer *self, bp_err err)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err stopped;

    snprintf(message, sizeof message, "%s", bp_err_message());
    stopped = parts_at(self, PART_STOP);
    if (err == BP_OK)
        return stopped;
    bp_err_set_message(message);
    return err;
}

/* Adds the results that a start of the finished run looks for if an input is missing. */
static void add_results(trainer *self)
{
    char step[BP_STEP_NAME];

    bp_checkpoint_step_name(step, self->progress.committed);
    const bp_path folder = bp_path_in("checkpoints", step);
    bp_run_add_result(self->run, bp_path_in(folder.text, "manifest.json").text);
    if (way_of(self)->has_steps)
        bp_run_add_result(self->run, "metrics.jsonl");
}

static bp_err run(trainer *self)
{
    bp_err err = bp_agree(self->mesh->world, say_begin(self));

    if (err != BP_OK)
        return err;
    report_begin(self);
    err = self->mesh->computes ? trainer_run(self) : serve(self);
    report_end(self);
    err = bp_agree(self->mesh->world, err);
    trainer_end_removal(self);
    bp_log_keep_progress();
    report_last_commit(self);
    err = stop_parts(self, err);
    plan_print_peak(self);
    if (err == BP_OK)
        err = parts_at(self, PART_FINISH);
    if (err == BP_OK)
        add_results(self);
    return err == BP_OK ? trainer_end(self) : err;
}

static bp_err end_finished(trainer *self)
{
    bool more = self->progress.step > self->spec.rate.steps;
    bp_err err;

    bp_log("the run is finished: %lld steps%s", (long long)self->progress.step,
           more ? ", more than the configuration asks for" : "");
    if (self->mesh->coordinates && way_of(self)->finished)
        way_of(self)->finished(self);
    err = parts_at(self, PART_FINISHED);
    return err == BP_OK ? trainer_end(self) : err;
}

static bp_err count(trainer *self)
{
    bp_err err = trainer_count(self);

    if (err == BP_OK)
        add_results(self);
    return err;
}

/* Cuts the journal to where training resumes. */
static bp_err cut_metrics(trainer *self)
{
    int64_t step = self->progress.step;
    bp_err err;

    if (!self->mesh->coordinates)
        return BP_OK;
    err = bp_run_cut_metrics(self->run, step);
    if (err == BP_OK && self->hooks)
        err = self->hooks->started(self->hooks->context, step);
    return err;
}

/* Makes engine, loader and parts, and sets the parameters. There are steps to do. */
static bp_err prepare(trainer *self)
{
    bp_err err = BP_OK;

    if (self->estimate.node.ranks == 0) /* its folder seemed finished, or held */
        err = trainer_check_memory(self);
    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates && !self->hooks && !bp_run_is_resumed(self->run)) {
        memory_case one = bp_training_memory_case_of(self);
        bp_trainer_warn_of_rows(self, &one);
    }
    bp_run_take_changes(self->run);
    bp_trainer_say_stretch(&self->spec.rate, self->progress.step, bp_run_steps_before(self->run));
    err = parts_at(self, PART_START);
    if (err == BP_OK)
        err = trainer_build(self);
    if (err == BP_OK)
        err = trainer_load(self);
    if (err == BP_OK)
        err = parts_at(self, PART_BEGIN);
    return err;
}

static bp_err train_steps(trainer *self)
{
    bp_err err = prepare(self);

    if (err == BP_OK)
        err = bp_agree(self->mesh->world, cut_metrics(self));
    return err == BP_OK ? run(self) : err;
}

/* With the run folder locked: find where to start, build, train. *trains: there are steps to do. */
static bp_err go_on(trainer *self, bool *trains)
{
    bp_err err = trainer_find_source(self);

    *trains = err == BP_OK && !bp_trainer_is_done(self);
    if (err == BP_OK && !*trains)
        return end_finished(self);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, trainer_check_bag_version(self));
    return err == BP_OK ? way_of(self)->train(self) : err;
}

bp_err bp_pretrain(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                   const bp_pretrain_hooks *hooks)
{
    trainer self;
    bool trained = false;
    bp_err err = bp_trainer_open(&self, parts, world, config, NULL);
    const char *run_dir = bp_run_keys_of(config)->dir;

    self.hooks = hooks;
    if (err == BP_OK && self.mesh->coordinates && !hooks && trainer_bags(config))
        (void)bp_trainer_check_bag(/* its warning: fewer than 2 were refused before */
                                   self.data.corpus, bp_corpus_keys_of(config)->cluster);
    if (err == BP_OK && way_of(&self)->has_steps && bp_run_has_work(world, run_dir))
        err = trainer_check_memory(&self);
    if (err == BP_OK)
        err = trainer_open_run(&self);
    if (err == BP_OK && self.mesh->coordinates)
        trainer_say_clusters(&self);
    if (err == BP_OK) {
        err = go_on(&self, &trained);
        err = bp_run_end(self.run, err);
        if (err == BP_OK && self.mesh->coordinates && !hooks && way_of(&self)->has_steps)
            bp_training_keep_page(run_dir, trained);
        err = bp_run_close(&self.run, err);
    }
    bp_trainer_close(&self);
    return err;
}

bp_err bp_pretrain_use(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                       bp_err (*use)(trainer *self, void *context), void *context)
{
    trainer self;
    bp_err err = bp_trainer_open(&self, parts, world, config, NULL);

    if (err == BP_OK)
        err = trainer_find_source(&self);
    if (err == BP_OK && !self.start.resumes)
        err = BP_FAIL(BP_ERR_INPUT, "training.no_checkpoint",
                      "the training has no checkpoint: at %s; remove that folder, and it trains "
                      "again",
                      bp_run_keys_of(config)->dir);
    if (err == BP_OK)
        err = trainer_build(&self);
    if (err == BP_OK)
        err = trainer_load(&self);
    if (err == BP_OK)
        err = use(&self, context);
    bp_trainer_close(&self);
    return err;
}
