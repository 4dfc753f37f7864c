/* Conformal sets in summary.json, the page and the log. */
#include "uncertainty/results/results.h"

#include "base/log.h"
#include "base/mem.h"
#include "job/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool comparison_has_sets(const comparison_results *results)
{
    for (int64_t m = 0; m < results->methods.count; m++)
        if (results->sets[m].count > 0)
            return true;
    return false;
}

/* ---- summary.json ---- */

static void put_value(json_t *object, const char *name, const comparison_value *value)
{
    static const char *const ENDS[] = {"", "_low", "_high"};
    const double parts[] = {value->value, value->low, value->high};
    char key[32];

    for (int e = 0; e < 3; e++) {
        snprintf(key, sizeof key, "%s%s", name, ENDS[e]);
        (void)json_object_set_new(object, key, bp_json_real(parts[e]));
    }
}

static json_t *group_json(const comparison_set_group *group)
{
    json_t *object = json_pack("{s:I, s:I}", "documents", (json_int_t)group->documents,
                               "predictions", (json_int_t)group->predictions);

    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        json_t *one = json_object();

        put_value(one, "coverage", &group->coverage[k]);
        put_value(one, "size", &group->size[k]);
        (void)json_object_set_new(object, bp_conformal_names[k], one);
    }
    return object;
}

json_t *comparison_sets_summary(const comparison_sets *sets)
{
    static const char *const KINDS[][2] = {
        {"shift", "shifted"}, {"label", "labels"}, {"outcome", "outcomes"}};
    json_t *object, *thresholds = json_object();

    for (int k = 0; k < BP_CONFORMAL_KINDS; k++)
        (void)json_object_set_new(thresholds, bp_conformal_names[k],
                                  bp_json_real(sets->fit.rule.threshold[k]));
    object = json_pack("{s:o, s:I, s:o, s:I, s:o}", "coverage", bp_json_real(sets->fit.coverage),
                       "calibrated_on", (json_int_t)sets->fit.predictions, "threshold", thresholds,
                       "raps_rank", (json_int_t)sets->fit.rule.free, "raps_penalty",
                       bp_json_real(sets->fit.rule.penalty));
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        (void)json_object_set_new(object, KINDS[k][1], json_object());
    for (int64_t g = 0; g < sets->count; g++) {
        const comparison_set_group *group = &sets->groups[g];

        if (strcmp(group->of, "domain") == 0)
            (void)json_object_set_new(object, "in_domain", group_json(group));
        for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
            if (strcmp(group->of, KINDS[k][0]) == 0)
                (void)json_object_set_new(json_object_get(object, KINDS[k][1]), group->name,
                                          group_json(group));
    }
    return object;
}

/* ---- the page ---- */

static json_t *cell(const comparison_value *value)
{
    bool interval = isfinite(value->low) && isfinite(value->high);
    double error = interval ? (value->high - value->low) / 2 : NAN;
    const double parts[] = {value->value, interval ? value->low : NAN,
                            interval ? value->high : NAN};
    static const char *const KEYS[] = {"value", "low", "high"};
    json_t *out = json_object();

    for (int e = 0; e < 3; e++) {
        char *text = bp_report_figure(parts[e], error, false);

        (void)json_object_set_new(out, KEYS[e], text ? bp_json_string(text) : json_null());
        bp_free(text);
    }
    return out;
}

static json_t *group_words(const char *name)
{
    return strcmp(name, "in_domain") == 0 ? json_string("in the domain") : bp_json_string(name);
}

json_t *comparison_sets_page(const comparison_results *results)
{
    json_t *rows = json_array(), *kinds = json_array();
    double coverage = NAN;

    if (!comparison_has_sets(results)) {
        json_decref(rows);
        json_decref(kinds);
        return json_null();
    }
    for (int k = 0; k < BP_CONFORMAL_KINDS; k++)
        (void)json_array_append_new(kinds, json_string(bp_conformal_names[k]));
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t g = 0; g < results->sets[m].count; g++) {
            const comparison_set_group *group = &results->sets[m].groups[g];
            json_t *values = json_array();

            coverage = results->sets[m].fit.coverage;
            for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
                (void)json_array_append_new(values, cell(&group->coverage[k]));
                (void)json_array_append_new(values, cell(&group->size[k]));
            }
            (void)json_array_append_new(
                rows, json_pack("{s:s, s:o, s:I, s:o}", "method", results->methods.items[m].name,
                                "group", group_words(group->name), "predictions",
                                (json_int_t)group->predictions, "values", values));
        }
    return json_pack("{s:o, s:o, s:o}", "coverage", json_sprintf("%g", coverage), "kinds", kinds,
                     "rows", rows);
}

/* ---- the log ---- */

/* Is the promised coverage outside the interval of the covered share? */
static bool is_off(const comparison_value *covered, double promised)
{
    return promised < covered->low || promised > covered->high; /* no interval: NaN */
}

void comparison_sets_print(const comparison_results *results, int width)
{
    bool any = false;

    if (!comparison_has_sets(results))
        return;
    bp_log("%-*s  %-22s  %-22s  %s", width, "sets", "lac: coverage, size", "aps", "raps");
    for (int64_t m = 0; m < results->methods.count; m++) {
        char cells[BP_CONFORMAL_KINDS][48];

        if (results->sets[m].count == 0)
            continue;
        for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
            const comparison_set_group *domain = &results->sets[m].groups[0];
            bool off = is_off(&domain->coverage[k], results->sets[m].fit.coverage);

            any = any || off;
            snprintf(cells[k], sizeof cells[k], "%.4f%s, %.4g", domain->coverage[k].value,
                     off ? "*" : "", domain->size[k].value);
        }
        bp_log("%-*s  %-22s  %-22s  %s", width, results->methods.items[m].name, cells[0], cells[1],
               cells[2]);
    }
    if (any)
        bp_log("*: the 95 %% interval of this coverage does not hold the promised one");
}
