/* The mixture at other temperatures: sums of its negative log-likelihood, for a fit, and the
 * statistics of rows at one temperature. Called by the comparison of methods (src/uncertainty) and
 * by ensemble.c. */
#include "infer/ensemble/ensemble_priv.h"

#include "mesh/collective.h"

#include <math.h>

/* Sums over the vocabulary, of u = log p - shift: no log p exceeds the largest of the members', and
 * the mixture's largest is at most log M below it. So exponentials neither overflow nor all vanish,
 * without an additional reduction over ranks. */
static void sum_powers(ensemble *self, ensemble_work *work, const bp_mixture *in,
                       const float *betas)
{
    int64_t doubles = in->rows * BP_TEMPERATURE_POINTS * 3;
    double *powers = &work->powers->power;

    for (int64_t r = 0; r < in->rows; r++) {
        work->max[r] = -INFINITY;
        for (int64_t m = 0; m < in->members; m++)
            work->max[r] = fmaxf(work->max[r], -in->known[m * in->known_stride + r].log_sum);
    }
    bp_scaled_rows(work->powers, in, work->max, betas, BP_TEMPERATURE_POINTS);
    bp_all_sum_double(powers, doubles, self->mesh->across);
    bp_all_sum_double(powers, doubles, self->mesh->tensor);
}

void ensemble_find_powers(ensemble *self, ensemble_work *work, const bp_mixture *in)
{
    const float betas[ENSEMBLE_POWERS] = {(float)self->beta, (float)(2 * self->beta)};
    int64_t doubles = in->rows * ENSEMBLE_POWERS * 3;

    bp_scaled_rows(work->powers, in, work->max, betas, ENSEMBLE_POWERS);
    bp_all_sum_double(&work->powers->power, doubles, self->mesh->across);
    bp_all_sum_double(&work->powers->power, doubles, self->mesh->tensor);
}

/* f(b) = log sum_v p_v^b - b log p(target) of one row, and its derivatives, at every b. */
static void add_row(bp_scaled_sums *sums, const bp_scaled_row *powers, double shift, double logprob)
{
    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++) {
        double b = bp_scaled_beta(k), mean = powers[k].first / powers[k].power;

        sums->value[k] += b * shift + log(powers[k].power) - b * logprob;
        sums->first[k] += shift + mean - logprob;
        sums->second[k] += powers[k].second / powers[k].power - mean * mean;
    }
    sums->tokens++;
}

static void add_scaled_chunk(ensemble *self, ensemble_work *work, int64_t first, int64_t rows,
                             bp_scaled_sums *sums)
{
    float betas[BP_TEMPERATURE_POINTS];
    double variance;

    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++)
        betas[k] = (float)bp_scaled_beta(k);
    ensemble_mix(self, work, first, rows);
    bp_mixture in = ensemble_mixture(self, work, first, rows);
    sum_powers(self, work, &in, betas);
    for (int64_t r = 0; r < rows; r++)
        add_row(sums, work->powers + r * BP_TEMPERATURE_POINTS, (double)work->max[r],
                ensemble_target_logprob(&in, r, &variance));
}

static bp_err add_scaled_part(ensemble *self, const bp_model_batch *part, bp_scaled_sums *sums)
{
    ensemble_work work;
    bp_err err = ensemble_prepare(self, &work, part, true);

    if (err == BP_OK)
        err = ensemble_run_backbones(self, &work, part);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; ensemble_is_last(self) && first < work.rows; first += work.chunk)
        add_scaled_chunk(self, &work, first,
                         first + work.chunk < work.rows ? work.chunk : work.rows - first, sums);
    return BP_OK;
}

bp_err bp_ensemble_add_scaled(bp_model *model, const bp_model_batch *batch, bp_scaled_sums *sums)
{
    ensemble *self = (ensemble *)model;
    bp_scaled_sums here = {.tokens = 0};
    bp_model_batch part;
    bp_err err = BP_OK;

    if (bp_task_kind_of(&model->info.task)->over_positions)
        return ensemble_add_scaled_spans(self, batch, sums);
    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += part.windows) {
        ensemble_take_part(self, batch, first, &part);
        err = add_scaled_part(self, &part, &here);
    }
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&here, sizeof here, self->mesh->pipeline_ranks - 1, self->mesh->pipeline);
    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++) {
        sums->value[k] += here.value[k];
        sums->first[k] += here.first[k];
        sums->second[k] += here.second[k];
    }
    sums->tokens += here.tokens;
    return BP_OK;
}
