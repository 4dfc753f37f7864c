/* A training's page and plots, from run folders alone. */
#include "report/training.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/report.h"
#include "run/status/run_history.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS       400  /* of a curve, at most; */
#define POINTS_ALL   2400 /* of all curves, but each has */
#define POINTS_LEAST 100
#define SMOOTH_SHARE 25 /* the smoothed loss is the mean of this part of a curve's lines */
#define FIRST_SHARE                                                                                \
    33 /* this part of them comes first: where it is steep, it may lie above the axes */
#define FEW_LINES 30  /* each is seen as a point */
#define STEEP     1.5 /* that is, where it makes the axis so many times as long */

typedef struct training {
    bp_history *runs;
    char **names; /* [runs]: what they are called */
    int64_t count, curves, points;
    bool thinned; /* a curve has more lines than points */
} training;

static bp_err out_of_memory(void)
{
    return bp_fail_memory("the plots of a training", 1, 1);
}

/* ---- runs ---- */

/* The name of the folder, whichever way it is named. NULL: no memory. */
static char *folder_name(const char *folder)
{
    char *real = realpath(folder, NULL);
    char *name = bp_strdup(bp_path_base(real ? real : folder));

    free(real); /* realpath's */
    return name;
}

/* Two runs of one name are told by their paths. */
static bp_err name_runs(training *self)
{
    bool alike = false;

    for (int64_t r = 0; r < self->count; r++) {
        self->names[r] = folder_name(self->runs[r].folder);
        if (!self->names[r])
            return out_of_memory();
        for (int64_t k = 0; k < r; k++)
            alike = alike || strcmp(self->names[k], self->names[r]) == 0;
    }
    for (int64_t r = 0; alike && r < self->count; r++) {
        bp_free(self->names[r]);
        self->names[r] = bp_strdup(self->runs[r].folder);
        if (!self->names[r])
            return out_of_memory();
    }
    return BP_OK;
}

static void set_points(training *self)
{
    self->points = POINTS_ALL / (self->curves > 0 ? self->curves : 1);
    self->points = self->points > POINTS ? POINTS : self->points;
    self->points = self->points < POINTS_LEAST ? POINTS_LEAST : self->points;
    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++)
            self->thinned = self->thinned || self->runs[r].curves[c].count > self->points;
}

static bp_err open_runs(training *self, const char *const *folders, int64_t count)
{
    int64_t begun = 0;
    bp_err err = BP_OK;

    *self = (training){.runs = bp_alloc("report.runs", count, sizeof *self->runs),
                       .names = bp_alloc("report.runs", count, sizeof *self->names)};
    if (!self->runs || !self->names)
        return out_of_memory();
    for (int64_t r = 0; r < count && err == BP_OK; r++) {
        err = bp_history_read(&self->runs[self->count++], folders[r]);
        for (int64_t c = 0; c < self->runs[r].curve_count; c++)
            begun += isfinite(bp_curve_figures_of(&self->runs[r].curves[c]).loss);
        self->curves += self->runs[r].curve_count;
    }
    if (err == BP_OK)
        err = name_runs(self);
    if (err == BP_OK && begun == 0)
        err = BP_FAIL(BP_ERR_FORMAT,
                      "no step is logged yet: at %s/metrics.jsonl; wait for train.log_every steps",
                      folders[0]);
    set_points(self);
    return err;
}

static void close_runs(training *self)
{
    for (int64_t r = 0; r < self->count; r++) {
        bp_history_clear(&self->runs[r]);
        bp_free(self->names[r]);
    }
    bp_free(self->names);
    bp_free(self->runs);
}

/* ---- curves as CSV ---- */

/* The mean of what is finite of column c in rows [first, end). */
static double mean_of(const bp_curve *curve, int c, int64_t first, int64_t end)
{
    double sum = 0;
    int64_t count = 0;

    for (int64_t k = first; k < end; k++)
        if (isfinite(curve->rows[k][c])) {
            sum += curve->rows[k][c];
            count++;
        }
    return count > 0 ? sum / (double)count : NAN;
}

static void range_of(double *low, double *high, const bp_curve *curve, int c, int64_t first,
                     int64_t end)
{
    *low = *high = NAN;
    for (int64_t k = first; k < end; k++) {
        *low = fmin(*low, curve->rows[k][c]); /* which pass over NaN */
        *high = fmax(*high, curve->rows[k][c]);
    }
}

/* Around row k as far on one side as on the other, so that an end pulls at nothing. */
static double smooth_at(const bp_curve *curve, int64_t k)
{
    int64_t half = curve->count / SMOOTH_SHARE / 2;

    half = half < k ? half : k;
    half = half < curve->count - 1 - k ? half : curve->count - 1 - k;
    return mean_of(curve, BP_HISTORY_LOSS, k - half, k + half + 1);
}

