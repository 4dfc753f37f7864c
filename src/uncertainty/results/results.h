/* The results of a comparison's methods, from score folders to figures with intervals, and their
 * report: summary.json, tables, plots, a page. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "statistics/calibration.h"
#include "statistics/conformal.h"
#include "statistics/inference.h"
#include "statistics/risk.h"
#include "uncertainty/comparison/comparison.h"

/* ---- a method's scores, from its score folder ---- */

typedef enum comparison_score {
    COMPARISON_INFORMATION, /* mutual information */
    COMPARISON_ENTROPY,     /* of the mixture */
    COMPARISON_NLL, /* for classes, that of the most probable one: a shifted text may have no label
                     */
    /* These only for tasks with a softmax (bp_model_extra): */
    COMPARISON_ENERGY,   /* minus the logarithm of the sum of exp(logit) */
    COMPARISON_VARIANCE, /* of a Gaussian process's logits */
    COMPARISON_DISTANCE, /* distance of the state from those of training */
    COMPARISON_SPREAD,   /* differential entropy of one prior network's Dirichlet */
    COMPARISON_SCORES
} comparison_score;

/** Scores that distinguish certain tokens from others: high is uncertain. */
typedef enum comparison_order {
    COMPARISON_BY_CONFIDENCE, /* minus the largest probability */
    COMPARISON_BY_ENTROPY,
    COMPARISON_BY_INFORMATION,
    COMPARISON_ORDERS
} comparison_order;
extern const char *const comparison_order_names[]; /* "confidence", ... */

enum { /* columns of a method's figures, followed by those of selective predictions
          (COMPARISON_COVERAGES), and by three for each shift and score */
       COMPARISON_FIGURE_NLL,
       COMPARISON_FIGURE_ACCURACY,
       COMPARISON_FIGURE_BRIER,
       COMPARISON_FIGURE_ECE,
       COMPARISON_FIGURE_ECE_ADAPTIVE,
       COMPARISON_FIGURE_SQUARED, /* calibration error, debiased */
       COMPARISON_FIGURE_AURC,
       /* at the temperature fitted on corpus.valid, where a method has it: */
       COMPARISON_FIGURE_TEMPERED_NLL,
       COMPARISON_FIGURE_TEMPERED_BRIER,
       COMPARISON_FIGURE_TEMPERED_ECE,
       COMPARISON_FIGURE_TEMPERED_SQUARED,
       COMPARISON_FIGURES,
       COMPARISON_DETECTED = COMPARISON_FIGURES + COMPARISON_COVERAGES
};

typedef struct comparison_scores {
    int64_t documents;                   /* of all corpora */
    double *means[COMPARISON_SCORES];    /* [documents]; NaN if no token was scored */
    bool has[COMPARISON_SCORES];         /* the file has the data of the score */
    int64_t domain;                      /* documents of the in-domain group */
    int64_t *doc_start;                  /* [domain + 1] */
    float *uncertain[COMPARISON_ORDERS]; /* [doc_start[domain]] of tokens */
    float *nll;
    unsigned char *correct;
    bp_calibration *calibration; /* [domain] */
    bp_calibration *tempered;    /* [domain]; NULL if the file has none */
    /* For regressions, where nll is the squared error, and correct: within the 95 % interval
     */
    bool real;
    double *figures[COMPARISON_FIGURES]; /* [domain] each: the quantity averaged; NULL if it is not
                                            a mean */
    double covered[BP_CALIBRATION_BINS]; /* share of values in the central interval of the level of
                                            a bin's middle */
} comparison_scores;

/** tokens[documents]: the number of scored tokens of each document, from `folder`/documents.h5,
 * which must have `documents` documents, or BP_ERR_FORMAT. classes: the number of predictions of
 * each document of `folder`/outcomes.h5 instead. Owns: bp_free(). */
bp_err comparison_scores_count(int64_t **tokens, const char *folder, int64_t documents,
                               bool classes);

/** From `folder`/outcomes.h5: how many documents are longer than the positions that a model reads.
 * 0 if the file is of an older version, or of predictions of others. */
bp_err comparison_scores_find_cut(int64_t *cut, int64_t *positions, const char *folder);

/** Read `folder`/tokens.h5, cut into documents by `tokens`; or `folder`/outcomes.h5.
 *
 * in_domain: documents whose tokens are kept; each has some.
 * Owns:       *out: comparison_scores_clear(), after an error too.
 * Errors:     those of bp_h5_open and bp_h5_read; BP_ERR_FORMAT numbers of scored tokens that
 *             differ from `tokens`; a document of the domain without a class that the models know;
 *             BP_ERR_SYSTEM.
 */
