/* Scoring with an ensemble: what a scored row says of its members. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

/* One scored row: values[statistic * stride].
 *
 * The total is computed as the sum of its parts: as H[p] it would come from another sum over the
 * vocabulary, and where a token is all but certain float32's rounding of the two would be larger
 * than what they have in common. */
static void fill_row(float *values, int64_t stride, const ensemble_work *work, const bp_mixture *in,
                     int64_t r)
{
    double variance, logprob = ensemble_target_logprob(in, r, &variance), wrong = -expm1(logprob);
    const double *totals = &work->totals[3 * r];
    double information = totals[1] < 0 ? 0 : totals[1];
    int32_t top = work->tops[r];
    int64_t agreeing = 0;

    for (int64_t m = 0; m < in->members; m++) {
        const bp_member_row *known = &in->known[m * in->known_stride + r];

        agreeing += known->top == top;
        values[(BP_MODEL_MEMBER + m) * stride] = known->logprob;
    }
    if (work->spread)
        values[(BP_MODEL_MEMBER + in->members) * stride] = (float)work->spread[r];
    values[BP_MODEL_LOGPROB * stride] = (float)logprob;
    values[BP_MODEL_EXPECTED_ENTROPY * stride] = (float)totals[0];
    values[BP_MODEL_MUTUAL_INFORMATION * stride] = (float)information;
    values[BP_MODEL_TOTAL_ENTROPY * stride] = (float)(totals[0] + information);
    values[BP_MODEL_LOGPROB_VARIANCE * stride] = (float)variance;
    values[BP_MODEL_AGREEMENT * stride] = (float)((double)agreeing / (double)in->members);
    values[BP_MODEL_CONFIDENCE * stride] = (float)exp((double)work->max[r]);
    values[BP_MODEL_CORRECT * stride] = top == in->targets[r] ? 1.0F : 0.0F;
    values[BP_MODEL_BRIER * stride] = (float)(totals[2] + wrong * wrong);
}

/* Some windows of a batch of `stride` tokens, in values[statistic * stride]. */
static bp_err score_part(ensemble *self, const bp_model_batch *part, float *values, int64_t stride)
{
    ensemble_work work;
    bp_err err = ensemble_prepare(self, &work, part, false);

    if (err == BP_OK)
        err = ensemble_run_backbones(self, &work, part);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; ensemble_is_last(self) && first < work.rows; first += work.chunk) {
        int64_t rows = first + work.chunk < work.rows ? work.chunk : work.rows - first;

        ensemble_mix(self, &work, first, rows);
        bp_mixture in = ensemble_mixture(self, &work, first, rows);
        for (int64_t r = 0; r < rows; r++)
            fill_row(values + work.places[first + r], stride, &work, &in, r);
    }
    return BP_OK;
}

static bp_err ensemble_score(bp_model *lm, const bp_model_batch *batch, float *values)
{
    ensemble *self = (ensemble *)lm;
    int64_t tokens = batch->windows * batch->length, floats = tokens * lm->info.statistics;
    bp_model_batch part;
    bp_err err = BP_OK;

    if (ensemble_is_of_texts(self))
        return ensemble_score_texts(self, batch, values);
    for (int64_t i = 0; i < floats; i++)
        values[i] = NAN;
    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += part.windows) {
        ensemble_take_part(self, batch, first, &part);
        err = score_part(self, &part, values + first * batch->length, tokens);
    }
    if (err == BP_OK)
        bp_bcast_bytes(values, floats * (int64_t)sizeof(float), self->mesh->pipelines - 1,
                       self->mesh->pipeline);
    return err;
}

/* ---- the rest of the face ---- */

const char *bp_ensemble_member_name(const bp_model *lm, int64_t member)
{
    return ((const ensemble *)lm)->members[member].name;
}

double bp_ensemble_member_oob(const bp_model *lm, int64_t member)
{
    return ((const ensemble *)lm)->members[member].oob;
}

void ensemble_free(bp_model *lm)
{
    ensemble *self = (ensemble *)lm;

    for (int64_t k = 0; self->members && k < self->member_count; k++)
        bp_free(self->members[k].name);
    for (int64_t k = 0; self->models && k < self->model_count; k++)
        bp_model_free(&self->models[k]);
    bp_free(self->members);
    bp_free(self->models);
    bp_free(self->backbones);
    bp_free(self->receiving);
    bp_free(self->sending);
    bp_free(self->memory);
    bp_free(self);
}

const bp_model_ops ensemble_ops = {.score = ensemble_score,
                                   .free = ensemble_free,
                                   .decode_new = ensemble_decode_new,
                                   .decode_reset = ensemble_decode_reset,
                                   .decode = ensemble_decode,
                                   .decode_free = ensemble_decode_free,
                                   .decode_sources = ensemble_decode_sources,
                                   .decode_bytes = ensemble_decode_bytes};