static void put_place(bp_buffer *out, const double *row)
{
    bp_buffer_printf(out, "%.9g,%.9g,%.6g", row[BP_HISTORY_STEP], row[BP_HISTORY_TOKENS],
                     row[BP_HISTORY_HOURS]);
}

/* Runs of lines become one: where the last of them stands, with means and, of the loss, the ends.
 * steps,tokens,hours,loss,least,most,smoothed,rate,norm,speed */
static void put_curve(bp_buffer *out, const training *self, const bp_curve *curve)
{
    int64_t points = curve->count < self->points ? curve->count : self->points;

    for (int64_t p = 0; p < points; p++) {
        int64_t first = p * curve->count / points, end = (p + 1) * curve->count / points;
        double low, high;

        range_of(&low, &high, curve, BP_HISTORY_LOSS, first, end);
        put_place(out, curve->rows[end - 1]);
        bp_buffer_printf(out, ",%.6g,%.6g,%.6g,%.6g", mean_of(curve, BP_HISTORY_LOSS, first, end),
                         low, high, smooth_at(curve, (first + end - 1) / 2));
        bp_buffer_printf(out, ",%.6g,%.6g,%.6g\n", curve->rows[end - 1][BP_HISTORY_RATE],
                         mean_of(curve, BP_HISTORY_GRAD_NORM, first, end),
                         mean_of(curve, BP_HISTORY_SPEED, first, end));
    }
}

/* steps,tokens,hours,loss: of every so many validations one, and the last. */
static int64_t put_validations(bp_buffer *out, const training *self, const bp_curve *curve)
{
    int64_t count = 0, at = 0, every;

    for (int64_t k = 0; k < curve->count; k++)
        count += isfinite(curve->rows[k][BP_HISTORY_VALID_LOSS]);
    every = (count + self->points - 1) / self->points;
    for (int64_t k = 0; k < curve->count; k++) {
        if (!isfinite(curve->rows[k][BP_HISTORY_VALID_LOSS]) || (count - ++at) % every != 0)
            continue;
        put_place(out, curve->rows[k]);
        bp_buffer_printf(out, ",%.6g\n", curve->rows[k][BP_HISTORY_VALID_LOSS]);
    }
    return count;
}

/* What losses reach: all of them, and without those of each curve's first lines. */
typedef struct reach {
    double low, high, later;
} reach;

static void extend(reach *to, double value, bool first)
{
    to->low = fmin(to->low, value); /* which pass over NaN */
    to->high = fmax(to->high, value);
    if (!first)
        to->later = fmax(to->later, value);
}

/* Null: the axis ends where the curves do. */
static json_t *top_of(const reach *all)
{
    bool steep = all->high - all->low > STEEP * (all->later - all->low);

    return steep ? json_real(all->later + 0.05 * (all->later - all->low)) : json_null();
}

static json_t *top_of_curves(const training *self, int column)
{
    reach all = {NAN, NAN, NAN};

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_curve *curve = &self->runs[r].curves[c];

            for (int64_t k = 0; k < curve->count; k++)
                extend(&all, curve->rows[k][column], k < curve->count / FIRST_SHARE);
        }
    return top_of(&all);
}

/* An empty curve has a line too, so that gnuplot counts it. */
static void end_block(bp_buffer *out, size_t began, const char *empty)
{
    if (out->bytes == began)
        bp_buffer_printf(out, "%s\n", empty);
    bp_buffer_printf(out, "\n\n");
}

/* ---- what gnuplot is told ---- */

static bool is_member(const bp_history *run, int64_t c)
{
    return c + 1 < run->curve_count;
}

/* Members of an ensemble that is alone have names and colours of their own, and their mean is
 * black; among other runs they have their run's colour. */
static void describe_curve(json_t *variables, const training *self, int64_t r, int64_t c)
{
    const bp_history *run = &self->runs[r];
    bool alone = self->count == 1, mean = run->curve_count > 1 && !is_member(run, c);
    const char *name = alone && run->curve_count > 1 ? run->curves[c].name
                       : is_member(run, c)           ? ""
                                                     : self->names[r];
    int64_t colour = !alone ? r + 1 : mean ? 7 : c % 6 + 1;

    (void)json_array_append_new(json_object_get(variables, "names"), json_string(name));
    (void)json_array_append_new(json_object_get(variables, "numbers"), json_integer(colour));
    (void)json_array_append_new(json_object_get(variables, "members"),
                                json_integer(is_member(run, c)));
    (void)json_array_append_new(json_object_get(variables, "few"),
                                json_integer(run->curves[c].count <= FEW_LINES));
}

