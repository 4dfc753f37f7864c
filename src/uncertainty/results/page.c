/* index.html: the data of the template uncertainty.html. Called by uncertainty/comparison/job.c. */
#include "uncertainty/results/results.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "job/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SVG_LIMIT    ((int64_t)64 << 20)
#define PAIRS_MOST   6 /* of methods, that are columns */
#define METHODS_MOST 6 /* that are columns */
#define HEADS_MOST   7 /* figures of a method in one table, if methods are rows */

/* ---- cells ---- */

/* Null if there is none. */
static json_t *real_text(double value, double error, bool difference)
{
    char *text = bp_report_figure(value, error, difference);
    json_t *out = text ? bp_json_string(text) : json_null();

    bp_free(text);
    return out;
}

/* A figure without an interval, with the digits of those beside it. */
static json_t *plain_cell(double value)
{
    return json_pack("{s:o}", "value", isfinite(value) ? json_sprintf("%.4f", value) : json_null());
}

static json_t *cell(const comparison_value *value, bool difference)
{
    bool interval = isfinite(value->low) && isfinite(value->high);
    bool certain = difference && (value->low > 0 || value->high < 0);
    double error = interval ? (value->high - value->low) / 2 : NAN;

    return json_pack("{s:o, s:o, s:o, s:b}", "value", real_text(value->value, error, difference),
                     "low", real_text(interval ? value->low : NAN, error, difference), "high",
                     real_text(interval ? value->high : NAN, error, difference), "certain",
                     (int)certain);
}

static void add(json_t *array, json_t *value)
{
    (void)json_array_append_new(array, value);
}

/* ---- tables ---- */

/* For a figure, or for the root of one. */
static const char *title_of(const comparison_results *results, const char *key)
{
    for (const comparison_definition *one = comparison_definitions_of(results); one->key; one++)
        if (strcmp(one->key, key) == 0)
            return one->title;
    return key;
}

/* New reference. */
static json_t *figure_title(const comparison_results *results, int figure)
{
    const char *key = figure < COMPARISON_FIGURES ? comparison_figure_name(results, figure) : NULL;

    if (key && strncmp(key, "nll", 3) == 0)
        return json_sprintf("%s, nats a %s", title_of(results, key),
                            comparison_prediction_name(results));
    return figure < COMPARISON_FIGURES
               ? json_string(title_of(results, comparison_figure_name(results, figure)))
               : json_sprintf("%s at %d %% coverage", results->task->is_value ? "MSE" : "Accuracy",
                              results->coverages.percent[figure - COMPARISON_FIGURES]);
}

/* These have no interval: of the two the page shows the ECE, and no difference by it. */
static bool is_ece(int figure)
{
    return figure == COMPARISON_FIGURE_ECE || figure == COMPARISON_FIGURE_ECE_ADAPTIVE ||
           figure == COMPARISON_FIGURE_TEMPERED_ECE;
}

/* Is the difference by a figure shown? */
static bool is_compared(const comparison_results *results, int figure)
{
    return !is_ece(figure) && comparison_figure_name(results, figure);
}

/* Rows are figures, columns methods: a figure has a name of any length, and methods are few
 * (otherwise split_methods()). */
static json_t *method_names(const comparison_results *results)
{
    json_t *names = json_array();

    for (int64_t m = 0; m < results->methods.count; m++)
        add(names, json_pack("{s:s, s:s, s:I}", "name", results->methods.items[m].name, "way",
                             results->methods.items[m].way->word, "members",
                             (json_int_t)results->members[m]));
    return names;
}

static double cost_of(const comparison_results *results, int64_t m, int row)
{
    const comparison_cost *cost = &results->costs[m];
    const double values[] = {results->temperatures[m].temperature, cost->train_seconds,
                             cost->fit_seconds, cost->score_seconds, cost->memory_mib};

    return values[row];
}

static json_t *method_rows(const comparison_results *results)
{
    static const char *const COSTS[] = {"Temperature", "Training, s", "Fit, s", "Scoring, s",
                                        "Memory, MiB"};
    json_t *rows = json_array();

    int figures = comparison_figures(results);

    for (int f = 0; f < figures + 5; f++) {
        json_t *values = json_array();
        bool figure = f < figures, squared = figure && comparison_has_root(f);

        if (figure &&
            (f == COMPARISON_FIGURE_ECE_ADAPTIVE || !comparison_figure_name(results, f))) {
            json_decref(values);
            continue;
        }
        for (int64_t m = 0; m < results->methods.count; m++) {
            const comparison_value rms = comparison_rms(&results->results[m], squared ? f : 0);
            const comparison_value cost = {figure ? 0 : cost_of(results, m, f - figures), NAN, NAN};

            add(values, figure && is_ece(f) ? plain_cell(results->results[m].values[f].value)
                                            : cell(!figure   ? &cost
                                                   : squared ? &rms
                                                             : &results->results[m].values[f],
                                                   false));
        }
        add(rows,
            json_pack("{s:o, s:o}", "title",
                      !figure   ? json_string(COSTS[f - figures])
                      : squared ? json_string(title_of(results, comparison_root_name(results, f)))
                                : figure_title(results, f),
                      "values", values));
    }
    return rows;
}

