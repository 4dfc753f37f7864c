/* Scoring with an ensemble: the statistics of a scored row over its members. Called by
 * ensemble_open.c and infer/score/setup.c. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"
#include "base/files/hash.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

/* values[extra * stride] of the existing extras. */
static void fill_extras(float *values, int64_t stride, const ensemble_work *work,
                        const bp_mixture *in, int64_t r, unsigned extras)
{
    double normaliser = 0, more = 0, M = (double)in->members;

    for (int64_t m = 0; m < in->members; m++) {
        const bp_member_row *known = &in->known[m * in->known_stride + r];

        normaliser += ((double)known->max + known->log_total) / M;
        more += (double)known->more / M;
    }
    double found[BP_MODEL_EXTRAS] = {[BP_EXTRA_SPREAD] = work->spread ? work->spread[r] : 0,
                                     [BP_EXTRA_NORMALISER] = normaliser,
                                     [BP_EXTRA_VARIANCE] = more,
                                     [BP_EXTRA_DISTANCE] = more};
    for (int e = 0; e < BP_MODEL_EXTRAS; e++)
        if (extras >> e & 1)
            values[bp_model_extras_before(extras, e) * stride] = (float)found[e];
}

/* One scored row: values[statistic * stride].
 *
 * The total is computed as the sum of its parts. Computed as H[p] it would come from another sum
 * over the vocabulary, and for an almost certain token the float32 rounding of the two would exceed
 * their difference. */
static void fill_row(const ensemble *self, float *values, int64_t stride, const ensemble_work *work,
                     const bp_mixture *in, int64_t r)
{
    double variance, logprob = ensemble_target_logprob(in, r, &variance), wrong = -expm1(logprob);
    const double *totals = &work->totals[3 * r];
    double information = totals[1] < 0 ? 0 : totals[1];
    int32_t top = work->tops[r];
    int64_t agreeing = 0, first = bp_model_first_member(&self->model.info);

    for (int64_t m = 0; m < in->members; m++) {
        const bp_member_row *known = &in->known[m * in->known_stride + r];

        agreeing += known->top == top;
        values[(first + m) * stride] = known->logprob;
    }
    fill_extras(values + (first + in->members) * stride, stride, work, in, r,
                self->model.info.extras);
    if (work->sets)
        ensemble_fill_sets(values, stride, &work->set_rows[r]);
    if (self->model.info.tempered)
        ensemble_fill_tempered(values + bp_model_first_tempered(&self->model.info) * stride, stride,
                               self->beta, (double)work->max[r], logprob,
                               (const double[]){work->powers[r * ENSEMBLE_POWERS].power,
                                                work->powers[r * ENSEMBLE_POWERS + 1].power});
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

/* log_p[rows][outcomes]: the mixture's of this rank's columns, by the formula of a target. Writes
 * known.logprob. */
static void fill_distributions(const ensemble *self, float *log_p, const ensemble_work *work,
                               const bp_mixture *in)
{
    int64_t V = self->model.info.vocab_size;

#pragma omp parallel for schedule(static) if (in->rows * in->columns > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        for (int64_t v = 0; v < in->columns; v++) {
            double variance;

            for (int64_t m = 0; m < in->members; m++) {
                bp_member_row *known = &work->known[m * in->known_stride + r];
                float logit = in->logits[m * in->member_stride + r * in->columns + v];

                known->logprob = (float)((double)logit - (double)known->max - known->log_total);
            }
            log_p[r * V + in->first + v] = (float)ensemble_target_logprob(in, r, &variance);
        }
}

/* The request for a batch; the next row, and values of `stride` tokens: values[statistic *
 * stride] */
typedef struct answers {
    float *log_p, *values; /* NULL if not requested */
    int64_t stride;
} answers;

static bp_err score_part(ensemble *self, const bp_model_batch *part, const answers *out)
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
        if (work.sets)
            ensemble_find_sets(self, &work, &in);
        if (self->model.info.tempered)
            ensemble_find_powers(self, &work, &in);
        for (int64_t r = 0; r < rows && out->values; r++)
            fill_row(self, out->values + work.positions[first + r], out->stride, &work, &in, r);
        if (out->log_p)
            fill_distributions(self, out->log_p + first * self->model.info.vocab_size, &work, &in);
    }
    return BP_OK;
}

