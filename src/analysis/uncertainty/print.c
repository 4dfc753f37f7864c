/* What people read at the end. */
#include "analysis/uncertainty/outcome_priv.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_LEAST 12

static void put_value(char *out, size_t bytes, const study_value *value)
{
    if (!isfinite(value->value))
        snprintf(out, bytes, "-");
    else if (!isfinite(value->low))
        snprintf(out, bytes, "%.4f", value->value);
    else
        snprintf(out, bytes, "%.4f [%.4f, %.4f]", value->value, value->low, value->high);
}

/* "0.812 [0.790, 0.833]" */
static void put_share(char *out, size_t bytes, const study_value *value)
{
    if (!isfinite(value->value))
        snprintf(out, bytes, "-");
    else if (!isfinite(value->low))
        snprintf(out, bytes, "%.3f", value->value);
    else
        snprintf(out, bytes, "%.3f [%.3f, %.3f]", value->value, value->low, value->high);
}

static void put_real(char *out, size_t bytes, double value, int digits)
{
    if (isfinite(value))
        snprintf(out, bytes, "%.*f", digits, value);
    else
        snprintf(out, bytes, "-");
}

/* The width of a first column with `title` above the methods' names. */
static int name_width(const study_outcome *outcome, const char *title, int least)
{
    size_t width = strlen(title) > (size_t)least ? strlen(title) : (size_t)least;

    for (int64_t m = 0; m < outcome->methods.count; m++) {
        size_t bytes = strlen(outcome->methods.items[m].name);

        width = bytes > width ? bytes : width;
    }
    return (int)width;
}

/* Two figures of each method, with their intervals. A NLL of 10 or more is 26 wide: "10.1234
 * [10.1234, 10.1234]". */
static void print_pair(const study_outcome *outcome, const char *title, const char *const heads[2],
                       const int figures[2])
{
    const int width = name_width(outcome, title, NAME_LEAST);

    bp_log("%-*s  %-26s  %s", width, title, heads[0], heads[1]);
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        char cells[2][64];

        for (int f = 0; f < 2; f++)
            put_value(cells[f], sizeof(cells[f]), &outcome->results[m].values[figures[f]]);
        bp_log("%-*s  %-26s  %s", width, outcome->methods.items[m].name, cells[0], cells[1]);
    }
}

static void print_costs(const study_outcome *outcome)
{
    const int width = name_width(outcome, "", NAME_LEAST);

    bp_log("%-*s  %11s  %11s  %11s", width, "", "temperature", "training, s", "scoring, s");
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        char temperature[32], train[32], scored[32];

        put_real(temperature, sizeof(temperature), outcome->tempers[m].temperature, 3);
        put_real(train, sizeof(train), outcome->costs[m].train_seconds, 1);
        put_real(scored, sizeof(scored), outcome->costs[m].score_seconds, 1);
        bp_log("%-*s  %11s  %11s  %11s", width, outcome->methods.items[m].name, temperature, train,
               scored);
    }
}

/* No table is wider than 80 columns, where methods have short names. */
static void print_methods(const study_outcome *outcome)
{
    static const char *const HEADS[2][2] = {{"NLL [95 %]", "accuracy"}, {"Brier", "ECE"}};
    static const int FIGURES[2][2] = {{STUDY_FIGURE_NLL, STUDY_FIGURE_ACCURACY},
                                      {STUDY_FIGURE_BRIER, STUDY_FIGURE_ECE}};

    print_pair(outcome, "in the domain", HEADS[0], FIGURES[0]);
    print_pair(outcome, "", HEADS[1], FIGURES[1]);
    print_costs(outcome);
    if (outcome->tempered)
        bp_log("temperature: above 1 a method is too sure of itself, below 1 not sure enough");
}

static void print_shift(const study_outcome *outcome, int64_t s)
{
    char title[128];
    int width;

    snprintf(title, sizeof(title), "AUROC of %s by", outcome->shifted.items[s].name);
    bp_log("%s", title);
    width = name_width(outcome, "", NAME_LEAST);
    bp_log("%-*s  %-20s  %-20s  %s", width, "", "mutual information", "entropy", "NLL");
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        char cells[STUDY_SCORES][64];

        for (int c = 0; c < STUDY_SCORES; c++)
            put_share(cells[c], sizeof(cells[c]),
                      &outcome->results[m].values[study_column(s, (study_score)c, STUDY_AUROC)]);
        bp_log("%-*s  %-20s  %-20s  %s", width, outcome->methods.items[m].name, cells[0], cells[1],
               cells[2]);
    }
}

void study_outcome_print(const study_outcome *outcome)
{
    print_methods(outcome);
    for (int64_t s = 0; s < outcome->shifted.count; s++)
        print_shift(outcome, s);
    bp_log("in %s: index.html, summary.json, tables (.csv), plots/", outcome->folder);
}
