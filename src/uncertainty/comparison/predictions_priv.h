/* Predictions of others: what predictions.c and predictions_sets.c share. Local: no MPI. */
#pragma once

#include "uncertainty/comparison/job_priv.h"
#include "uncertainty/comparison/predictions_file.h"

#include <math.h>

/** What a score run of a model of the study says of its documents: their predictions and labels. */
typedef struct scored_rows {
    int64_t count;          /* rows of its table */
    float *logprob, *label; /* [count]; NaN if not scored; label: -1 if not known */
    int64_t *predictions;   /* [documents] */
    int64_t documents;
    char **names; /* [outcomes] of classes; NULL if there are none */
    int64_t outcomes;
    int64_t total; /* predictions: of a task all rows, of a language model those with a logprob */
} scored_rows;

/** Is row k a prediction? */
static inline bool comparison_row_predicts(const scored_rows *rows, int64_t k, bool classes)
{
    return classes || !isnan(rows->logprob[k]);
}

/** What the predictions of corpus.valid calibrate. */
typedef struct comparison_calibrated {
    comparison_set_fit sets; /* predictions = 0: there are none */
    double temperature;      /* 0: there is none */
} comparison_calibrated;

/** Calibrate method m on its predictions of corpus.valid: rows [first, first + valid->total) of
 * `of`. Its sets and its temperature go to the record, and to *out.
 *
 * On the coordinator. Errors: those of comparison_job_keep_sets and of the temperature's record. */
bp_err comparison_calibrate_predictions(const comparison_job *self, int64_t m,
                                        const bp_predictions *of, int64_t first,
                                        const scored_rows *valid, comparison_calibrated *out);
/** out[c * stride] of row `row`, for BP_MODEL_SET_RANK <= c < BP_MODEL_SET_END; label -1: not
 * known. Local. */
void comparison_fill_sets(float *out, int64_t stride, const bp_predictions *of, int64_t row,
                          int64_t label, const bp_conformal_rule *rule);
/** out[k * stride] of row `row`, k counted from BP_MODEL_TEMPERED_LOGPROB to
 * BP_MODEL_TEMPERED_END; label -1: not known. Local. */
void comparison_fill_tempered(float *out, int64_t stride, const bp_predictions *of, int64_t row,
                              int64_t label, double temperature);