/* All parts of the batch, on the last stage's ranks. */
static bp_err score_parts(ensemble *self, const bp_model_batch *batch, float *log_p, float *values)
{
    answers out = {.log_p = log_p, .stride = batch->windows * batch->length};
    bp_model_batch part;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += part.windows) {
        ensemble_take_part(self, batch, first, &part);
        out.values = values ? values + first * batch->length : NULL;
        err = score_part(self, &part, &out);
        if (log_p)
            out.log_p += bp_model_batch_rows(&part) * self->model.info.vocab_size;
    }
    return err;
}

/* From the last stage to all. */
static void share(const ensemble *self, float *floats, int64_t count)
{
    bp_bcast_bytes(floats, count * (int64_t)sizeof *floats, self->mesh->pipeline_ranks - 1,
                   self->mesh->pipeline);
}

/* Each rank has some columns of each row, and 0 in the others. */
static void complete(const ensemble *self, float *log_p, int64_t floats)
{
    float *scratch;

    if (!ensemble_is_last(self) || self->mesh->members * self->mesh->tensor_ranks == 1)
        return;
    scratch = bp_alloc("infer.ensemble", floats, sizeof *scratch);
    bp_all_sum(log_p, floats, scratch, self->mesh->across);
    bp_all_sum(log_p, floats, scratch, self->mesh->tensor);
    bp_free(scratch);
}

static bp_err ensemble_distribution(bp_model *model, const bp_model_batch *batch, int64_t pass,
                                    float *log_p, float *values)
{
    ensemble *self = (ensemble *)model;
    int64_t statistics = batch->windows * batch->length * model->info.statistics,
            floats = log_p ? bp_model_batch_rows(batch) * model->info.vocab_size : 0;
    bp_err err;

    (void)pass; /* members have their own */
    if (ensemble_is_of_texts(self))
        return ensemble_run_texts(self, batch, log_p, values);
    for (int64_t i = 0; values && i < statistics; i++)
        values[i] = NAN;
    for (int64_t i = 0; i < floats; i++)
        log_p[i] = 0;
    err = score_parts(self, batch, log_p, values);
    if (err != BP_OK)
        return err;
    if (values)
        share(self, values, statistics);
    if (log_p) {
        complete(self, log_p, floats);
        share(self, log_p, floats);
    }
    return BP_OK;
}

static bp_err ensemble_score(bp_model *model, const bp_model_batch *batch, float *values)
{
    return ensemble_distribution(model, batch, BP_MODEL_NO_DROPOUT, NULL, values);
}

/* ---- the rest of the face ---- */

bp_model *bp_ensemble_member_model(const bp_model *model, int64_t member)
{
    const ensemble *self = (const ensemble *)model;
    int64_t backbone = self->members[member].backbone;

    return backbone < 0 ? NULL : self->backbones[backbone].model;
}

const char *bp_ensemble_member_name(const bp_model *model, int64_t member)
{
    return ((const ensemble *)model)->members[member].name;
}

double bp_ensemble_member_oob(const bp_model *model, int64_t member)
{
    return ((const ensemble *)model)->members[member].oob;
}

static void add_text(bp_sha256 *hash, const char *text)
{
    bp_sha256_update(hash, text, strlen(text) + 1);
}

void bp_ensemble_digest(const char *way, const char *const *digests, int64_t count, char out[65])
{
    bp_sha256 *hash = bp_sha256_new();

    add_text(hash, way ? way : "list");
    for (int64_t k = 0; k < count; k++)
        add_text(hash, digests[k]);
    bp_sha256_finish(&hash, out);
}

void ensemble_free(bp_model *model)
{
    ensemble *self = (ensemble *)model;

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
                                   .distribution = ensemble_distribution,
                                   .free = ensemble_free,
                                   .decode_new = ensemble_decode_new,
                                   .decode_reset = ensemble_decode_reset,
                                   .decode = ensemble_decode,
                                   .decode_free = ensemble_decode_free,
                                   .decode_sources = ensemble_decode_sources,
                                   .decode_bytes = ensemble_decode_bytes};
