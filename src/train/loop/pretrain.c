/* The pretrain job: its keys, and a training from its opening to its end. */
#include "train/loop/pretrain.h"
#include "math/math.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/run_options.h"
#include "data/corpus.h"
#include "job/report/training.h"
#include "mesh/mesh.h"
#include "train/engine/engine.h"
#include "train/loop/memory.h"
#include "train/loop/parts.h"
#include "train/loop/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_one(bp_config *config)
{
    int64_t members = bp_mesh_keys_of(config)->members;

    if (members != 1)
        bp_config_fault(
            config, "mesh.one_model",
            "mesh.members = %lld, but pretrain trains one model: at mesh.members; leave it at 1",
            (long long)members);
    bp_pretrain_check_model(config);
}

void bp_pretrain_check(bp_config *config)
{
    check_one(config);
}

/* One form of each list: a resume compares texts. */
static void check_weights(bp_config *config)
{
    double *weights = NULL;
    int64_t count;

    if (!bp_config_is_set(config, "corpus.weights"))
        return;
    if (bp_corpus_weights(&weights, &count, bp_corpus_keys_of(config)->weights) == BP_OK) {
        char *text = bp_corpus_weights_text(weights, count);

        BP_CHECK(bp_config_set(config, "corpus.weights", text) == BP_OK);
        bp_free(text);
    } else {
        bp_config_fault_err(config);
    }
    bp_free(weights);
}

/* family NULL: the checkpoint of model.init has it, and model.kind may name it; where it does not,
 * the engine's keys are checked once the checkpoint is read. */
static bool has_engine(const bp_config *config, const bp_model_family *family)
{
    if (!family && bp_config_is_given(config, "model.kind"))
        family = bp_model_family_find(bp_model_keys_of(config)->kind);
    return family && !family->count && !family->learner;
}

void bp_pretrain_check_model(bp_config *config)
{
    int64_t patience = bp_train_keys_of(config)->patience;
    bool has_valid = bp_config_is_set(config, "corpus.valid");
    bp_mesh_shape mesh = bp_mesh_shape_of(config);
    bp_engine_spec spec = bp_engine_spec_of(config);
    bp_model_shape shape = {0};

    if (!bp_config_is_set(config, "model.init")) {
        shape = bp_model_shape_of(config, NULL);
        bp_model_shape_check(&shape, mesh.tensor, mesh.pipeline, config);
        if (shape.family->resolve && bp_model_shape_is_whole(&shape))
            shape.family->resolve(&shape, config);
    }
    if (has_engine(config, shape.family))
        bp_engine_spec_check(&spec, &shape, &mesh, config);
    if (patience > 0 && (!has_valid || bp_train_keys_of(config)->valid_every == 0))
        bp_config_fault(config, "train.no_validation",
                        "train.patience = %lld counts validations, but %s: at train.patience; give "
                        "corpus.valid and train.valid_every, or leave train.patience out",
                        (long long)patience,
                        has_valid ? "train.valid_every is 0" : "there is no corpus.valid");
    if (bp_config_is_set(config, "train.epochs") && bp_train_keys_of(config)->epochs <= 0)
        bp_config_fault(config, "train.no_epochs",
                        "train.epochs = 0: at train.epochs; give a number above 0");
    check_weights(config);
}

void bp_finetune_require(bp_config *config)
{
    bp_config_require(config, "task.kind");
    bp_config_require(config, "train.batch");
}

static void set_default(bp_config *config, const char *key, const char *value)
{
    if (!bp_config_is_given(config, key) && bp_config_set(config, key, value) != BP_OK)
        bp_config_fault_err(config);
}

void bp_finetune_check_model(bp_config *config)
{
    set_default(config, "optimizer.decay", "linear");
    set_default(config, "optimizer.lr", "5e-5");
    if (!bp_config_is_set(config, "train.steps"))
        set_default(config, "train.epochs", "3");
}

void bp_finetune_check(bp_config *config)
{
    bp_finetune_check_model(config);
    check_one(config);
}