bp_err comparison_scores_read(comparison_scores *out, const char *folder, const int64_t *tokens,
                              int64_t documents, const comparison_group *in_domain, bool classes);
/** The same for regressions whose noise has this variance. A prediction is a Gaussian with the mean
 * of the members' values; its variance is theirs plus that of the noise. */
bp_err comparison_values_read(comparison_scores *out, const char *folder, int64_t documents,
                              const comparison_group *in_domain, double noise);
void comparison_scores_clear(comparison_scores *scores);

/** Keep a group's documents that have scored tokens. Returns how many were dropped. */
int64_t comparison_group_filter(comparison_group *group, const int64_t *tokens);

/* ---- clusters (clusters.c) ---- */

/** local[documents of the group]: the number of each document's cluster among those of the group,
 * from 0 (NULL: not wanted). cluster NULL: each document is one. Returns how many there are. */
int64_t comparison_clusters_of(int64_t *local, const int64_t *cluster,
                               const comparison_group *group);
/** The sums of each cluster's documents [n]. Owns: the result [clusters] is the caller's,
 * bp_free(). */
bp_calibration *comparison_clusters_merge(const bp_calibration *documents, const int64_t *local,
                                          int64_t n, int64_t clusters);

/* ---- figures ---- */

enum { COMPARISON_AUROC, COMPARISON_AUPR, COMPARISON_FPR95, COMPARISON_DETECTIONS };
struct comparison_results;
/** "nll", "accuracy", ..., then "accuracy_at_80" for each coverage; for regressions "nll",
 * "coverage_95", "mae", "calibration_error", "variance", "mse", "aurc" and "mse_at_80", in the same
 * columns. NULL: no method has it. */
const char *comparison_figure_name(const struct comparison_results *results, int figure);
/** How many there are. */
int comparison_figures(const struct comparison_results *results);
/** The name of the root of COMPARISON_FIGURE_SQUARED, "rms_calibration_error" or "rmse", or of
 * COMPARISON_FIGURE_TEMPERED_SQUARED. */
const char *comparison_root_name(const struct comparison_results *results, int figure);
static inline bool comparison_has_root(int figure)
{
    return figure == COMPARISON_FIGURE_SQUARED || figure == COMPARISON_FIGURE_TEMPERED_SQUARED;
}
extern const char *const comparison_detection_names[]; /* "auroc", "aupr", "fpr95" */

/** Columns with `shifts` shifts, and the column of one figure of detection. */
int64_t comparison_columns(int64_t shifts);
int64_t comparison_column(int64_t shift, int score, int detection);

typedef struct comparison_value {
    double value, low, high; /* the 95 % interval; NaN if no interval covers 95 % */
} comparison_value;

typedef struct comparison_point {
    double fpr, tpr;
} comparison_point;

typedef struct comparison_curve {
    comparison_point *points;
    int64_t count;
} comparison_curve;

#define COMPARISON_HISTOGRAM_BINS 30
typedef struct comparison_histogram {
    double bottom, top; /* bins of equal width between them */
    int64_t *counts;    /* [1 + shifts][COMPARISON_HISTOGRAM_BINS]: in the domain first */
} comparison_histogram;
/** The lower edge of bin b; b + 0.5 gives its middle. */
double comparison_histogram_edge(const comparison_histogram *histogram, double b);

/** The result of one method. */
typedef struct comparison_result {
    int64_t documents, tokens; /* in the domain */
    comparison_value *values;  /* [columns] */
    double *resampled;         /* [resamples][columns] */
    int64_t *fewest; /* [columns]: draws from the smallest set: its number of documents, or
                        of clusters */
    bool has[COMPARISON_SCORES]; /* there are figures by this score */
    bp_reliability bars[BP_CALIBRATION_BINS];
    bp_risk risk[COMPARISON_ORDERS];
    /* 95 % intervals of the accuracy of a bar and of the error rate of a risk: NaN of tokens, tags
     * and ends, which depend on each other, and of values with clusters. With clusters, of
     * resamples of these; otherwise Wilson's. */
    bp_interval bar_limits[BP_CALIBRATION_BINS];
    bp_interval risk_limits[COMPARISON_ORDERS][BP_RISK_POINTS];
    comparison_value *means; /* [1 + shifts][COMPARISON_SCORES]: of a document, in the domain first;
                                the interval is Student's over documents or clusters */
    comparison_curve *curves; /* [shifts][COMPARISON_SCORES]: ROC */
    comparison_histogram histogram;
} comparison_result;