/* The largest value of a column, 1 where there is none above 0. */
static json_t *most_of_curves(const training *self, int column)
{
    double most = 0;

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_curve *curve = &self->runs[r].curves[c];

            for (int64_t k = 0; k < curve->count; k++)
                most = fmax(most, curve->rows[k][column]);
        }
    return json_real(most > 0 ? most : 1);
}

/* NULL: no memory. */
static json_t *variables_of(const training *self)
{
    json_t *variables = json_pack(
        "{s:[], s:[], s:[], s:[], s:[o, o, o, o], s:o, s:o}", "names", "numbers", "members", "few",
        "most", most_of_curves(self, BP_HISTORY_STEP), most_of_curves(self, BP_HISTORY_TOKENS),
        most_of_curves(self, BP_HISTORY_HOURS), most_of_curves(self, BP_HISTORY_SPEED), "top",
        top_of_curves(self, BP_HISTORY_LOSS), "valid_top",
        top_of_curves(self, BP_HISTORY_VALID_LOSS));
    bp_buffer train = {0}, valid = {0};
    char *train_text, *valid_text;
    int64_t validations = 0;

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_curve *curve = &self->runs[r].curves[c];
            size_t train_began = train.bytes, valid_began = valid.bytes;

            describe_curve(variables, self, r, c);
            put_curve(&train, self, curve);
            end_block(&train, train_began, "NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN");
            validations += put_validations(&valid, self, curve);
            end_block(&valid, valid_began, "NaN,NaN,NaN,NaN");
        }
    train_text = bp_buffer_take(&train);
    valid_text = bp_buffer_take(&valid);
    if (!train_text || !valid_text ||
        json_object_set_new(variables, "$train", json_string(train_text)) != 0 ||
        json_object_set_new(variables, "$valid", json_string(valid_text)) != 0 ||
        json_object_set_new(variables, "validations", json_integer(validations)) != 0) {
        json_decref(variables);
        variables = NULL;
    }
    bp_free(train_text);
    bp_free(valid_text);
    return variables;
}

/* One picture; its variables stay the caller's. */
static bp_err draw(char **picture, size_t *bytes, json_t *variables, const char *x,
                   const char *format)
{
    char *script = NULL;
    bp_err err = BP_OK;

    *picture = NULL;
    if (json_object_set_new(variables, "x", json_string(x)) != 0 ||
        json_object_set_new(variables, "formats", json_string(format)) != 0)
        err = out_of_memory();
    if (err == BP_OK)
        err = bp_report_script(&script, "training", variables);
    if (err == BP_OK)
        err = bp_gnuplot(picture, bytes, NULL, script);
    if (err == BP_ERR_FORMAT) /* no fault of the runs */
        err = BP_FAIL(BP_ERR_SYSTEM, "%s", bp_err_message());
    bp_free(script);
    return err;
}

bp_err bp_training_picture(const char *path, const char *const *folders, int64_t count,
                           const char *x, bool png)
{
    training self;
    json_t *variables = NULL;
    char *picture = NULL;
    size_t bytes = 0;
    bp_err err = open_runs(&self, folders, count);

    if (err == BP_OK && !(variables = variables_of(&self)))
        err = out_of_memory();
    if (err == BP_OK)
        err = draw(&picture, &bytes, variables, x, png ? "png" : "svg");
    if (err == BP_OK)
        err = bp_file_write(path, picture, bytes);
    bp_free(picture);
    json_decref(variables);
    close_runs(&self);
    return err;
}

/* ---- the page ---- */

/* Null where there is no number. */
static json_t *real_text(const char *format, double value)
{
    char *text = isfinite(value) ? bp_sprintf(format, value) : NULL;
    json_t *out = text ? json_string(text) : json_null();

    bp_free(text);
    return out;
}

static json_t *duration_text(double hours)
{
    char text[64];

    if (!isfinite(hours))
        return json_null();
    bp_clock_duration(text, sizeof text, 3600 * hours);
    return json_string(text);
}

