/* Shared weights: their training, and scores of trials with them. Called by methods. */
#include "search/methods/shared.h"

#include "base/log.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "run/stop_request.h"
#include "train/loop/pretrain.h"
#include "train/loop/trainer.h"
#include "train/loop/validation.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <math.h>

/* The parts of a training, and the part that draws. */
void nas_shared_parts(const bp_training_part *out[TRAINING_PARTS_MAX + 1])
{
    int count = 0;

    for (; bp_training_parts[count]; count++)
        out[count] = bp_training_parts[count];
    BP_ASSERT(count < TRAINING_PARTS_MAX);
    out[count++] = &nas_elastic;
    out[count] = NULL;
}

bp_err nas_shared_config(const nas *self, bp_config **out)
{
    char settings[NAS_SETTINGS];
    nas_point largest = nas_space_largest(&self->space);
    int64_t steps = bp_nas_keys_of(self->config)->shared_steps;
    bp_err err;

    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &largest));
    err = nas_training_config(
        self,
        &(nas_training){
            .settings = settings, .folder = "shared", .steps = steps, .with_search = true},
        out);
    if (err == BP_OK) /* all ranks that compute are data ranks of it */
        err = bp_config_set_int(*out, "mesh.data", (int64_t)self->shape.members * self->shape.data);
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

static bp_err on_started(void *context, int64_t step)
{
    (void)context;
    bp_log("shared weights train from step %" PRId64, step);
    return BP_OK;
}

/* FLOPs of all steps, each of its part of the model. */
static bp_err count_flops(nas *self, const trainer *shared)
{
    double tokens = (double)(shared->spec.batch * shared->shape.context);
    bp_err err = BP_OK;

    self->shared_flops = 0;
    for (int64_t step = 1; step <= shared->spec.rate.steps && err == BP_OK; step++) {
        bp_model_shape shape;

        if (step % 64 == 0)
            bp_heartbeat_progress();
        err = nas_elastic_draw(self, step, &shape);
        if (err == BP_OK)
            self->shared_flops += tokens * bp_model_train_flops(&shape);
    }
    return err;
}

/* Forward passes over the validation text: a third of training's. */
static bp_err count_scores(nas *self, int64_t valid_tokens)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < self->count && err == BP_OK; k++) {
        bp_model_shape shape;

        err = nas_shape(self, self->trials[k].settings, &shape);
        if (err == BP_OK)
            self->score_flops += (double)valid_tokens * bp_model_train_flops(&shape) / 3;
    }
    return err;
}

/* A call of nas_with_shared. */
typedef struct shared_use {
    nas *self;
    bp_err (*body)(nas *self);
    bool entered;
} shared_use;

static bp_err enter(shared_use *with, trainer *shared)
{
    nas *self = with->self;
    int64_t valid_tokens = shared ? shared->facts.valid_tokens : 0;
    bp_err err = shared ? count_flops(self, shared) : BP_OK;

    with->entered = true;
    bp_barrier_asleep("barrier", self->mesh->world); /* a coordinator has waited since the start */
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&self->shared_flops, sizeof self->shared_flops, self->mesh->dedicated ? 1 : 0,
                   self->mesh->world);
    bp_bcast_bytes(&valid_tokens, sizeof valid_tokens, self->mesh->dedicated ? 1 : 0,
                   self->mesh->world);
    self->shared = shared;
    self->is_shared = true;
    nas_begin(self, "scoring trials with shared weights");
    err = with->body(self);
    self->shared = NULL;
    return err == BP_OK ? count_scores(self, valid_tokens) : err;
}

static bp_err use(trainer *shared, void *context)
{
    bp_err err;

    (void)bp_log_use(BP_LOG_JOB);
    err = enter(context, shared);
    (void)bp_log_use(BP_LOG_MEMBER);
    return err;
}

/* On the ranks that compute. */
static bp_err train_and_use(nas *self, shared_use *with)
{
    const bp_training_part *parts[TRAINING_PARTS_MAX + 1];
    const bp_pretrain_hooks hooks = {.context = self, .started = on_started};
    MPI_Comm compute = self->mesh->compute;
    bp_config *config = NULL;
    bp_err err = bp_agree(compute, nas_shared_config(self, &config));

    nas_shared_parts(parts);
    bp_log_set_member("shared", bp_comm_is_root(compute));
    (void)bp_log_use(BP_LOG_MEMBER);
    if (err == BP_OK)
        err = bp_pretrain(compute, config, parts, &hooks);
    if (err == BP_OK)
        err = bp_pretrain_use(compute, config, parts, use, with);
    (void)bp_log_use(BP_LOG_JOB);
    bp_config_free(&config);
    return err == BP_OK || with->entered || err == BP_ERR_STOPPED
               ? err
               : bp_err_prefix(err, "shared weights");
}

bp_err nas_with_shared(nas *self, bp_err (*body)(nas *self))
{
    shared_use with = {.self = self, .body = body};
    bp_err err = BP_OK;

    if (self->mesh->coordinates)
        bp_log("training shared weights: of the largest model each step trains a part");
    nas_begin(self, "training shared weights (search/shared)");
    if (!self->mesh->computes)
        return enter(&with, NULL);
    err = train_and_use(self, &with);
    if (with.entered)
        return err;
    bp_barrier_asleep("barrier", self->mesh->world);
    return bp_agree(self->mesh->world, err);
}

/* ---- scores ---- */

static bp_err score_one(nas *self, nas_trial *trial)
{
    trainer *shared = self->shared;
    MPI_Comm compute = shared->mesh->compute;
    validation valid;
    bp_model_shape shape;
    bp_err err;

    if (bp_all_max_int(bp_signals_stop_asked(), compute) != 0)
        return bp_stop_request_stopped("before all trials have a score");
    err = nas_shape(self, trial->settings, &shape);
    if (err == BP_OK)
        err = bp_engine_take_part(shared->engine, &shape);
    err = bp_agree(compute, err);
    if (err == BP_OK)
        err = bp_trainer_validate(shared, &valid);
    if (err != BP_OK)
        return err;
    trial->score = isfinite(valid.loss) ? valid.loss : INFINITY;
    return bp_engine_take_part(shared->engine, NULL);
}

bp_err nas_score_shared(nas *self)
{
    const bp_mesh *mesh = self->mesh;
    int root = mesh->dedicated ? 1 : 0;
    bool any = false;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < self->count && err == BP_OK; k++) {
        nas_trial *trial = &self->trials[k];

        if (!isnan(trial->score))
            continue;
        any = true;
        if (self->shared)
            err = score_one(self, trial);
    }
    if (!any)
        return BP_OK;
    bp_barrier_asleep("barrier", mesh->world);
    bp_bcast_bytes(self->trials, self->count * (int64_t)sizeof *self->trials, root, mesh->world);
    err = bp_agree(mesh->world, err);
    return nas_keep_after(self, err);
}
