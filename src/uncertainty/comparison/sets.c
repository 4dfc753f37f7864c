/* Conformal sets: thresholds of a method, fitted on corpus.valid before the method is scored. */
#include "uncertainty/comparison/job_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "infer/score/each.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "uncertainty/uncertainty.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TUNED 5 /* one prediction in 5 chooses the free ranks of raps, not its threshold */

/* The facts kept for a prediction. */
enum { LAC, APS, RANK, TUNES, FACTS };

typedef struct set_work {
    const comparison_job *self;
    const bp_mesh *mesh;
    bp_model *model;
    double *facts; /* [count][FACTS] of this data rank */
    int64_t count, capacity;
    int64_t unit, position; /* of the next prediction */
} set_work;

bool comparison_job_wants_sets(const comparison_job *self)
{
    const bp_task_kind *kind = self->results.task;

    return bp_uncertainty_keys_of(self->config)->coverage > 0 && self->results.scaled &&
           bp_task_is_softmax(&self->results.metadata[0].task) && !kind->over_positions;
}

static bp_err poll_stop(void *context)
{
    (void)context;
    return bp_signals_stop_asked() ? bp_stop_request_stopped("while conformal sets were calibrated")
                                   : BP_OK;
}

static void keep(set_work *work, const bp_conformal_target *target)
{
    const bp_conformal_rule none = {.penalty = 0};
    bool chooses = bp_uncertainty_keys_of(work->self->config)->raps_rank == 0;
    double u = bp_conformal_uniform(work->self->results.seed, BP_CONFORMAL_CALIBRATION, work->unit,
                                    work->position);
    double *facts;

    if (work->count == work->capacity) {
        work->capacity = 2 * work->capacity + 1024;
        work->facts =
            bp_realloc("comparison.sets", work->facts, work->capacity * FACTS, sizeof *work->facts);
    }
    facts = work->facts + work->count++ * FACTS;
    facts[LAC] = bp_conformal_score(BP_CONFORMAL_LAC, &none, target, u);
    facts[APS] = bp_conformal_score(BP_CONFORMAL_APS, &none, target, u);
    facts[RANK] = (double)(target->before + 1);
    facts[TUNES] = chooses && work->position % TUNED == 0;
    work->position++;
}

static bp_err add_batch(void *context, int64_t unit, const bp_model_batch *batch)
{
    set_work *work = context;
    int64_t rows = bp_model_batch_rows(batch);
    bp_conformal_target *targets = bp_alloc("comparison.sets", rows, sizeof *targets);
    bp_err err = bp_agree(work->mesh->replica, poll_stop(work));

    if (err == BP_OK)
        err = bp_ensemble_targets(work->model, batch, targets);
    if (unit != work->unit)
        work->position = 0;
    work->unit = unit;
    for (int64_t k = 0; k < rows && err == BP_OK; k++)
        keep(work, &targets[k]);
    bp_free(targets);
    return err;
}

/* Gather the facts of all data ranks on each. */
static void gather(set_work *work)
{
    MPI_Comm comm = work->mesh->data;
    int64_t total = 0, first = 0;
    double *all;

    for (int r = 0; r < work->mesh->data_ranks; r++) {
        first = r == work->mesh->data_rank ? total : first;
        total += bp_all_max_int(r == work->mesh->data_rank ? work->count : 0, comm);
    }
    all = bp_alloc("comparison.sets", total * FACTS, sizeof *all);
    if (work->count > 0)
        memcpy(all + first * FACTS, work->facts, (size_t)(work->count * FACTS) * sizeof *all);
    bp_all_sum_double(all, total * FACTS, comm); /* the others have 0 there */
    bp_free(work->facts);
    work->facts = all;
    work->count = work->capacity = total;
}

typedef enum part { CALIBRATE, TUNE, ALL } part; /* predictions, by what they are for */

static int64_t take(double *out, const set_work *work, int fact, part of)
{
    int64_t n = 0;

    for (int64_t k = 0; k < work->count; k++)
        if (of == ALL || (work->facts[k * FACTS + TUNES] > 0) == (of == TUNE))
            out[n++] = work->facts[k * FACTS + fact];
    return n;
}

