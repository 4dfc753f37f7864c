/* index.html: what the template uncertainty.html is filled with. */
#include "analysis/uncertainty/outcome_priv.h"

#include "base/fs.h"
#include "base/mem.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

#define SVG_LIMIT   ((int64_t)64 << 20)
#define DIGITS      4
#define MORE_DIGITS 6 /* of squares */

/* ---- cells ---- */

/* Null where there is none. */
static json_t *real_text(double value, int digits, bool difference)
{
    char *text = isfinite(value) ? bp_sprintf(difference ? "%+.*f" : "%.*f", digits, value) : NULL;
    json_t *out = text ? json_string(text) : json_null();

    bp_free(text);
    return out;
}

static json_t *cell(const study_value *value, int digits, bool difference)
{
    bool interval = isfinite(value->low) && isfinite(value->high);
    bool certain = difference && (value->low > 0 || value->high < 0);

    return json_pack("{s:o, s:o, s:o, s:b}", "value", real_text(value->value, digits, difference),
                     "low", real_text(interval ? value->low : NAN, digits, difference), "high",
                     real_text(interval ? value->high : NAN, digits, difference), "certain",
                     (int)certain);
}

static void add(json_t *array, json_t *value)
{
    (void)json_array_append_new(array, value);
}

/* ---- tables ---- */

static const char *title_of(const char *key)
{
    for (const study_definition *one = study_definitions; one->key; one++)
        if (strcmp(one->key, key) == 0)
            return one->title;
    return key;
}

/* Of methods the root of the squared calibration error is shown, of differences the square, which
 * is what has no bias. */
static json_t *figures_json(bool difference)
{
    json_t *figures = json_array();

    for (int f = 0; f < STUDY_FIGURES; f++)
        add(figures,
            json_string(title_of(f == STUDY_FIGURE_SQUARED && !difference ? "rms_calibration_error"
                                                                          : study_figure_name(f))));
    return figures;
}

static json_t *methods_json(const study_outcome *outcome)
{
    json_t *methods = json_array();

    for (int64_t m = 0; m < outcome->methods.count; m++) {
        const study_cost *cost = &outcome->costs[m];
        const study_value rms = study_rms(&outcome->results[m]);
        const double seconds[] = {cost->train_seconds, cost->fit_seconds, cost->score_seconds,
                                  cost->memory_mib};
        json_t *values = json_array(), *costs = json_array();

        for (int f = 0; f < STUDY_FIGURES; f++)
            add(values, cell(f == STUDY_FIGURE_SQUARED ? &rms : &outcome->results[m].values[f],
                             DIGITS, false));
        add(costs,
            json_pack("{s:o}", "value", real_text(outcome->tempers[m].temperature, DIGITS, false)));
        for (int k = 0; k < 4; k++)
            add(costs, json_pack("{s:o}", "value", real_text(seconds[k], 1, false)));
        add(methods, json_pack("{s:s, s:s, s:I, s:o, s:o}", "name", outcome->methods.items[m].name,
                               "way", study_way_name(outcome->methods.items[m].way), "members",
                               (json_int_t)outcome->members[m], "values", values, "costs", costs));
    }
    return methods;
}

static json_t *detection_json(const study_outcome *outcome)
{
    json_t *rows = json_array();

    for (int64_t s = 0; s < outcome->shifted.count; s++)
        for (int64_t m = 0; m < outcome->methods.count; m++)
            for (int c = 0; c < STUDY_SCORES; c++) {
                json_t *values = json_array();

                for (int d = 0; d < STUDY_DETECTIONS; d++)
                    add(values,
                        cell(&outcome->results[m].values[study_column(s, (study_score)c, d)],
                             DIGITS, false));
                add(rows, json_pack("{s:s, s:s, s:s, s:o}", "shift", outcome->shifted.items[s].name,
                                    "method", outcome->methods.items[m].name, "score",
                                    study_score_name((study_score)c), "values", values));
            }
    return rows;
}

/* The columns behind the figures of a difference. */
static json_t *aurocs_json(const study_outcome *outcome)
{
    json_t *columns = json_array();

    for (int64_t s = 0; s < outcome->shifted.count; s++)
        for (int c = 0; c < STUDY_SCORES; c++)
            add(columns, json_pack("{s:s, s:s}", "shift", outcome->shifted.items[s].name, "score",
                                   study_score_name((study_score)c)));
    return columns;
}

