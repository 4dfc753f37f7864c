/* The text printed at the end of a comparison. Called by uncertainty/comparison/job.c. */
#include "uncertainty/results/results.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_LEAST 12

/* "0.812", "0.812 [0.790, 0.833]" or "-". */
static void put_value(char *out, size_t bytes, int digits, comparison_value v)
{
    if (!isfinite(v.value))
        snprintf(out, bytes, "-");
    else if (!isfinite(v.low))
        snprintf(out, bytes, "%.*f", digits, v.value);
    else
        snprintf(out, bytes, "%.*f [%.*f, %.*f]", digits, v.value, digits, v.low, digits, v.high);
}

/* The width of a first column with `title` above the methods' names. */
static int name_width(const comparison_results *results, const char *title)
{
    size_t width = strlen(title) > NAME_LEAST ? strlen(title) : NAME_LEAST;

    for (int64_t m = 0; m < results->methods.count; m++) {
        size_t bytes = strlen(results->methods.items[m].name);

        width = bytes > width ? bytes : width;
    }
    return (int)width;
}

/* Two figures of each method, with their intervals. A NLL of 10 or more is 26 wide: "10.1234
 * [10.1234, 10.1234]". */
static void print_pair(const comparison_results *results, const char *title, const char *head,
                       int figure, const char *other_head, int other)
{
    const int width = name_width(results, title);

    bp_log("%-*s  %-26s  %s", width, title, head, other_head);
    for (int64_t m = 0; m < results->methods.count; m++) {
        const comparison_value *values = results->results[m].values;
        char cells[2][64];

        put_value(cells[0], sizeof cells[0], 4, values[figure]);
        put_value(cells[1], sizeof cells[1], 4, values[other]);
        bp_log("%-*s  %-26s  %s", width, results->methods.items[m].name, cells[0], cells[1]);
    }
}

static void print_costs(const comparison_results *results)
{
    const int width = name_width(results, "");

    bp_log("%-*s  %11s  %11s  %11s", width, "", "temperature", "training, s", "scoring, s");
    for (int64_t m = 0; m < results->methods.count; m++) {
        const double costs[] = {results->temperatures[m].temperature,
                                results->costs[m].train_seconds, results->costs[m].score_seconds};
        char cells[3][32];

        for (int k = 0; k < 3; k++)
            put_value(cells[k], sizeof cells[k], k == 0 ? 3 : 1,
                      (comparison_value){costs[k], NAN, NAN});
        bp_log("%-*s  %11s  %11s  %11s", width, results->methods.items[m].name, cells[0], cells[1],
               cells[2]);
    }
}

#define SIDE_BY_SIDE 3 /* scores */

/* AUROCs by these scores, side by side. */
static void print_scores(const comparison_results *results, int64_t s, const int *scores, int count)
{
    const int width = name_width(results, "");

    for (int64_t m = -1; m < results->methods.count; m++) {
        bp_buffer line = {0};

        for (int k = 0; k < count; k++) {
            char cell[64];

            if (m >= 0)
                put_value(
                    cell, sizeof cell, 3,
                    results->results[m].values[comparison_column(s, scores[k], COMPARISON_AUROC)]);
            else
                (void)snprintf(cell, sizeof cell, "%s", comparison_score_title(results, scores[k]));
            bp_buffer_printf(&line, "  %-20s", cell);
        }
        while (line.bytes > 0 && line.data[line.bytes - 1] == ' ')
            line.data[--line.bytes] = '\0';
        bp_log("%-*s%s", width, m < 0 ? "" : results->methods.items[m].name,
               line.data ? line.data : "");
        bp_buffer_clear(&line);
    }
}

static void print_shift(const comparison_results *results, int64_t s)
{
    int scores[COMPARISON_SCORES], count = 0;

    bp_log("AUROC of %s by", results->shifted.items[s].name);
    for (int c = 0; c < COMPARISON_SCORES; c++)
        if (comparison_has_score(results, c))
            scores[count++] = c;
    for (int first = 0; first < count; first += SIDE_BY_SIDE)
        print_scores(results, s, scores + first,
                     count - first < SIDE_BY_SIDE ? count - first : SIDE_BY_SIDE);
}

void comparison_results_print(const comparison_results *results)
{
    /* no table is wider than 80 columns, if methods have short names */
    bool values = results->task->is_value;

    print_pair(results, "in the domain", "NLL [95 %]", COMPARISON_FIGURE_NLL,
               values ? "coverage, 95 %" : "accuracy", COMPARISON_FIGURE_ACCURACY);
    print_pair(results, "", values ? "MAE" : "Brier", COMPARISON_FIGURE_BRIER,
               values ? "calibration error" : "ECE", COMPARISON_FIGURE_ECE);
    comparison_sets_print(results, name_width(results, "sets"));
    print_costs(results);
    if (results->scaled && !values)
        bp_log("temperature: above 1 a method is too sure of itself, below 1 not sure enough");
    if (!results->scaled)
        bp_log("no temperatures and no conformal sets: they are fitted on corpus.valid");
    for (int64_t s = 0; s < results->shifted.count; s++)
        print_shift(results, s);
    bp_log("in %s: index.html, summary.json, tables (.csv), plots/", results->folder);
}
