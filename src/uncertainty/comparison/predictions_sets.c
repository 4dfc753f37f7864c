/* Conformal sets and the temperature of predictions of others, from their predictions of
 * corpus.valid, and the statistics of rows by both. As of an ensemble, they are those of the mean
 * of the members. Called by predictions.c. */
#include "uncertainty/comparison/predictions_priv.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* An outcome of the mixture. */
typedef struct ranked {
    double p;
    int64_t outcome;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->p > y->p || x->p < y->p)
        return x->p > y->p ? -1 : 1;
    return (x->outcome > y->outcome) - (x->outcome < y->outcome);
}

/* The mean of the members. */
static double mixed(const bp_predictions *of, int64_t row, int64_t outcome)
{
    double sum = 0;

    for (int64_t m = 0; m < of->members; m++)
        sum += of->p[(m * of->rows + row) * of->outcomes + outcome];
    return sum / (double)of->members;
}

/* out[outcomes] of a row, the most probable first. */
static void rank(ranked *out, const bp_predictions *of, int64_t row)
{
    for (int64_t k = 0; k < of->outcomes; k++)
        out[k] = (ranked){mixed(of, row, k), k};
    qsort(out, (size_t)of->outcomes, sizeof *out, by_rank);
}

static bp_conformal_target find_target(const ranked *row, int64_t label)
{
    bp_conformal_target target = {0};

    while (row[target.before].outcome != label)
        target.above += row[target.before++].p;
    target.p = row[target.before].p;
    return target;
}

/* ---- calibration ---- */

/* f(b) = log sum p^b - b log p(target) and its derivatives. */
static void add_scaled(bp_scaled_sums *sums, const ranked *row, int64_t outcomes,
                       const bp_conformal_target *target)
{
    double most = log(row[0].p), of_target = log(target->p);

    for (int t = 0; t < BP_TEMPERATURE_POINTS; t++) {
        double b = bp_scaled_beta(t), power = 0, mean = 0, square = 0;

        for (int64_t k = 0; k < outcomes && row[k].p > 0; k++) {
            double logprob = log(row[k].p), p = exp(b * (logprob - most));

            power += p;
            mean += p * logprob;
            square += p * logprob * logprob;
        }
        mean /= power;
        sums->value[t] += b * most + log(power) - b * of_target;
        sums->first[t] += mean - of_target;
        sums->second[t] += square / power - mean * mean;
    }
    sums->tokens++;
}

/* In the record: the entry is of predictions, not of a model of this name. No fit has a figure of
 * this key (bp_fit_report). */
#define CALIBRATED "by_predictions"

bp_err comparison_job_forget_fits(const comparison_job *self, int64_t m)
{
    json_t *entry = comparison_record_of(self, m);

    if (json_object_size(entry) == 0)
        return BP_OK;
    (void)json_object_clear(entry); /* its costs too: they are those of what it was */
    return comparison_record_save(self);
}

bp_err comparison_job_forget_predictions(const comparison_job *self, int64_t m)
{
    return json_object_get(comparison_record_of(self, m), CALIBRATED)
               ? comparison_job_forget_fits(self, m)
               : BP_OK;
}

bp_err comparison_calibrate_predictions(const comparison_job *self, int64_t m,
                                        const bp_predictions *of, int64_t first,
                                        const scored_rows *valid, comparison_calibrated *out)
{
    ranked *row = bp_alloc("comparison.predictions", of->outcomes, sizeof *row);
    bp_conformal_target *targets =
        bp_alloc("comparison.predictions", valid->total, sizeof *targets);
    bp_scaled_sums sums = {.tokens = 0};
    json_t *entry = comparison_record_of(self, m);
    int64_t count = 0, at = first;
    double temperature;
    bp_err err;

    for (int64_t k = 0; k < valid->count; k++) {
        if (!comparison_row_predicts(valid, k, self->results.classes))
            continue;
        if (valid->label[k] >= 0) {
            rank(row, of, at);
            targets[count] = find_target(row, (int64_t)valid->label[k]);
            add_scaled(&sums, row, of->outcomes, &targets[count++]);
        }
        at++;
    }
    *out = (comparison_calibrated){.temperature = 0};
    (void)json_object_set_new(entry, CALIBRATED, json_true());
    err = comparison_job_keep_temperature(self, m, &sums);
    temperature = bp_json_number(json_object_get(entry, "temper"), "temperature");
    out->temperature = temperature > 0 ? temperature : 0; /* without labels: NaN */
    if (err == BP_OK && comparison_job_wants_sets(self) && count > 0) {
        comparison_job_fit_targets(self, targets, count, &out->sets);
        err = comparison_job_keep_sets(self, m, &out->sets);
    }
    bp_free(targets);
    bp_free(row);
    return err;
}

/* ---- the rows of the study ---- */

static bp_conformal_set find_set(const ranked *row, int64_t outcomes, bp_conformal_kind kind,
                                 const bp_conformal_rule *rule)
{
    const double one = 1;
    bp_conformal_prefix prefix = {0};

    for (int64_t k = 0; k < outcomes; k++)
        if (bp_conformal_walk(&prefix, kind, rule, &one, &row[k].p, 1) == 0)
            return bp_conformal_end(&prefix, kind, rule, row[k].p, 1);
    return (bp_conformal_set){outcomes, -1};
}

void comparison_fill_sets(float *out, int64_t stride, const bp_predictions *of, int64_t at,
                          int64_t label, const bp_conformal_rule *rule)
{
    ranked *row = bp_alloc("comparison.predictions", of->outcomes, sizeof *row);
    int64_t lac = 0;

    rank(row, of, at);
    while (lac < of->outcomes && bp_conformal_holds(rule, row[lac].p))
        lac++;
    const bp_conformal_set aps = find_set(row, of->outcomes, BP_CONFORMAL_APS, rule),
                           raps = find_set(row, of->outcomes, BP_CONFORMAL_RAPS, rule);

    out[BP_MODEL_SET_RANK * stride] = label < 0 ? NAN : (float)(find_target(row, label).before + 1);
    out[BP_MODEL_SET_LAC * stride] = (float)lac;
    out[BP_MODEL_SET_APS * stride] = (float)aps.whole;
    out[BP_MODEL_SET_APS_NEXT * stride] = (float)aps.next;
    out[BP_MODEL_SET_RAPS * stride] = (float)raps.whole;
    out[BP_MODEL_SET_RAPS_NEXT * stride] = (float)raps.next;
    bp_free(row);
}

void comparison_fill_tempered(float *out, int64_t stride, const bp_predictions *of, int64_t at,
                              int64_t label, double temperature)
{
    double most = 0, sum = 0, squares = 0;

    for (int64_t k = 0; k < of->outcomes; k++)
        most = fmax(most, mixed(of, at, k));
    for (int64_t k = 0; k < of->outcomes; k++) {
        double power = pow(mixed(of, at, k) / most, 1 / temperature);

        sum += power;
        squares += power * power;
    }
    const double logprob =
                     label < 0 ? 0 : log(mixed(of, at, label) / most) / temperature - log(sum),
                 p = exp(logprob), brier = squares / (sum * sum) - p * p + (1 - p) * (1 - p);

    out[0] = label < 0 ? NAN : (float)logprob;
    out[(BP_MODEL_TEMPERED_CONFIDENCE - BP_MODEL_TEMPERED_LOGPROB) * stride] = (float)(1 / sum);
    out[(BP_MODEL_TEMPERED_BRIER - BP_MODEL_TEMPERED_LOGPROB) * stride] =
        label < 0 ? NAN : (float)fmax(brier, 0);
}