static json_t *differences_json(const study_outcome *outcome)
{
    int64_t methods = outcome->methods.count, columns = study_columns(outcome->shifted.count);
    json_t *rows = json_array();

    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods; k++) {
            const study_value *all = outcome->differences + study_pair(i, k, methods) * columns;
            json_t *values = json_array();

            for (int f = 0; f < STUDY_FIGURES; f++)
                add(values, cell(&all[f], f == STUDY_FIGURE_SQUARED ? MORE_DIGITS : DIGITS, true));
            for (int64_t s = 0; s < outcome->shifted.count; s++)
                for (int c = 0; c < STUDY_SCORES; c++)
                    add(values,
                        cell(&all[study_column(s, (study_score)c, STUDY_AUROC)], DIGITS, true));
            add(rows, json_pack("{s:s, s:s, s:o}", "method", outcome->methods.items[i].name,
                                "other", outcome->methods.items[k].name, "values", values));
        }
    return rows;
}

static json_t *definitions_json(void)
{
    json_t *definitions = json_array();

    for (const study_definition *one = study_definitions; one->key; one++)
        add(definitions, json_pack("{s:s, s:s}", "title", one->title, "text", one->text));
    return definitions;
}

/* Null: nothing is shifted. */
static json_t *shifted_json(const study_outcome *outcome)
{
    json_t *groups = json_array();

    for (int64_t s = 0; s < outcome->shifted.count; s++)
        add(groups, json_pack("{s:s, s:s, s:I}", "comma", s > 0 ? ", " : "", "name",
                              outcome->shifted.items[s].name, "documents",
                              (json_int_t)outcome->shifted.items[s].document_count));
    if (outcome->shifted.count > 0)
        return json_pack("{s:o, s:o}", "groups", groups, "detection", detection_json(outcome));
    json_decref(groups);
    return json_null();
}

/* ---- plots ---- */

static json_t *plot_json(const study_outcome *outcome, const study_plot *plot)
{
    char *path = bp_sprintf("%s/plots/%s.svg", outcome->folder, plot->name), *text = NULL, *svg;
    size_t bytes;
    json_t *out;

    if (path && bp_path_exists(path))
        (void)bp_file_read(path, SVG_LIMIT, &text, &bytes); /* else it was not drawn */
    svg = bp_report_svg(text, plot->name);
    out = json_pack("{s:s, s:s, s:{s:b}, s:s?}", "name", plot->name, "title", plot->title, "kind",
                    plot->kind, 1, "svg", svg);
    bp_free(svg);
    bp_free(text);
    bp_free(path);
    return out;
}

static bp_err add_plots(json_t *page, const study_outcome *outcome)
{
    study_plot *plots = NULL;
    bp_err err = study_plots_list(&plots, outcome);

    for (const study_plot *plot = plots; err == BP_OK && plot->name; plot++)
        add(json_object_get(page, "plots"), plot_json(outcome, plot));
    study_plots_clear(&plots);
    return err;
}

bp_err study_page_write(const study_outcome *outcome)
{
    int64_t methods = outcome->methods.count;
    char *path = bp_path_join(outcome->folder, "index.html");
    json_t *page =
        json_pack("{s:s, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[]}",
                  "command", outcome->command, "method_count", (json_int_t)methods,
                  "several_methods", methods > 1, "tokens", (json_int_t)outcome->results[0].tokens,
                  "documents", (json_int_t)outcome->in_domain.items[0].document_count, "resamples",
                  (json_int_t)outcome->resamples, "figures", figures_json(false), "compared",
                  figures_json(true), "methods", methods_json(outcome), "shifted",
                  shifted_json(outcome), "aurocs", aurocs_json(outcome), "differences",
                  differences_json(outcome), "definitions", definitions_json(), "plots");
    bp_err err = path && page ? add_plots(page, outcome)
                              : BP_FAIL(BP_ERR_SYSTEM, "no memory for the page of a study");

    if (err == BP_OK)
        err = bp_report_page(path, "uncertainty", page);
    json_decref(page);
    bp_free(path);
    return err;
}
