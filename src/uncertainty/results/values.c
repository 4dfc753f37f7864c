/* Reading outcomes.h5 of regressions: predictions as Gaussians, and their figures. Called by
 * results.c. */
#include "uncertainty/results/results.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"
#include "statistics/gaussian.h"

#include <inttypes.h>
#include <math.h>

#define VERSION 1 /* of score-outcomes */
#define PI      3.14159265358979323846
#define LEVEL   0.95

enum { LABEL, PREDICTION, VARIANCE, COLUMNS };
static const char *const NAMES[COLUMNS] = {"label", "prediction", "variance"};

static bp_err read_columns(float *columns[COLUMNS], const char *path, int64_t documents)
{
    bp_h5 *file = NULL;
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_open_kind(&file, path, "score-outcomes", VERSION);

    for (int c = 0; c < COLUMNS && err == BP_OK; c++) {
        err = bp_h5_shape_of(file, NAMES[c], &shape);
        if (err == BP_OK && shape.count != documents)
            err = BP_FAIL(BP_ERR_FORMAT, "scores.unlike_corpus",
                          "the table has %" PRId64 " documents, the corpora have %" PRId64
                          ": at %s; remove its folder, to score again",
                          shape.count, documents, path);
        if (err == BP_OK)
            err = bp_h5_read(file, NAMES[c], BP_H5_F32, 0, columns[c], documents);
        for (int64_t d = 0; d < documents && err == BP_OK; d++)
            if (!isfinite(columns[c][d]))
                err = BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                              "%s of document %" PRId64 " is not finite: at %s; the table is "
                              "damaged, or the model diverged",
                              NAMES[c], d, path);
    }
    bp_h5_drop(&file);
    return err;
}

/* The values kept for documents. */
static void reserve(comparison_scores *out)
{
    static const int MEANS[] = {COMPARISON_FIGURE_NLL, COMPARISON_FIGURE_ACCURACY,
                                COMPARISON_FIGURE_BRIER, COMPARISON_FIGURE_ECE_ADAPTIVE,
                                COMPARISON_FIGURE_SQUARED};
    int64_t n = out->domain;

    out->doc_start = bp_alloc("comparison.scores", n + 1, sizeof *out->doc_start);
    out->calibration = bp_alloc("comparison.scores", n, sizeof *out->calibration);
    out->nll = bp_alloc("comparison.scores", n, sizeof *out->nll);
    out->correct = bp_alloc("comparison.scores", n, sizeof *out->correct);
    for (int s = 0; s < COMPARISON_SCORES; s++)
        out->means[s] = bp_alloc("comparison.scores", out->documents, sizeof(double));
    for (int o = 0; o < COMPARISON_ORDERS; o++)
        out->uncertain[o] = bp_alloc("comparison.scores", n, sizeof(float));
    for (size_t k = 0; k < sizeof MEANS / sizeof MEANS[0]; k++)
        out->figures[MEANS[k]] = bp_alloc("comparison.scores", n, sizeof(double));
}

/* Document d of the domain. */
static void take_value(comparison_scores *out, int64_t d, double error, double variance,
                       double noise)
{
    double total = variance + noise, within = bp_gaussian_within(error, total),
           nll = bp_gaussian_nll(error, total);

    out->doc_start[d + 1] = d + 1;
    out->nll[d] = (float)(error * error);
    out->correct[d] = within <= LEVEL;
    out->figures[COMPARISON_FIGURE_NLL][d] = nll;
    out->figures[COMPARISON_FIGURE_ACCURACY][d] = within <= LEVEL;
    out->figures[COMPARISON_FIGURE_BRIER][d] = fabs(error);
    out->figures[COMPARISON_FIGURE_ECE_ADAPTIVE][d] = variance;
    out->figures[COMPARISON_FIGURE_SQUARED][d] = error * error;
    bp_calibration_add(&out->calibration[d], (float)LEVEL, out->correct[d], nll, 0);
    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        out->covered[b] += (within <= (b + 0.5) / BP_CALIBRATION_BINS) / (double)out->domain;
}

bp_err comparison_values_read(comparison_scores *out, const char *folder, int64_t documents,
                              const comparison_group *in_domain, double noise)
{
    static const int SCORE_OF[COMPARISON_ORDERS] = {[COMPARISON_BY_CONFIDENCE] = COMPARISON_NLL,
                                                    [COMPARISON_BY_ENTROPY] = COMPARISON_ENTROPY,
                                                    [COMPARISON_BY_INFORMATION] =
                                                        COMPARISON_INFORMATION};
    char *path = bp_path_join(folder, "outcomes.h5");
    float *columns[COLUMNS];
    bp_err err;

    *out = (comparison_scores){
        .documents = documents, .domain = in_domain->document_count, .real = true};
    for (int s = 0; s <= COMPARISON_NLL; s++)
        out->has[s] = true;
    for (int c = 0; c < COLUMNS; c++)
        columns[c] = bp_alloc("comparison.scores", documents, sizeof(float));
    reserve(out);
    err = read_columns(columns, path, documents);
    for (int64_t d = 0; d < documents && err == BP_OK; d++) {
        double variance = (double)columns[VARIANCE][d], total = variance + noise;

        out->means[COMPARISON_INFORMATION][d] = 0.5 * log1p(variance / noise);
        out->means[COMPARISON_ENTROPY][d] = 0.5 * (1 + log(2 * PI * total));
        out->means[COMPARISON_NLL][d] = 0.5 * log(2 * PI * total);
    }
    for (int64_t k = 0; k < out->domain && err == BP_OK; k++) {
        int64_t d = in_domain->documents[k];

        take_value(out, k, (double)columns[LABEL][d] - (double)columns[PREDICTION][d],
                   (double)columns[VARIANCE][d], noise);
        for (int o = 0; o < COMPARISON_ORDERS; o++)
            out->uncertain[o][k] = (float)out->means[SCORE_OF[o]][d];
    }
    for (int c = 0; c < COLUMNS; c++)
        bp_free(columns[c]);
    bp_free(path);
    return err;
}
