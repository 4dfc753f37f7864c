/* What a comparison came to, and how it is told: summary.json, tables, plots, a page. Local: no
 * MPI. */
#ifndef BP_ANALYSIS_UNCERTAINTY_RESULTS_RESULTS_PRIV_H
#define BP_ANALYSIS_UNCERTAINTY_RESULTS_RESULTS_PRIV_H

#include "analysis/uncertainty/results/analysis_priv.h"
#include "base/buffer.h"
#include "base/json.h"

/** What a method costs. NaN: not known. */
typedef struct comparison_cost {
    double train_seconds; /* the sum of `seconds` in the metrics of its models */
    double fit_seconds;   /* of a Laplace approximation */
    double score_seconds; /* over all starts that ended by themselves */
    double memory_mib;    /* peak resident memory of the largest rank while scoring */
} comparison_cost;

/** Temperature scaling on validation text. NaN: there is none. */
typedef struct comparison_temperature {
    double temperature;
    double before, after; /* NLL a token on that text at temperature 1 and at this one */
    bool at_edge;         /* the best may lie beyond the temperatures that were looked at */
    int64_t tokens;
} comparison_temperature;

typedef struct comparison_results {
    char *folder; /* RUN/uncertainty */
    char *command;
    comparison_methods methods;
    comparison_metadata *metadata; /* [methods] */
    int64_t *members; /* [methods]: distributions that are mixed: members, passes or samples */
    comparison_groups in_domain, shifted;
    int64_t *dropped; /* [1 + shifts]: documents without scored tokens */
    int64_t resamples;
    uint64_t seed;
    bool scaled; /* there is validation text */

    comparison_result *results;           /* [methods] */
    comparison_cost *costs;               /* [methods] */
    comparison_temperature *temperatures; /* [methods] */
    comparison_value *differences; /* [pairs][columns]: of method i and each k > i, in order */
} comparison_results;

/** Room for what is known of each method. */
void comparison_results_init(comparison_results *results);
void comparison_results_clear(comparison_results *results);

/** Analyse RUN/uncertainty/scores/NAME of all methods: results and differences. `documents` as in
 * the corpora. Errors: those of comparison_scores_read; BP_ERR_FORMAT methods that scored other
 * tokens, a group that has fewer than 2 documents with scored tokens. */
bp_err comparison_results_analyse(comparison_results *results, int64_t documents);

/** summary.json. Owns: a new reference. */
json_t *comparison_summary(const comparison_results *results);
/** What each figure is, in a sentence: `definitions` of the summary, and of the page. NULL ends. */
typedef struct comparison_definition {
    const char *key, *title, *text;
} comparison_definition;
extern const comparison_definition comparison_definitions[];

/** methods.csv, detection.csv, differences.csv, reliability.csv, risk_coverage.csv, roc.csv,
 * histogram.csv. Errors: those of bp_file_write. */
bp_err comparison_tables_write(const comparison_results *results);
/** Add cells to a row, a letter each: t a text, in quotes where it must be; i an int64_t; r a
 * double with all its digits, nothing for what is not finite; v a comparison_value *, three cells;
 * a line break ends the row. */
void comparison_csv_put(bp_buffer *row, const char *cells, ...);

/** plots/NAME.gp, .svg and .png, from the tables. A gnuplot that is missing or fails is a warning.
 * Errors: those of bp_file_write, bp_dir_make and bp_report_script. */
bp_err comparison_plots_draw(const comparison_results *results);
/** The plots that there are, in order: file names without suffix and titles. NULL name ends.
 * Owns: names and titles are the caller's, comparison_plots_clear(). */
typedef struct comparison_plot {
    char *name, *title;
    const char *kind; /* of the installed script uncertainty-KIND.gp */
    int64_t shift;    /* ROC: of which shift */
    int64_t method;   /* histogram: of which method */
} comparison_plot;
comparison_plot *comparison_plots_list(const comparison_results *results);
void comparison_plots_clear(comparison_plot **plots);

/** index.html. Errors: those of bp_report_page. */
bp_err comparison_page_write(const comparison_results *results);

/** The table of methods, to the log. */
void comparison_results_print(const comparison_results *results);

#endif