/** exp of the NLL and of the ends of its interval; NaN for regressions. */
comparison_value comparison_perplexity(const struct comparison_results *results,
                                       const comparison_result *result);
/** The root of a squared calibration error and of the ends of its interval; 0 if negative. */
comparison_value comparison_rms(const comparison_result *result, int figure);

typedef struct comparison_analysis_spec {
    uint64_t seed;
    int64_t resamples;
    bool one; /* one distribution: no mutual information, and no figures by it (NaN, no curve) */
    const comparison_group *in_domain; /* filtered */
    const comparison_groups *shifted;  /* filtered */
    const int64_t *cluster;            /* as comparison_results.cluster */
    bool limits;                       /* comparison_has_limits */
    const comparison_coverages *coverages;
} comparison_analysis_spec;

/** Errors: BP_ERR_SYSTEM. Clear after an error too. */
bp_err comparison_analyse(comparison_result *out, const comparison_scores *scores,
                          const comparison_analysis_spec *spec);
void comparison_result_clear(comparison_result *result, int64_t shifts);
/** Fill `means`, after `has`. local[1 + shifts] and clusters[1 + shifts]: as of
 * comparison_clusters_of, of each group. */
void comparison_find_means(comparison_result *out, const comparison_scores *scores,
                           const comparison_analysis_spec *spec, int64_t *const *local,
                           const int64_t *clusters);
/** Fill `bar_limits` and `risk_limits`, after bars and risks. orders[COMPARISON_ORDERS]; local, and
 * how many clusters, as of comparison_clusters_of. Errors: those of bp_bootstrap_run. */
bp_err comparison_find_limits(comparison_result *out, const comparison_scores *scores,
                              const comparison_analysis_spec *spec, bp_token_order *const *orders,
                              const int64_t *local, int64_t clusters);

/** one - other, on the same resamples. values[columns]. Errors: those of bp_interval_of_difference.
 */
bp_err comparison_difference(comparison_value *values, const comparison_result *one,
                             const comparison_result *other, int64_t columns, int64_t resamples);

/* ---- the result of a comparison ---- */

/** The cost of a method. NaN if unknown. */
typedef struct comparison_cost {
    double train_seconds; /* the sum of `seconds` in the metrics of its models */
    double fit_seconds;   /* of :laplace or :mahalanobis */
    double score_seconds; /* over all starts that finished or were stopped in time */
    double memory_mib;    /* peak resident memory of the largest rank while scoring */
} comparison_cost;

/** Temperature scaling on validation text. NaN if there is none. */
typedef struct comparison_temperature {
    double temperature;
    double before, after; /* NLL per token on that text at temperature 1 and at this one */
    bool at_edge;         /* the best may be outside the temperatures tried */
    int64_t tokens;
    double noise; /* for regressions: the variance of the noise of values */
} comparison_temperature;

/** Conformal sets: thresholds, and the data used for the fit. */
typedef struct comparison_set_fit {
    bp_conformal_rule rule;
    double coverage;
    int64_t predictions; /* of corpus.valid; 0 if there are no sets */
} comparison_set_fit;

/** How often the sets of some predictions contain the truth, and their mean size. */
typedef struct comparison_set_group {
    const char *of; /* "domain", "shift", "label" (of documents), "outcome" */
    char *name;
    int64_t documents, predictions; /* whose outcome is known */
    comparison_value coverage[BP_CONFORMAL_KINDS], size[BP_CONFORMAL_KINDS];
} comparison_set_group;

typedef struct comparison_sets {
    comparison_set_fit fit;
    comparison_set_group *groups; /* [count]: the domain, shifts, labels, outcomes */
    int64_t count;
} comparison_sets;

/** Read the sets of a method's score folder, and compute their coverage and size. The caller sets
 * `out->fit`; a folder without sets has no groups.
 *
 * Errors:     those of bp_h5_open, bp_h5_read and bp_bootstrap_run; BP_ERR_FORMAT numbers of
 *             predictions that differ from tokens[]. */
struct comparison_results;
bp_err comparison_sets_read(comparison_sets *out, const struct comparison_results *results,
                            const char *folder, const int64_t *tokens, int64_t documents);
void comparison_sets_clear(comparison_sets *sets);
/** Members of summary.json, and rows of the page; NULL for a study, or a method, without sets.
 * Owns: new references. */
json_t *comparison_sets_summary(const comparison_sets *sets);
json_t *comparison_sets_page(const struct comparison_results *results);
bool comparison_has_sets(const struct comparison_results *results);
/** Log coverage and mean size in the domain; `width` of the first column. */
void comparison_sets_print(const struct comparison_results *results, int width);