bp_err bp_pretrain_plan(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                        const bp_planned_world *asked)
{
    bool root = bp_comm_is_root(world);
    trainer self;
    bp_plan plan;
    int stage;
    bp_err err = trainer_open(&self, parts, world, config, asked);
    memory_case one = memory_case_of(&self);

    if (err == BP_OK && trainer_counts(&self)) {
        err = trainer_count_plan(&self);
        trainer_close(&self);
        return err;
    }
    if (err == BP_OK)
        err = bp_agree(world, trainer_plan(&self, &plan, &stage));
    if (err == BP_OK)
        err = bp_comm_size(world) > 1 ? memory_find(&self.node, world, config, &self, &one)
                                      : memory_find_planned(&self.node, &self, &one, asked->nodes);
    if (err == BP_OK) {
        if (!trainer_learner(&self))
            trainer_measure_peak(&self, 0.5);
        self.gemm_peak *= self.mesh_shape.pipeline * self.mesh_shape.data * self.mesh_shape.tensor;
        plan_print(&self, &plan, stage);
        if (root)
            trainer_warn_of_rows(&self, &one);
        err = bp_agree(world, root ? memory_judge(&self.node, &self, &one) : BP_OK);
    }
    trainer_close(&self);
    return err;
}

static bool is_power_of_two(const char *text)
{
    long long n = strtoll(text, NULL, 10);

    return n > 0 && (n & (n - 1)) == 0;
}

/* Chunks deal blocks out to stages in another way, and stages add up the gradient's norm. Of a
 * learner bits are the same on any mesh. */
bool trainer_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now)
{
    bool chunks = strcmp(bp_mesh_keys_of(config)->schedule, "interleaved") == 0;
    bool tree = strcmp(bp_train_keys_of(config)->reduction, "tree") == 0;
    const bp_model_family *family = bp_model_family_find(bp_model_keys_of(config)->kind);

    if (family && family->learner)
        return true;
    if (strcmp(key, "mesh.schedule") == 0)
        return !chunks && strcmp(before, "interleaved") != 0;
    if (strcmp(key, "mesh.chunks") == 0)
        return !chunks;
    if (strcmp(key, "mesh.sequence_parallel") == 0)
        return bp_mesh_keys_of(config)->tensor == 1 ||
               (strcmp(before, "no") == 0) == (strcmp(now, "no") == 0);
    return strcmp(key, "mesh.data") == 0 && tree && is_power_of_two(before) && is_power_of_two(now);
}

const char *const trainer_may_change[] = {
    "run.dir",           "mesh.members",      "ensemble.members",
    "ensemble.only",     "ensemble.parallel", "train.steps",
    "train.epochs",      "train.patience",    "train.log_every",
    "train.valid_every", "train.sample_*",    "train.digest_every",
    "checkpoint.every",  "checkpoint.keep",   "checkpoint.async",
    "corpus.valid",      "train.tensorboard", "train.trace",
    "train.profile",     "ngram.memory",      NULL};

/* What makes two runs the same run. */
static bp_err open_run(trainer *self)
{
    static const char *const OTHER_BITS[] = {"mesh.*", "math.threads", NULL};
    static const char *const NEW_RUN[] = {"optimizer.*", "train.*",       "corpus.*", "run.seed",
                                          "run.member",  "model.dropout", NULL};
    bp_run_identity identities[] = {{"corpus.train", self->facts.hash},
                                    {"tokenizer.path", self->facts.tokenizer_hash},
                                    {"model.init", self->init_digest},
                                    {NULL, NULL}};
    json_t *extra = json_pack("{s:s, s:s, s:i, s:I, s:I}", "math_library", bp_math_library(), "cpu",
                              bp_math_cpu(), "threads", bp_math_threads(), "parameters",
                              (json_int_t)bp_model_parameters(&self->shape), "steps",
                              (json_int_t)self->spec.rate.steps);
    if (self->shape.adapter.kind != BP_ADAPTER_NONE)
        (void)json_object_set_new(
            extra, "parameters_trained",
            json_integer((json_int_t)bp_model_trained_parameters(&self->shape)));
    bp_run_spec spec = {.job = bp_task_is_asked(self->config) ? "finetune" : "pretrain",
                        .trains = true,
                        .may_change = trainer_may_change,
                        .new_run_may = NEW_RUN,
                        .other_bits = OTHER_BITS,
                        .keeps_bits = trainer_keeps_bits,
                        .identities = identities,
                        .extra = extra};
    bp_err err;

    parts_describe_run(self, &spec);
    err = bp_run_open(&self->run, self->mesh, self->config, &spec);
    json_decref(extra);
    return err;
}

