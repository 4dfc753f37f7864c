/* Fits on corpus.valid: its batches, and a temperature from sums over them. Called by noise.c,
 * predictions_sets.c, sets.c and steps.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "data/corpus.h"
#include "infer/score/each.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "statistics/temperature.h"
#include "uncertainty/uncertainty.h"

typedef struct temperature_scaling {
    const bp_mesh *mesh;
    bp_model *model;
    bp_scaled_sums *units; /* [count]: added up in their order, on any rank */
    int64_t count;
    const char *path; /* of the model */
    double logged;
} temperature_scaling;

static bp_err begin_units(void *context, int64_t units)
{
    temperature_scaling *self = context;

    self->units = bp_alloc("comparison.temperature", units, sizeof *self->units);
    self->count = units;
    return BP_OK;
}

static bp_err poll_stop(void *context)
{
    (void)context;
    return bp_signals_stop_asked() ? bp_stop_request_stopped("while a temperature was fitted")
                                   : BP_OK;
}

/* Data ranks take units in turn, so the progress of one is that of all. */
static void log_progress(temperature_scaling *self, int64_t unit)
{
    if (!self->mesh->coordinates || !bp_log_progress_due(self->logged))
        return;
    self->logged = bp_clock_now();
    bp_log_progress("temperature of %s: %.0f %%", self->path,
                    100 * (double)unit / (double)self->count);
}

static bp_err add_batch(void *context, int64_t unit, const bp_model_batch *batch)
{
    temperature_scaling *self = context;
    bp_err err = bp_agree(self->mesh->replica, poll_stop(self));

    if (err != BP_OK)
        return err;
    log_progress(self, unit);
    return bp_ensemble_add_scaled(self->model, batch, &self->units[unit]);
}

/* A unit belongs to one data rank: the others add zeros, so the sum over ranks is exact. */
static void add_units(const temperature_scaling *self, bp_scaled_sums *sums)
{
    MPI_Comm comm = self->mesh->data;

    for (int64_t u = 0; u < self->count; u++) {
        bp_scaled_sums *unit = &self->units[u];

        bp_all_sum_double(unit->value, BP_TEMPERATURE_POINTS, comm);
        bp_all_sum_double(unit->first, BP_TEMPERATURE_POINTS, comm);
        bp_all_sum_double(unit->second, BP_TEMPERATURE_POINTS, comm);
        for (int p = 0; p < BP_TEMPERATURE_POINTS; p++) {
            sums->value[p] += unit->value[p];
            sums->first[p] += unit->first[p];
            sums->second[p] += unit->second[p];
        }
        sums->tokens += bp_all_sum_int(unit->tokens, comm);
    }
}

bp_err comparison_job_each(const comparison_job *self, const bp_ensemble_spec *spec,
                           bp_score_each *each, bp_model **model)
{
    bp_err err = bp_ensemble_open(model, each->mesh, each->config, spec);

    if (err != BP_OK)
        return err;
    each->corpus = bp_corpus_keys_of(self->config)->valid;
    each->tokens = bp_uncertainty_keys_of(self->config)->temper_tokens;
    each->path = spec->path;
    each->model = &(*model)->info;
    return bp_score_each_batch(each, NULL);
}

bp_err comparison_job_sum_temperatures(const comparison_job *self, const bp_mesh *mesh,
                                       const bp_config *config, const bp_ensemble_spec *spec,
                                       bp_scaled_sums *sums)
{
    temperature_scaling work = {.mesh = mesh, .path = spec->path, .logged = bp_clock_now()};
    bp_score_each each = {.mesh = mesh,
                          .config = config,
                          .begin = begin_units,
                          .batch = add_batch,
                          .poll = poll_stop,
                          .context = &work};
    bp_err err = comparison_job_each(self, spec, &each, &work.model);

    if (err == BP_OK)
        add_units(&work, sums);
    bp_free(work.units);
    bp_model_free(&work.model);
    return err;
}

bp_err comparison_job_keep_temperature(const comparison_job *self, int64_t m,
                                       const bp_scaled_sums *sums)
{
    double beta[BP_TEMPERATURE_POINTS];
    bp_temperature_sums fitted = {.points = BP_TEMPERATURE_POINTS,
                                  .tokens = sums->tokens,
                                  .beta = beta,
                                  .value = sums->value,
                                  .first = sums->first,
                                  .second = sums->second};
    json_t *entry = comparison_record_of(self, m), *temperature;
    bp_temperature best;

    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++)
        beta[k] = bp_scaled_beta(k);
    best = bp_temperature_fit(&fitted);
    if (best.at_edge)
        BP_WARN("comparison.temperature_at_edge",
                "the best temperature of %s may be beyond %.3g: at corpus.valid; the method is far "
                "from calibrated, or the text too short",
                self->results.methods.items[m].name, best.temperature);
    temperature = json_pack(
        "{s:o, s:o, s:o, s:b, s:I}", "temperature", bp_json_real(best.temperature), "before",
        bp_json_real(bp_temperature_nll(&fitted, 1)), "after", bp_json_real(best.nll), "at_edge",
        (int)best.at_edge, "tokens", (json_int_t)sums->tokens);
    (void)json_object_set_new(entry, "temper", temperature);
    return comparison_record_save(self);
}