/* "12,345,678" */
static json_t *count_text(int64_t value)
{
    char digits[32], text[48];
    size_t length, at = 0;

    if (value <= 0)
        return json_null();
    length = (size_t)snprintf(digits, sizeof digits, "%" PRId64, value);
    for (size_t k = 0; k < length; k++) {
        if (k > 0 && (length - k) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[k];
    }
    text[at] = '\0';
    return json_string(text);
}

static json_t *row_of(const training *self, int64_t r, int64_t c)
{
    const bp_history *run = &self->runs[r];
    const bp_curve_figures figures = bp_curve_figures_of(&run->curves[c]);
    char *name =
        bp_sprintf("%s%s%s", self->names[r], run->curve_count > 1 ? ", " : "", run->curves[c].name);
    json_t *row = json_pack(
        "{s:s?, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", name, "state",
        is_member(run, c) ? "" : run->state, "step", count_text(figures.step), "steps",
        count_text(run->steps), "tokens", count_text(figures.tokens), "time",
        duration_text(figures.hours), "loss", real_text("%.4f", figures.loss), "valid_loss",
        real_text("%.4f", figures.best_valid_loss), "best_step", count_text(figures.best_step),
        "speed", count_text((int64_t)(isfinite(figures.median_speed) ? figures.median_speed : 0)));

    bp_free(name);
    return row;
}

/* {"names": [...], "keys": [{"key": ..., "values": [{"value": ...}]}]}, or null: nothing differs.
 */
static json_t *differences_of(const training *self)
{
    const char **keys = NULL;
    int64_t count = 0;
    json_t *names = json_array(), *rows = json_array();

    if (bp_history_differences(&keys, &count, self->runs, self->count) != BP_OK)
        count = 0;
    for (int64_t r = 0; r < self->count; r++)
        (void)json_array_append_new(names, json_string(self->names[r]));
    for (int64_t k = 0; k < count; k++) {
        json_t *values = json_array();

        for (int64_t r = 0; r < self->count; r++)
            (void)json_array_append_new(
                values, json_pack("{s:s?}", "value", bp_history_key(&self->runs[r], keys[k])));
        (void)json_array_append_new(rows,
                                    json_pack("{s:s, s:o}", "key", keys[k], "values", values));
    }
    bp_free(keys);
    if (count > 0)
        return json_pack("{s:o, s:o}", "names", names, "keys", rows);
    json_decref(names);
    json_decref(rows);
    return json_null();
}

/* NULL: no memory. */
static json_t *page_of(const training *self)
{
    json_t *rows = json_array();
    char *title = self->count == 1 ? bp_sprintf("Training of %s", self->names[0])
                                   : bp_sprintf("%" PRId64 " trainings", self->count);
    json_t *page;

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++)
            (void)json_array_append_new(rows, row_of(self, r, c));
    page = json_pack("{s:s?, s:o, s:o, s:b, s:I, s:i, s:[]}", "title", title, "runs", rows,
                     "differences", differences_of(self), "thinned", (int)self->thinned, "points",
                     (json_int_t)self->points, "smooth_percent", 100 / SMOOTH_SHARE, "plots");
    bp_free(title);
    return page;
}

/* Plots over steps, tokens and hours. Errors: those of draw. */
static bp_err add_plots(json_t *page, const training *self)
{
    static const char *const X[] = {"steps", "tokens", "hours"};
    json_t *variables = variables_of(self);
    bp_err err = variables ? BP_OK : out_of_memory();

    for (int k = 0; k < 3 && err == BP_OK; k++) {
        char *picture, *svg;
        size_t bytes;

        err = draw(&picture, &bytes, variables, X[k], "svg");
        svg = bp_report_svg(picture, X[k]);
        if (err == BP_OK && !svg)
            err = BP_FAIL(BP_ERR_SYSTEM, "gnuplot drew nothing");
        if (err == BP_OK)
            (void)json_array_append_new(
                json_object_get(page, "plots"),
                json_pack("{s:s, s:s, s:b}", "x", X[k], "svg", svg, "first", k == 0));
        bp_free(svg);
        bp_free(picture);
    }
    json_decref(variables);
    return err;
}

bp_err bp_training_page(const char *path, const char *const *folders, int64_t count, char **notice)
{
    training self;
    json_t *page = NULL;
    bp_err err = open_runs(&self, folders, count);

    *notice = NULL;
    if (err == BP_OK && !(page = page_of(&self)))
        err = out_of_memory();
    if (err == BP_OK && add_plots(page, &self) != BP_OK) {
        *notice = bp_strdup(bp_err_message());
        (void)json_object_set_new(page, "notice", json_string(*notice));
    }
    if (err == BP_OK)
        err = bp_report_page(path, "training", page);
    json_decref(page);
    close_runs(&self);
    return err;
}

void bp_training_leave_page(const char *folder)
{
    char *path = bp_path_join(folder, "index.html"), *notice = NULL;
    bp_err err = path ? bp_training_page(path, &folder, 1, &notice) : out_of_memory();

    if (err != BP_OK)
        bp_warn("the page of the training was not written: %s", bp_err_message());
    else if (notice)
        bp_log("a page with figures, but no plots: %s (%s)", path, notice);
    else
        bp_log("a page with plots: %s", path);
    bp_free(notice);
    bp_free(path);
}