/* Thresholds do not depend on the order of facts. */
static void calibrate(const set_work *work, comparison_set_fit *out)
{
    const bp_uncertainty_keys *keys = bp_uncertainty_keys_of(work->self->config);
    double *values = bp_alloc("comparison.sets", work->count, sizeof *values);
    double *ranks = bp_alloc("comparison.sets", work->count, sizeof *ranks);
    bp_conformal_rule *rule = &out->rule;
    int64_t n;

    *out = (comparison_set_fit){.predictions = work->count,
                                .coverage = keys->coverage,
                                .rule = {.penalty = keys->raps_penalty, .free = keys->raps_rank}};
    n = take(values, work, LAC, ALL);
    rule->threshold[BP_CONFORMAL_LAC] = bp_conformal_threshold(values, n, keys->coverage);
    n = take(values, work, APS, ALL);
    rule->threshold[BP_CONFORMAL_APS] = bp_conformal_threshold(values, n, keys->coverage);
    if (rule->free == 0) {
        double free;

        n = take(ranks, work, RANK, TUNE);
        free = bp_conformal_threshold(ranks, n, keys->coverage);
        rule->free = isfinite(free) ? (int64_t)free : n > 0 ? (int64_t)ranks[n - 1] : 1;
    }
    (void)take(ranks, work, RANK, CALIBRATE);
    n = take(values, work, APS, CALIBRATE);
    for (int64_t k = 0; k < n; k++)
        values[k] += rule->penalty * fmax(0, ranks[k] - (double)rule->free);
    rule->threshold[BP_CONFORMAL_RAPS] = bp_conformal_threshold(values, n, keys->coverage);
    bp_free(ranks);
    bp_free(values);
}

void comparison_job_fit_targets(const comparison_job *self, const bp_conformal_target *targets,
                                int64_t count, comparison_set_fit *out)
{
    set_work work = {.self = self};

    for (int64_t k = 0; k < count; k++)
        keep(&work, &targets[k]);
    calibrate(&work, out);
    bp_free(work.facts);
}

bp_err comparison_job_fit_sets(const comparison_job *self, const bp_mesh *mesh,
                               const bp_config *config, const bp_ensemble_spec *spec,
                               comparison_set_fit *out)
{
    static const bp_conformal_rule all = {.threshold = {INFINITY, INFINITY, INFINITY}};
    set_work work = {.self = self, .mesh = mesh, .unit = -1};
    bp_ensemble_spec with = *spec;
    bp_score_each each = {
        .mesh = mesh, .config = config, .batch = add_batch, .poll = poll_stop, .context = &work};
    bp_err err;

    with.sets = &all;
    err = comparison_job_each(self, &with, &each, &work.model);
    if (err == BP_OK) {
        gather(&work);
        calibrate(&work, out);
    }
    bp_free(work.facts);
    bp_model_free(&work.model);
    return err;
}

/* ---- in the record, on the coordinator ---- */

bp_err comparison_job_keep_sets(const comparison_job *self, int64_t method,
                                const comparison_set_fit *fit)
{
    json_t *sets =
        json_pack("{s:o, s:I, s:I, s:o}", "coverage", bp_json_real(fit->coverage), "predictions",
                  (json_int_t)fit->predictions, "raps_rank", (json_int_t)fit->rule.free,
                  "raps_penalty", bp_json_real(fit->rule.penalty));
    bool endless = false;

    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        (void)json_object_set_new(sets, bp_conformal_names[k],
                                  bp_json_real(fit->rule.threshold[k])); /* null: infinite */
        endless = endless || !isfinite(fit->rule.threshold[k]);
    }
    if (endless)
        BP_WARN("comparison.few_to_calibrate",
                "%" PRId64 " predictions are too few for sets of coverage %g, so that sets of %s "
                "are of all outcomes: at corpus.valid; give more text, or a smaller "
                "uncertainty.coverage",
                fit->predictions, fit->coverage, self->results.methods.items[method].name);
    (void)json_object_set_new(comparison_record_of(self, method), "sets", sets);
    return comparison_record_save(self);
}

bool comparison_job_recall_sets(const comparison_job *self, int64_t method, comparison_set_fit *fit)
{
    const json_t *sets = json_object_get(comparison_record_of(self, method), "sets");

    if (!json_is_object(sets))
        return false;
    *fit = (comparison_set_fit){
        .predictions = json_integer_value(json_object_get(sets, "predictions")),
        .coverage = bp_json_number(sets, "coverage"),
        .rule = {.free = json_integer_value(json_object_get(sets, "raps_rank")),
                 .penalty = bp_json_number(sets, "raps_penalty")}};
    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        double threshold = bp_json_number(sets, bp_conformal_names[k]);

        fit->rule.threshold[k] = isnan(threshold) ? INFINITY : threshold;
    }
    return true;
}
