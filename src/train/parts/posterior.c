/* The checkpoints that a sampler of the posterior keeps are members of an ensemble. */
#include "train/parts/list.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/ensemble_file.h"
#include "train/loop/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define STEP_PREFIX "step-"

/* Lists the newest checkpoint.keep names of the folder, sorted. */
static void list_newest(bp_ensemble_list *list, char **names, int64_t count, int64_t keep)
{
    int64_t steps = 0;

    for (int64_t k = 0; k < count; k++)
        steps += strncmp(names[k], STEP_PREFIX, strlen(STEP_PREFIX)) == 0;
    list->members = bp_alloc("train.samples", steps, sizeof *list->members);
    for (int64_t k = 0, seen = 0; k < count; k++) {
        if (strncmp(names[k], STEP_PREFIX, strlen(STEP_PREFIX)) != 0 || seen++ < steps - keep)
            continue;
        list->members[list->count++] =
            (bp_ensemble_member){bp_strdup(names[k]), bp_path_join("checkpoints", names[k]), NAN};
    }
}

static bool samples(const trainer *self)
{
    return bp_optimizer_row_of(self->spec.optimizer.kind)->samples;
}

static bp_err list_samples(const trainer *self)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    char *folder = bp_path_join(run_dir, "checkpoints"), **names = NULL;
    int64_t count = 0;
    bp_ensemble_list list = {0};
    bp_err err = bp_dir_list(folder, &names, &count);

    if (err == BP_OK)
        list_newest(&list, names, count, bp_checkpoint_keys_of(self->config)->keep);
    if (err == BP_OK)
        err = bp_ensemble_list_save(&list, run_dir);
    if (err == BP_OK)
        bp_log("ensemble.json lists the last %" PRId64
               " checkpoints as samples of the posterior: %s",
               list.count, run_dir);
    bp_ensemble_list_clear(&list);
    bp_names_free(&names, count);
    bp_free(folder);
    return err;
}

/* ensemble.json lists the checkpoints that are kept. */
static bp_err finish(trainer *self, void *own)
{
    bool keeps = samples(self) && self->mesh->coordinates;

    (void)own;
    return bp_agree(self->mesh->world, keeps ? list_samples(self) : BP_OK);
}

/* The same, if a job was killed between its last checkpoint and the list. The run has the settings
 * of its last start; checkpoints of another optimizer are not samples. */
static bp_err finished(trainer *self, void *own)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    char *path, *kind = NULL;
    bool wants = false;
    bp_err err;

    (void)own;
    if (!samples(self))
        return BP_OK;
    path = bp_path_join(run_dir, "ensemble.json");
    err = bp_run_previous(self->mesh->world, run_dir, "optimizer.kind", &kind);
    if (err == BP_OK && self->mesh->coordinates && !bp_path_exists(path))
        wants = kind && strcmp(kind, bp_optimizer_row_of(self->spec.optimizer.kind)->name) == 0;
    bp_free(kind);
    bp_free(path);
    return bp_agree(self->mesh->world, wants ? list_samples(self) : err);
}

/* The posterior depends on the number of targets: masks and noise draw other targets in each epoch,
 * and a document may have any number of tags or spans. */
static void check(const trainer *self, const void *own)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    const bp_task_kind *task = bp_task_kind_of(&self->shape.task);
    bool draws = !task->objective && objective && (objective->masks || objective->noises);

    (void)own;
    if (samples(self) && (draws || task->at_words || task->over_positions))
        bp_config_fault(self->config, "optimizer.no_posterior",
                        "optimizer.kind = %s goes by the number of targets, which is not fixed "
                        "with %s = %s: at optimizer.kind; use it with classes, regression, text or "
                        "a causal model",
                        bp_optimizer_row_of(self->spec.optimizer.kind)->name,
                        draws ? "train.objective" : "task.kind",
                        draws ? objective->name : task->name);
}

/* What the loss is the mean over: documents, tokens of targets, or all tokens. */
static int64_t count_targets(const trainer *self)
{
    return bp_task_kind_of(&self->shape.task)->whole_text ? self->facts.documents
           : self->facts.targets > 0                      ? self->facts.targets
                                                          : self->facts.tokens;
}

/* The rule of a sampler depends on the number of data. */
static bp_err start(trainer *self, void *own)
{
    bp_optimizer_rule *rule = &self->spec.optimizer;

    (void)own;
    rule->seed = self->spec.seed;
    rule->member = bp_corpus_keys_of(self->config)->member;
    rule->data = count_targets(self);
    return BP_OK;
}

/* Training will continue: the checkpoints in the list may be removed. */
static bp_err build(trainer *self, void *own)
{
    bool removes = samples(self) && self->mesh->coordinates;
    const char *run_dir = bp_run_keys_of(self->config)->dir;

    (void)own;
    return bp_agree(self->mesh->world, removes ? bp_ensemble_list_remove(run_dir) : BP_OK);
}

const bp_training_part training_posterior = {
    .name = "posterior",
    .check = check,
    .at = {[PART_START] = start,
           [PART_BUILD] = build,
           [PART_FINISH] = finish,
           [PART_FINISHED] = finished},
};
