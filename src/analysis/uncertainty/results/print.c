/* What people read at the end. */
#include "analysis/uncertainty/results/results_priv.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_LEAST 12

static void put_value(char *out, size_t bytes, const comparison_value *value)
{
    if (!isfinite(value->value))
        snprintf(out, bytes, "-");
    else if (!isfinite(value->low))
        snprintf(out, bytes, "%.4f", value->value);
    else
        snprintf(out, bytes, "%.4f [%.4f, %.4f]", value->value, value->low, value->high);
}

/* "0.812 [0.790, 0.833]" */
static void put_share(char *out, size_t bytes, const comparison_value *value)
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
static int name_width(const comparison_results *results, const char *title, int least)
{
    size_t width = strlen(title) > (size_t)least ? strlen(title) : (size_t)least;

    for (int64_t m = 0; m < results->methods.count; m++) {
        size_t bytes = strlen(results->methods.items[m].name);

        width = bytes > width ? bytes : width;
    }
    return (int)width;
}

/* Two figures of each method, with their intervals. A NLL of 10 or more is 26 wide: "10.1234
 * [10.1234, 10.1234]". */
static void print_pair(const comparison_results *results, const char *title,
                       const char *const heads[2], const int figures[2])
{
    const int width = name_width(results, title, NAME_LEAST);

    bp_log("%-*s  %-26s  %s", width, title, heads[0], heads[1]);
    for (int64_t m = 0; m < results->methods.count; m++) {
        char cells[2][64];

        for (int f = 0; f < 2; f++)
            put_value(cells[f], sizeof(cells[f]), &results->results[m].values[figures[f]]);
        bp_log("%-*s  %-26s  %s", width, results->methods.items[m].name, cells[0], cells[1]);
    }
}

static void print_costs(const comparison_results *results)
{
    const int width = name_width(results, "", NAME_LEAST);

    bp_log("%-*s  %11s  %11s  %11s", width, "", "temperature", "training, s", "scoring, s");
    for (int64_t m = 0; m < results->methods.count; m++) {
        char temperature[32], train[32], scored[32];

        put_real(temperature, sizeof(temperature), results->temperatures[m].temperature, 3);
        put_real(train, sizeof(train), results->costs[m].train_seconds, 1);
        put_real(scored, sizeof(scored), results->costs[m].score_seconds, 1);
        bp_log("%-*s  %11s  %11s  %11s", width, results->methods.items[m].name, temperature, train,
               scored);
    }
}

/* No table is wider than 80 columns, where methods have short names. */
static void print_methods(const comparison_results *results)
{
    static const char *const HEADS[2][2] = {{"NLL [95 %]", "accuracy"}, {"Brier", "ECE"}};
    static const int FIGURES[2][2] = {{COMPARISON_FIGURE_NLL, COMPARISON_FIGURE_ACCURACY},
                                      {COMPARISON_FIGURE_BRIER, COMPARISON_FIGURE_ECE}};

    print_pair(results, "in the domain", HEADS[0], FIGURES[0]);
    print_pair(results, "", HEADS[1], FIGURES[1]);
    print_costs(results);
    if (results->scaled)
        bp_log("temperature: above 1 a method is too sure of itself, below 1 not sure enough");
}

static void print_shift(const comparison_results *results, int64_t s)
{
    char title[128];
    int width;

    snprintf(title, sizeof(title), "AUROC of %s by", results->shifted.items[s].name);
    bp_log("%s", title);
    width = name_width(results, "", NAME_LEAST);
    bp_log("%-*s  %-20s  %-20s  %s", width, "", "mutual information", "entropy", "NLL");
    for (int64_t m = 0; m < results->methods.count; m++) {
        char cells[COMPARISON_SCORES][64];

        for (int c = 0; c < COMPARISON_SCORES; c++)
            put_share(cells[c], sizeof(cells[c]),
                      &results->results[m]
                           .values[comparison_column(s, (comparison_score)c, COMPARISON_AUROC)]);
        bp_log("%-*s  %-20s  %-20s  %s", width, results->methods.items[m].name, cells[0], cells[1],
               cells[2]);
    }
}

void comparison_results_print(const comparison_results *results)
{
    print_methods(results);
    for (int64_t s = 0; s < results->shifted.count; s++)
        print_shift(results, s);
    bp_log("in %s: index.html, summary.json, tables (.csv), plots/", results->folder);
}
