/* For regressions: the variance of the noise in values, fitted on corpus.valid, instead of a
 * temperature. Called by steps.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/mem.h"
#include "base/process/signals.h"
#include "infer/score/each.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "statistics/gaussian.h"
#include "tensor/batch.h"

#include <math.h>

#define LEAST_NOISE 1e-30 /* for models without errors */

/* The facts of each possible document: whether it exists, its error, its variance. */
enum { IS_THERE, ERROR, VARIANCE, FACTS };

typedef struct noise_work {
    const bp_mesh *mesh;
    bp_model *model;
    double *facts; /* [capacity][FACTS] */
    int64_t capacity;
} noise_work;

static bp_err begin_units(void *context, int64_t units)
{
    noise_work *self = context;

    self->capacity = units * BP_SCORE_EACH_GROUP;
    self->facts = bp_alloc("comparison.noise", self->capacity * FACTS, sizeof *self->facts);
    return BP_OK;
}

static bp_err poll_stop(void *context)
{
    (void)context;
    return bp_signals_stop_asked() ? bp_stop_request_stopped("while the noise was fitted") : BP_OK;
}

static bp_err add_batch(void *context, int64_t unit, const bp_model_batch *batch)
{
    noise_work *self = context;
    int64_t positions = batch->windows * batch->length;
    float *values =
        bp_alloc("comparison.noise", self->model->info.statistics * positions, sizeof *values);
    bp_err err = bp_agree(self->mesh->replica, poll_stop(self));

    if (err == BP_OK)
        err = bp_model_score(self->model, batch, values);
    for (int64_t w = 0; w < batch->windows && err == BP_OK; w++) {
        double *facts = self->facts + (unit * BP_SCORE_EACH_GROUP + w) * FACTS;
        int64_t k = w * batch->length;

        facts[IS_THERE] = 1;
        facts[ERROR] = (double)bp_target_value(batch->targets[k]) - (double)values[k];
        facts[VARIANCE] = (double)values[BP_MODEL_LOGPROB_VARIANCE * positions + k];
    }
    bp_free(values);
    return err;
}

/* A document belongs to one data rank: the others add zeros. */
static void fit(noise_work *self, comparison_noise *out)
{
    double *errors = bp_alloc("comparison.noise", self->capacity, sizeof *errors);
    double *variances = bp_alloc("comparison.noise", self->capacity, sizeof *variances);

    bp_all_sum_double(self->facts, self->capacity * FACTS, self->mesh->data);
    out->documents = 0;
    for (int64_t k = 0; k < self->capacity; k++)
        if (self->facts[k * FACTS + IS_THERE] > 0) {
            errors[out->documents] = self->facts[k * FACTS + ERROR];
            variances[out->documents++] = self->facts[k * FACTS + VARIANCE];
        }
    out->variance = fmax(bp_gaussian_noise(errors, variances, out->documents), LEAST_NOISE);
    bp_free(errors);
    bp_free(variances);
}

bp_err comparison_job_fit_noise(const comparison_job *self, const bp_mesh *mesh,
                                const bp_config *config, const bp_ensemble_spec *spec,
                                comparison_noise *out)
{
    noise_work work = {.mesh = mesh};
    bp_score_each each = {.mesh = mesh,
                          .config = config,
                          .begin = begin_units,
                          .batch = add_batch,
                          .poll = poll_stop,
                          .context = &work};
    bp_err err = comparison_job_each(self, spec, &each, &work.model);

    if (err == BP_OK)
        fit(&work, out);
    bp_free(work.facts);
    bp_model_free(&work.model);
    return err;
}
