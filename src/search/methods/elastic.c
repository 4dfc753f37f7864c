/* The part of a training that trains shared weights: before each step it draws a model of the
 * space, which the step trains. Called by the loop (train/loop/part.h). */
#include "search/methods/shared.h"

#include "base/config/run_options.h"
#include "train/loop/trainer.h"

#define ATTEMPTS 1000 /* draws of a valid model */

bp_err nas_elastic_draw(const nas *self, int64_t step, bp_model_shape *out)
{
    bp_rng_key key =
        bp_rng_key_of((uint64_t)bp_run_keys_of(self->config)->seed, BP_RNG_SEARCH, 0, step, 2);
    char settings[NAS_SETTINGS];
    bp_err err = BP_ERR_CONFIG;

    for (int k = 0; k < ATTEMPTS && err == BP_ERR_CONFIG; k++) {
        nas_point point = nas_space_draw(&self->space, &key, (uint64_t)k * NAS_AXES);

        BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &point));
        err = nas_shape(self, settings, out);
    }
    return err;
}

bp_err nas_elastic_check(const nas *self)
{
    char settings[NAS_SETTINGS];
    nas_point largest = nas_space_largest(&self->space);
    bp_model_shape shape;
    bp_err err;

    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &largest));
    err = nas_shape(self, settings, &shape);
    if (err != BP_OK)
        return err;
    const char *what =
        shape.family->counting || shape.family->learner || shape.family->carries_state
            ? "the family"
        : bp_model_experts(&shape) > 0                                     ? "experts"
        : shape.adapter.kind != BP_ADAPTER_NONE                            ? "adapter.kind"
        : bp_train_keys_of(self->config)->dropconnect > 0                  ? "train.dropconnect"
        : bp_optimizer_row_of(bp_optimizer_kind_of(self->config))->squares ? "optimizer.kind"
                                                                           : NULL;
    if (!what)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "search.not_elastic",
                   "models of kind %s can't share weights, because of %s: at search.method; use "
                   "random or evolution with search.shared=no",
                   shape.family->name, what);
}

/* Bytes of a part's network, gradients and activations: at most those of the whole model. */
static bp_err bytes(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                    size_t *out)
{
    bp_plan plan;
    bp_err err = bp_engine_plan(&plan, mesh, &self->spec, &self->shape, stage);

    (void)own;
    if (err == BP_OK)
        *out = plan.parameters + plan.copies + plan.gradients + plan.activations + plan.scratch;
    return err;
}

static bp_err before_step(trainer *self, void *own, const bp_batch *batch)
{
    const nas *search = self->hooks->context;
    bp_model_shape shape;
    bp_err err = nas_elastic_draw(search, self->progress.step + 1, &shape);

    (void)own;
    (void)batch;
    if (err == BP_OK)
        err = bp_engine_take_part(self->engine, &shape);
    return bp_agree(self->mesh->compute, err);
}

const bp_training_part nas_elastic = {
    .name = "shared weights",
    .memory = "the part of the model that a step trains",
    .bytes = bytes,
    .before_step = before_step,
};
