/* What the methods of a study come to: from score folders to figures with intervals. Local: no MPI.
 */
#ifndef BP_ANALYSIS_UNCERTAINTY_ANALYSIS_PRIV_H
#define BP_ANALYSIS_UNCERTAINTY_ANALYSIS_PRIV_H

#include "analysis/uncertainty/study_priv.h"
#include "statistics/calibration.h"
#include "statistics/risk.h"

/* ---- what a method said, from its score folder ---- */

typedef enum study_score {
    STUDY_INFORMATION, /* mutual information */
    STUDY_ENTROPY,     /* of the mixture */
    STUDY_NLL,
    STUDY_SCORES
} study_score;
const char *study_score_name(study_score score); /* "mutual_information", "entropy", "nll" */

/** What tells certain tokens from others: high is uncertain. */
typedef enum study_order {
    STUDY_BY_CONFIDENCE, /* minus the largest probability */
    STUDY_BY_ENTROPY,
    STUDY_BY_INFORMATION,
    STUDY_ORDERS
} study_order;
const char *study_order_name(study_order order); /* "confidence", ... */

typedef struct study_scores {
    int64_t documents;              /* of all corpora */
    double *means[STUDY_SCORES];    /* [documents]; NaN: no token was scored */
    int64_t domain;                 /* documents of the in-domain group */
    int64_t *doc_start;             /* [domain + 1] */
    float *uncertain[STUDY_ORDERS]; /* [doc_start[domain]] of tokens */
    float *nll;
    unsigned char *correct;
    bp_calibration *calibration; /* [domain] */
} study_scores;

/** tokens[documents]: how many tokens of each document `folder`/documents.h5 says were scored; of
 * `documents` documents, or BP_ERR_FORMAT. Owns: bp_free(). */
bp_err study_scores_count(int64_t **tokens, const char *folder, int64_t documents);

/** Read `folder`/tokens.h5, cut into documents by `tokens`.
 *
 * in_domain: documents of which tokens are kept; all have some.
 * Owns:       *out: study_scores_clear(), after an error too.
 * Errors:     those of bp_h5_open and bp_h5_read; BP_ERR_FORMAT other numbers of scored tokens than
 *             `tokens` has; BP_ERR_SYSTEM.
 */
bp_err study_scores_read(study_scores *out, const char *folder, const int64_t *tokens,
                         int64_t documents, const study_group *in_domain);
void study_scores_clear(study_scores *scores);

/** Keep of a group the documents of which something was scored. Returns how many were dropped. */
int64_t study_group_filter(study_group *group, const int64_t *tokens);

/* ---- figures ---- */

enum { /* columns of a method's figures; behind them, for each shift and score, three more */
       STUDY_FIGURE_NLL,
       STUDY_FIGURE_ACCURACY,
       STUDY_FIGURE_BRIER,
       STUDY_FIGURE_ECE,
       STUDY_FIGURE_ECE_ADAPTIVE,
       STUDY_FIGURE_SQUARED, /* calibration error, debiased */
       STUDY_FIGURE_AURC,
       STUDY_FIGURES
};
enum { STUDY_AUROC, STUDY_AUPR, STUDY_FPR95, STUDY_DETECTIONS };
const char *study_figure_name(int figure);       /* "nll", "accuracy", ... */
const char *study_detection_name(int detection); /* "auroc", "aupr", "fpr95" */

/** Columns with so many shifts, and the column of one figure of detection. */
int64_t study_columns(int64_t shifts);
int64_t study_column(int64_t shift, study_score score, int detection);

typedef struct study_value {
    double value, low, high; /* the 95 % interval; NaN: there is none that covers 95 % */
} study_value;

typedef struct study_point {
    double fpr, tpr;
} study_point;

typedef struct study_curve {
    study_point *points;
    int64_t count;
} study_curve;

#define STUDY_HISTOGRAM_BINS 30
typedef struct study_histogram {
    double bottom, top; /* bins of equal width between them */
    int64_t *counts;    /* [1 + shifts][STUDY_HISTOGRAM_BINS]: in the domain first */
} study_histogram;
/** The lower edge of bin b; 0.5 more is its middle. */
double study_histogram_edge(const study_histogram *histogram, double b);

/** What one method came to. */
typedef struct study_result {
    int64_t documents, tokens; /* in the domain */
    study_value *values;       /* [columns] */
    double *resampled;         /* [resamples][columns] */
    bp_reliability bars[BP_CALIBRATION_BINS];
    bp_risk risk[STUDY_ORDERS];
    study_curve *curves; /* [shifts][STUDY_SCORES]: ROC */
    study_histogram histogram;
} study_result;

/** exp of the NLL and of its ends. */
study_value study_perplexity(const study_result *result);
/** The root of the squared calibration error and of its ends, 0 of what is below 0. */
study_value study_rms(const study_result *result);

typedef struct study_analysis_spec {
    uint64_t seed;
    int64_t resamples;
    bool one; /* one distribution: no mutual information, and no figure by it (NaN, no curve) */
    const study_group *in_domain; /* filtered */
    const study_groups *shifted;  /* filtered */
} study_analysis_spec;

/** Errors: BP_ERR_SYSTEM. Clear after an error too. */
bp_err study_analyse(study_result *out, const study_scores *scores,
                     const study_analysis_spec *spec);
void study_result_clear(study_result *result, int64_t shifts);

/** one - other, on the same resamples. values[columns]. Errors: BP_ERR_SYSTEM. */
bp_err study_difference(study_value *values, const study_result *one, const study_result *other,
                        int64_t columns, int64_t resamples);

#endif