typedef struct comparison_results {
    char *folder; /* RUN/uncertainty */
    comparison_methods methods;
    comparison_metadata *metadata; /* [methods] */
    int64_t *members; /* [methods]: number of distributions mixed: members, passes or samples */
    comparison_groups in_domain, shifted;
    int64_t *dropped; /* [1 + shifts]: documents without scored tokens */
    int64_t resamples;
    uint64_t seed;
    const char *cluster_label; /* uncertainty.cluster; NULL: there are no clusters. Borrowed */
    int64_t *cluster; /* [documents of all corpora] those of one number are resampled together;
                         NULL: each alone */
    bool scaled;      /* a validation text is given */
    int64_t texts, cut, positions; /* of all documents the models read the first `positions` tokens;
                                   `cut` have more. 0: they read all */
    const bp_task_kind *task;      /* of all models */
    bool classes;                  /* for a task: outcomes.h5 has its predictions */
    comparison_coverages coverages;
    char coverage_names[COMPARISON_COVERAGES][24];

    comparison_result *results;           /* [methods] */
    comparison_cost *costs;               /* [methods] */
    comparison_temperature *temperatures; /* [methods] */
    comparison_sets *sets;                /* [methods] */
    comparison_value *differences; /* [pairs][columns]: of method i and each k > i, in order */
} comparison_results;

/** The unit of a prediction: "token", "document", "word"; "end": where an answer begins or ends in
 * a window. */
const char *comparison_prediction_name(const comparison_results *results);
/** "mutual_information", "entropy", "nll" (for classes "confidence"), "energy", ... */
const char *comparison_score_name(const comparison_results *results, int score);
/** The same for people: "mutual information", "NLL", ... */
const char *comparison_score_title(const comparison_results *results, int score);
/** Does any method have figures by it? The first three are always shown. */
bool comparison_has_score(const comparison_results *results, int score);

/** Has the accuracy of a bar of reliability an interval? So has an error rate of the risk. */
static inline bool comparison_has_limits(const comparison_results *results)
{
    return results->task->whole_text && !(results->task->is_value && results->cluster);
}

/** Allocate the results of each method. */
void comparison_results_init(comparison_results *results);
void comparison_results_clear(comparison_results *results);

/** Analyse RUN/uncertainty/scores/NAME of all methods: results and differences. `documents` as in
 * the corpora. Errors: those of comparison_scores_read; BP_ERR_FORMAT methods that scored different
 * tokens, a group with fewer than 2 documents with scored tokens. */
bp_err comparison_results_analyse(comparison_results *results, int64_t documents);

/** summary.json. Owns: a new reference. */
json_t *comparison_summary(const comparison_results *results);
/** The definition of each figure, in a sentence: `definitions` of the summary, and of the page.
 * NULL ends the list. */
typedef struct comparison_definition {
    const char *key, *title, *text;
    const char *of_classes; /* the text if outcomes are classes; NULL: the same */
    const char *of_parts;   /* if they are tags, or ends of spans; NULL: as for tokens */
} comparison_definition;
/** The definitions for the results' task. */
const comparison_definition *comparison_definitions_of(const comparison_results *results);
const char *comparison_definition_text(const comparison_results *results,
                                       const comparison_definition *one);

/** methods.csv, detection.csv, differences.csv, reliability.csv, risk_coverage.csv, roc.csv,
 * histogram.csv. Errors: those of bp_file_write. */
bp_err comparison_tables_write(const comparison_results *results);
/** Add cells to a row, one per letter: t a text, quoted if necessary; i an int64_t; r a double with
 * all its digits, empty if not finite; v a comparison_value *, three cells; a line break ends the
 * row. */
void comparison_csv_put(bp_buffer *row, const char *cells, ...);

/** plots/NAME.gp, .svg and .png, from the tables. A missing or failing gnuplot is a warning.
 * Errors: those of bp_file_write, bp_dir_make and bp_report_script. */
bp_err comparison_plots_draw(const comparison_results *results);
/** The existing plots, in order: file names without suffix and titles. A NULL name ends the list.
 * Owns: names and titles are the caller's, comparison_plots_clear(). */
typedef struct comparison_plot {
    char *name, *title;
    const char *kind; /* of the installed script uncertainty-KIND.gp */
    int64_t shift;    /* ROC: the shift */
    int64_t method;   /* histogram: the method */
} comparison_plot;
comparison_plot *comparison_plots_list(const comparison_results *results);
void comparison_plots_clear(comparison_plot **plots);

/** index.html. Errors: those of bp_report_page. */
bp_err comparison_page_write(const comparison_results *results);

/** Log the table of methods. */
void comparison_results_print(const comparison_results *results);