static bp_err run(trainer *self)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err = BP_OK, stopped;

    if (self->mesh->coordinates) {
        json_t *members = json_pack("{s:I}", "step", (json_int_t)self->progress.step);
        err = bp_run_event(self->run, self->progress.step > 0 ? "resumed" : "started", members);
        json_decref(members);
        if (self->progress.step > 0)
            bp_log("going on from step %lld", (long long)self->progress.step);
    }
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    report_begin(self);
    if (self->mesh->computes) {
        err = trainer_run(self);
    } else {
        bp_phase before = bp_heartbeat_phase(BP_PHASE_STEP);
        err = report_serve(self);
        (void)bp_heartbeat_phase(before);
    }
    report_end(self);
    err = bp_agree(self->mesh->world, err);
    trainer_sweep_end(self);
    bp_log_keep_progress();
    trainer_log_commit(self);
    /* parts report however training ended; the first failure is the one to return */
    snprintf(message, sizeof message, "%s", bp_err_message());
    stopped = parts_at(self, PART_STOP);
    if (err != BP_OK)
        bp_err_set_message(message);
    else
        err = stopped;
    plan_print_peak(self);
    if (err == BP_OK)
        err = parts_at(self, PART_FINISH);
    return err == BP_OK ? trainer_end(self) : err;
}

/* With the run folder held: find where to start, build, train. *trains: there are steps to do. */
static bp_err go_on(trainer *self, bool *trains)
{
    bp_err err = trainer_find_source(self);

    *trains = err == BP_OK && !trainer_is_done(self);
    if (err != BP_OK)
        return err;
    if (trainer_is_done(self)) {
        bool more = self->progress.step > self->spec.rate.steps;
        bp_log("the run is finished: %lld steps%s", (long long)self->progress.step,
               more ? ", more than the configuration asks for" : "");
        err = parts_at(self, PART_FINISHED);
        return err == BP_OK ? trainer_end(self) : err;
    }
    err = bp_agree(self->mesh->world, trainer_check_bag_version(self));
    if (err == BP_OK && trainer_counts(self))
        return trainer_count(self);
    if (err == BP_OK && self->node.ranks == 0) /* its folder seemed finished, or held */
        err = trainer_check_memory(self);
    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates && !self->hooks && !bp_run_is_resumed(self->run)) {
        memory_case one = memory_case_of(self);
        trainer_warn_of_rows(self, &one);
    }
    bp_run_take_changes(self->run);
    trainer_say_stretch(&self->spec.rate, self->progress.step, bp_run_steps_before(self->run));
    err = parts_at(self, PART_START);
    if (err == BP_OK)
        err = trainer_build(self);
    if (err == BP_OK)
        err = trainer_load(self);
    if (err == BP_OK)
        err = parts_at(self, PART_BEGIN);
    if (err == BP_OK && self->mesh->coordinates)
        err = bp_run_cut_metrics(self->run, self->progress.step);
    if (err == BP_OK && self->mesh->coordinates && self->hooks)
        err = self->hooks->started(self->hooks->context, self->progress.step);
    err = bp_agree(self->mesh->world, err);
    return err == BP_OK ? run(self) : err;
}

bp_err bp_pretrain(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                   const bp_pretrain_hooks *hooks)
{
    trainer self;
    bool trained = false;
    bp_err err = trainer_open(&self, parts, world, config, NULL);
    const char *run_dir = bp_run_keys_of(config)->dir;

    self.hooks = hooks;
    if (err == BP_OK && self.mesh->coordinates && !hooks && trainer_bags(config))
        (void)trainer_check_bag(self.corpus); /* its warning: fewer than 2 were refused before */
    if (err == BP_OK && !trainer_counts(&self) && bp_run_has_work(world, run_dir))
        err = trainer_check_memory(&self);
    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        err = go_on(&self, &trained);
        bp_err closed = bp_run_close(&self.run, err);
        err = err != BP_OK ? err : closed;
    }
    if (err == BP_OK && self.mesh->coordinates && !hooks && !trainer_counts(&self))
        bp_training_keep_page(run_dir, trained);
    trainer_close(&self);
    return err;
}