/* The rows of `page`, a method a row, in tables of a few figures each, if methods are many. */
static void split_methods(json_t *page)
{
    const json_t *methods = json_object_get(page, "methods"), *rows = json_object_get(page, "rows");
    size_t figures = json_array_size(rows), count = json_array_size(methods);
    json_t *tables = json_array();

    for (size_t first = 0; count > METHODS_MOST && first < figures; first += HEADS_MOST) {
        json_t *heads = json_array(), *lines = json_array();

        for (size_t f = first; f < figures && f < first + HEADS_MOST; f++)
            add(heads, json_incref(json_object_get(json_array_get(rows, f), "title")));
        for (size_t m = 0; m < count; m++) {
            json_t *values = json_array();

            for (size_t f = first; f < figures && f < first + HEADS_MOST; f++)
                add(values, json_incref(json_array_get(
                                json_object_get(json_array_get(rows, f), "values"), m)));
            add(lines,
                json_pack("{s:O, s:o}", "method", json_array_get(methods, m), "values", values));
        }
        add(tables,
            json_pack("{s:b, s:o, s:o}", "first", first == 0, "heads", heads, "lines", lines));
    }
    if (count > METHODS_MOST)
        (void)json_object_set(page, "many", json_true());
    (void)json_object_set_new(page, "tables", tables);
}

static json_t *detection_json(const comparison_results *results)
{
    json_t *rows = json_array();

    for (int64_t s = 0; s < results->shifted.count; s++)
        for (int64_t m = 0; m < results->methods.count; m++)
            for (int c = 0; c < COMPARISON_SCORES; c++) {
                json_t *values;

                if (c > COMPARISON_NLL && !results->results[m].has[c])
                    continue;
                values = json_array();

                for (int d = 0; d < COMPARISON_DETECTIONS; d++)
                    add(values,
                        cell(&results->results[m].values[comparison_column(s, c, d)], false));
                add(rows, json_pack("{s:s, s:s, s:s, s:o}", "shift", results->shifted.items[s].name,
                                    "method", results->methods.items[m].name, "score",
                                    comparison_score_title(results, c), "values", values));
            }
    return rows;
}

static json_t *differences_json(const comparison_results *results)
{
    int64_t methods = results->methods.count;
    const comparison_value *all = results->differences;
    json_t *rows = json_array();

    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods;
             k++, all += comparison_columns(results->shifted.count)) {
            json_t *values = json_array();

            for (int f = 0; f < comparison_figures(results); f++)
                if (is_compared(results, f))
                    add(values, cell(&all[f], true));
            for (int64_t s = 0; s < results->shifted.count; s++)
                for (int c = 0; c < COMPARISON_SCORES; c++)
                    if (comparison_has_score(results, c))
                        add(values, cell(&all[comparison_column(s, c, COMPARISON_AUROC)], true));
            add(rows, json_pack("{s:s, s:s, s:o}", "method", results->methods.items[i].name,
                                "other", results->methods.items[k].name, "values", values));
        }
    return rows;
}

/* The value of a difference: the square, which has no bias. */
static json_t *compared_json(const comparison_results *results)
{
    json_t *figures = json_array();

    for (int f = 0; f < comparison_figures(results); f++)
        if (is_compared(results, f))
            add(figures, figure_title(results, f));
    return figures;
}

/* page.transposed, if pairs of methods are few: rows are figures and then AUROCs, columns pairs,
 * since a page is longer than wide. */
static void add_transposed(json_t *page)
{
    const json_t *differences = json_object_get(page, "differences"),
                 *compared = json_object_get(page, "compared"),
                 *aurocs = json_object_get(page, "aurocs");
    size_t figures = json_array_size(compared), pairs = json_array_size(differences);
    json_t *lines = json_array();

    for (size_t f = 0; f < figures + json_array_size(aurocs); f++) {
        const json_t *auroc = f < figures ? NULL : json_array_get(aurocs, f - figures);
        json_t *values = json_array();

        for (size_t p = 0; p < pairs; p++)
            (void)json_array_append(
                values,
                json_array_get(json_object_get(json_array_get(differences, p), "values"), f));
        add(lines,
            json_pack("{s:o, s:o}", "title",
                      auroc ? json_sprintf("AUROC, %s, %s",
                                           json_string_value(json_object_get(auroc, "shift")),
                                           json_string_value(json_object_get(auroc, "score")))
                            : json_incref(json_array_get(compared, f)),
                      "values", values));
    }
    if (pairs <= PAIRS_MOST)
        (void)json_object_set_new(page, "transposed", json_pack("{s:O}", "lines", lines));
    json_decref(lines);
}

