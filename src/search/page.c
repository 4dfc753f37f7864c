/* index.html: the trials in their order, the order's agreement with trainings from scratch, and the
 * cost of the search. Called by results.c. */
#include "search/nas.h"

#include "base/buffer.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "job/report/report.h"

#include <math.h>
#include <string.h>

#define SHOWN 100 /* trials */

/* object[key]: the number as text, or null. */
static void put(json_t *object, const char *key, const char *format, double value)
{
    char *text = isfinite(value) ? bp_sprintf(format, value) : NULL;

    (void)json_object_set_new(object, key, text ? json_string(text) : json_null());
    bp_free(text);
}

static json_t *values_of(const nas *self, const nas_trial *trial)
{
    json_t *values = json_array();
    nas_point point;

    if (self->space.count == 0 || !nas_space_find(&self->space, trial->settings, &point))
        (void)json_array_append_new(values, json_string(trial->settings));
    else
        for (int a = 0; a < self->space.count; a++)
            (void)json_array_append_new(values,
                                        json_string(self->space.axes[a].values[point.at[a]]));
    return values;
}

static json_t *row_of(const nas *self, int64_t k)
{
    const nas_trial *trial = &self->trials[k];
    char name[NAS_NAME_BYTES];
    json_t *row;

    nas_trial_name(k, name);
    row = json_pack("{s:s, s:o, s:I, s:b}", "name", name, "values", values_of(self, trial),
                    "parameters", (json_int_t)trial->parameters, "best", k == nas_winner(self));
    put(row, "speed", "%.0f", trial->tokens_per_second);
    put(row, "score", "%.4f", trial->score);
    put(row, "final", "%.4f", trial->final_loss);
    return row;
}

static void add_rows(json_t *page, const nas *self)
{
    int64_t *order = bp_alloc("search", self->count, sizeof *order);
    json_t *keys = json_array(), *rows = json_array();

    nas_order(self, order);
    for (int a = 0; a < self->space.count; a++)
        (void)json_array_append_new(keys, json_string(self->space.axes[a].key));
    if (self->space.count == 0)
        (void)json_array_append_new(keys, json_string("settings"));
    for (int64_t k = 0; k < self->count && k < SHOWN; k++)
        (void)json_array_append_new(rows, row_of(self, order[k]));
    (void)json_object_set_new(page, "keys", keys);
    (void)json_object_set_new(page, "rows", rows);
    if (self->count > SHOWN)
        (void)json_object_set_new(page, "shown", json_integer(SHOWN));
    bp_free(order);
}

/* Has a trial a training from scratch that is not its score? */
static bool has_finals(const nas *self)
{
    for (int64_t k = 0; k < self->count; k++)
        if (isfinite(self->trials[k].final_loss) &&
            self->trials[k].final_loss != self->trials[k].score)
            return true;
    return false;
}

/* page.plot: parameters and losses of all trials. */
static bp_err add_plot(json_t *page, const nas *self)
{
    int64_t winner = nas_winner(self);
    char best[NAS_NAME_BYTES] = "";
    bp_buffer points = {0};
    json_t *variables;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < self->count; k++) {
        const nas_trial *trial = &self->trials[k];

        if (isfinite(trial->score))
            bp_buffer_printf(&points, "%lld,%.6g,%.6g,%d\n", (long long)trial->parameters,
                             trial->score, isfinite(trial->final_loss) ? trial->final_loss : NAN,
                             k == winner);
    }
    if (winner >= 0)
        nas_trial_name(winner, best);
    variables =
        json_pack("{s:i, s:i, s:s, s:s}", "finals", (int)has_finals(self), "shared",
                  (int)self->is_shared, "best", best, "$trials", points.data ? points.data : "");
    if (points.data)
        err = bp_report_plot(page, "search", variables, "search");
    json_decref(variables);
    bp_buffer_clear(&points);
    return err;
}

static void add_ranking(json_t *page, const nas *self, const json_t *summary)
{
    const json_t *ranking = json_object_get(summary, "ranking"), *feature;
    json_t *own, *rows = json_array();
    size_t k;

    json_array_foreach(json_object_get(ranking, "features"), k, feature)
    {
        json_t *row = json_pack("{s:O, s:O}", "name", json_object_get(feature, "name"), "kept",
                                json_object_get(feature, "kept"));

        put(row, "importance", "%.3f", self->ranker.importance[k]);
        if (!self->ranker.is_boosted)
            put(row, "weight", "%.3f", self->ranker.weight[k]);
        (void)json_array_append_new(rows, row);
    }
    own = json_pack("{s:I, s:o}", "pairs", (json_int_t)self->ranker.pairs, "features", rows);
    put(own, "accuracy", "%.1f", 100 * self->ranker.accuracy);
    if (self->ranker.features > 0)
        (void)json_object_set(page, "ranking", own);
    json_decref(own);
}

static void add_correlation(json_t *page, const json_t *summary)
{
    const json_t *of = json_object_get(summary, "rank_correlation"),
                 *interval = json_object_get(of, "interval");
    json_t *own = json_pack("{s:O}", "trials", json_object_get(of, "trials"));

    put(own, "tau", "%.2f",
        json_is_real(json_object_get(of, "kendall"))
            ? json_real_value(json_object_get(of, "kendall"))
            : NAN);
    if (json_is_real(json_array_get(interval, 0))) {
        put(own, "low", "%.2f", json_real_value(json_array_get(interval, 0)));
        put(own, "high", "%.2f", json_real_value(json_array_get(interval, 1)));
    }
    if (json_is_string(json_object_get(own, "tau")))
        (void)json_object_set(page, "correlation", own);
    json_decref(own);
}

static void add_flops(json_t *page, const json_t *summary)
{
    static const struct {
        const char *key, *name;
    } NAMES[] = {{"trials", "trials, each trained for itself"},
                 {"shared_weights", "training shared weights, or mixed cells"},
                 {"scores", "scoring trials with them"},
                 {"final", "trainings from scratch"},
                 {"all", "together"}};
    json_t *rows = json_array();

    for (size_t k = 0; k < sizeof NAMES / sizeof NAMES[0]; k++) {
        double value =
            json_real_value(json_object_get(json_object_get(summary, "flops"), NAMES[k].key));
        int exponent = value > 0 ? (int)floor(log10(value)) : 0;
        json_t *row;

        if (!(value > 0))
            continue;
        row = json_pack("{s:s, s:i}", "name", NAMES[k].name, "exponent", exponent);
        put(row, "value", "%.2f", value / pow(10, exponent));
        (void)json_array_append_new(rows, row);
    }
    (void)json_object_set_new(page, "flops", rows);
}

void nas_write_page(const nas *self, const json_t *summary)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    char *path = nas_path(self, "index.html");
    json_t *page = json_pack("{s:s, s:b, s:b, s:I}", "method", self->method->name, "shared",
                             (int)self->is_shared, "finals", (int)has_finals(self), "trials",
                             (json_int_t)self->count);
    char *name = bp_printable(bp_path_base(run_dir));
    bp_err err;

    (void)json_object_set_new(page, "title",
                              json_sprintf("Search for the shape of a model: %s", name));
    bp_free(name);

    bp_report_about(page, run_dir);
    add_rows(page, self);
    add_correlation(page, summary);
    add_ranking(page, self, summary);
    add_flops(page, summary);
    err = add_plot(page, self);
    if (err == BP_OK)
        err = bp_report_page(path, "search", page);
    if (err != BP_OK)
        bp_warn_failure("the page of the search was not written: %s", bp_err_text());
    json_decref(page);
    bp_free(path);
}