/* Null if nothing is shifted. */
static json_t *shifted_json(const comparison_results *results)
{
    json_t *groups = json_array();

    for (int64_t s = 0; s < results->shifted.count; s++) {
        double shifted = (double)results->shifted.items[s].document_count;
        double domain = (double)results->in_domain.items[0].document_count;

        add(groups, json_pack("{s:s, s:s, s:I, s:o}", "comma", s > 0 ? ", " : "", "name",
                              results->shifted.items[s].name, "documents",
                              (json_int_t)results->shifted.items[s].document_count, "chance",
                              real_text(shifted / (shifted + domain), NAN, false)));
    }
    if (results->shifted.count > 0)
        return json_pack("{s:o, s:o}", "groups", groups, "detection", detection_json(results));
    json_decref(groups);
    return json_null();
}

/* ---- plots ---- */

static json_t *plot_json(const comparison_results *results, const comparison_plot *plot)
{
    char *path = bp_sprintf("%s/plots/%s.svg", results->folder, plot->name), *text = NULL, *svg;
    size_t bytes;
    json_t *out;

    if (bp_path_exists(path))
        (void)bp_file_read(path, SVG_LIMIT, &text, &bytes); /* else not drawn */
    svg = bp_report_svg(text, plot->name);
    out = json_pack("{s:s, s:s, s:{s:b}, s:s?}", "name", plot->name, "title", plot->title, "kind",
                    plot->kind, 1, "svg", svg);
    bp_free(svg);
    bp_free(text);
    bp_free(path);
    return out;
}

/* What the captions of plots say of error bars. */
static const char *bars_of(const comparison_results *results)
{
    return !results->task->whole_text       ? ""
           : !results->cluster              ? " Error bars are 95 % intervals (Wilson)."
           : comparison_has_limits(results) ? " Error bars are 95 % intervals over clusters, which "
                                              "are resampled; fewer than 10 have none."
                                            : " Documents of a cluster depend on each other: there "
                                              "are no error bars.";
}

/* Does the page show this figure of summary.json? */
static bool is_shown(const char *key)
{
    return strcmp(key, "perplexity") != 0 && strcmp(key, "ece_adaptive") != 0;
}

bp_err comparison_page_write(const comparison_results *results)
{
    int64_t methods = results->methods.count;
    char *path = bp_path_join(results->folder, "index.html");
    char *run = bp_path_join(results->folder, "..");
    comparison_plot *plots = comparison_plots_list(results);
    json_t *aurocs = json_array(), *definitions = json_array(), *drawings = json_array();

    for (int64_t s = 0; s < results->shifted.count; s++) /* after the figures of a difference */
        for (int c = 0; c < COMPARISON_SCORES; c++)
            if (comparison_has_score(results, c))
                add(aurocs, json_pack("{s:s, s:s}", "shift", results->shifted.items[s].name,
                                      "score", comparison_score_title(results, c)));
    for (const comparison_definition *one = comparison_definitions_of(results); one->key; one++)
        if (is_shown(one->key))
            add(definitions, json_pack("{s:s, s:s}", "title", one->title, "text",
                                       comparison_definition_text(results, one)));
    for (const comparison_plot *plot = plots; plot->name; plot++)
        add(drawings, plot_json(results, plot));
    json_t *page =
        json_pack("{s:s, s:b, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "prediction", comparison_prediction_name(results), "of_tokens",
                  (int)!results->task->whole_text, "method_count", (json_int_t)methods,
                  "several_methods", methods > 1, "tokens", (json_int_t)results->results[0].tokens,
                  "documents", (json_int_t)results->in_domain.items[0].document_count, "resamples",
                  (json_int_t)results->resamples, "methods", method_names(results), "compared",
                  compared_json(results), "rows", method_rows(results), "shifted",
                  shifted_json(results), "aurocs", aurocs, "differences", differences_json(results),
                  "definitions", definitions, "plots", drawings);
    add_transposed(page);
    split_methods(page);
    (void)json_object_set_new(page, "title",
                              json_sprintf("Uncertainty: %" PRId64 " method%s compared", methods,
                                           methods == 1 ? "" : "s"));
    (void)json_object_set_new(page, "sets", comparison_sets_page(results));
    if (results->cut > 0)
        (void)json_object_set_new(page, "cut",
                                  json_pack("{s:I, s:I, s:I}", "cut", (json_int_t)results->cut,
                                            "texts", (json_int_t)results->texts, "places",
                                            (json_int_t)results->positions));
    (void)json_object_set_new(page, "units",
                              json_string(results->cluster ? "clusters" : "documents"));
    (void)json_object_set_new(page, "bars", json_string(bars_of(results)));
    (void)json_object_set_new(page, "of_values", json_boolean(results->task->is_value));
    if (results->cluster)
        (void)json_object_set_new(
            page, "cluster",
            json_pack("{s:s, s:I}", "label", results->cluster_label, "clusters",
                      (json_int_t)comparison_clusters_of(NULL, results->cluster,
                                                         &results->in_domain.items[0])));
    bp_report_about(page, run);
    bp_err err = bp_report_page(path, "uncertainty", page);
    comparison_plots_clear(&plots);
    json_decref(page);
    bp_free(run);
    bp_free(path);
    return err;
}
