/* A training's page and plots, from run folders only. Called by jobs/plot.c,
 * train/ensemble/ensemble.c and train/loop/pretrain.c. */
#include "job/report/training.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/process/clock.h"
#include "job/report/report.h"
#include "job/report/template.h"
#include "job/report/training_losses.h"
#include "run/run_folder.h"
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
    33 /* the first lines, as a part of them: where they are steep, they may exceed the axes */
#define FEW_LINES 30  /* each is seen as a point */
#define STEEP     1.5 /* steep: it makes the axis this many times as long */

typedef struct training {
    bp_history *runs;
    char **names; /* [runs]: their names */
    int64_t count, curves, points;
    bool thinned; /* a curve has more lines than points */
    bool has_mean;
    bp_history mean; /* of runs that differ only in their seed */
} training;

/* ---- runs ---- */

/* The names of the folders, however they are given; two folders of one name are shown by their
 * paths. */
static void name_runs(training *self)
{
    bool alike = false;

    for (int64_t r = 0; r < self->count; r++) {
        char *real = realpath(self->runs[r].folder, NULL);

        self->names[r] = bp_printable(bp_path_base(real ? real : self->runs[r].folder));
        free(real); /* realpath's */
        for (int64_t k = 0; k < r; k++)
            alike = alike || strcmp(self->names[k], self->names[r]) == 0;
    }
    for (int64_t r = 0; alike && r < self->count; r++) {
        bp_free(self->names[r]);
        self->names[r] = bp_printable(self->runs[r].folder);
    }
}

static bp_err open_runs(training *self, const char *const *folders, int64_t count)
{
    int64_t begun = 0;
    bp_err err = BP_OK;

    *self = (training){.runs = bp_alloc("report.runs", count, sizeof *self->runs),
                       .names = bp_alloc("report.runs", count, sizeof *self->names)};
    for (int64_t r = 0; r < count && err == BP_OK; r++) {
        err = bp_history_read(&self->runs[self->count++], folders[r]);
        self->curves += self->runs[r].curve_count;
    }
    if (err != BP_OK)
        return err;
    name_runs(self);
    self->has_mean = bp_history_mean(&self->mean, self->runs, count);
    self->curves += self->has_mean;
    self->points = POINTS_ALL / (self->curves > 0 ? self->curves : 1);
    self->points = self->points > POINTS ? POINTS : self->points;
    self->points = self->points < POINTS_LEAST ? POINTS_LEAST : self->points;
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            begun += isfinite(bp_curve_figures_of(&self->runs[r].curves[c]).loss);
            self->thinned = self->thinned || self->runs[r].curves[c].count > self->points;
        }
    if (begun > 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "run.no_steps",
                   "no step is logged yet: at %s/metrics.jsonl; wait for train.log_every steps",
                   folders[0]);
}

static void close_runs(training *self)
{
    bp_history_mean_clear(&self->mean);
    for (int64_t r = 0; r < self->count; r++) {
        bp_history_clear(&self->runs[r]);
        bp_free(self->names[r]);
    }
    bp_free(self->names);
    bp_free(self->runs);
}

/* ---- curves as CSV ---- */

/* The mean of the finite values of column c in rows [first, end). */
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

static void put_place(bp_buffer *out, const double *row)
{
    bp_buffer_printf(out, "%.9g,%.9g,%.6g", row[BP_HISTORY_STEP], row[BP_HISTORY_TOKENS],
                     row[BP_HISTORY_HOURS]);
}

/* The line of a step, or -1. */
static int64_t line_at(const bp_curve *curve, double step)
{
    int64_t first = 0, end = curve->count;

    while (first < end) {
        int64_t middle = (first + end) / 2;

        if (curve->rows[middle][BP_HISTORY_STEP] < step)
            first = middle + 1;
        else
            end = middle;
    }
    return first < curve->count && curve->rows[first][BP_HISTORY_STEP] == step ? first : -1;
}

/* The least and the largest loss of a curve at line k; of a mean (run is not NULL) its members'. */
static void widen(double *low, double *high, const bp_history *run, const bp_curve *curve,
                  int64_t k)
{
    double own = curve->rows[k][BP_HISTORY_LOSS];

    *low = fmin(*low, own); /* which ignore NaN */
    *high = fmax(*high, own);
    for (int64_t c = 0; run && c + 1 < run->curve_count; c++) {
        int64_t at = line_at(&run->curves[c], curve->rows[k][BP_HISTORY_STEP]);

        if (at >= 0) {
            *low = fmin(*low, run->curves[c].rows[at][BP_HISTORY_LOSS]);
            *high = fmax(*high, run->curves[c].rows[at][BP_HISTORY_LOSS]);
        }
    }
}

/* Groups of lines become one, at the position of the last, with means, and for the loss the
 * extremes. Loss and speed are smoothed over a symmetric window, so that the ends are unbiased.
 * steps,tokens,hours,loss,least,most,smoothed,rate,norm,speed */
static void put_curve(bp_buffer *out, const training *self, const bp_history *mean_of_run,
                      const bp_curve *curve)
{
    int64_t points = curve->count < self->points ? curve->count : self->points;

    for (int64_t p = 0; p < points; p++) {
        int64_t first = p * curve->count / points, end = (p + 1) * curve->count / points;
        int64_t middle = (first + end - 1) / 2, half = curve->count / SMOOTH_SHARE / 2;
        double low = NAN, high = NAN;

        half = half < middle ? half : middle;
        half = half < curve->count - 1 - middle ? half : curve->count - 1 - middle;
        for (int64_t k = first; k < end; k++)
            widen(&low, &high, mean_of_run, curve, k);
        put_place(out, curve->rows[end - 1]);
        bp_buffer_printf(out, ",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n",
                         mean_of(curve, BP_HISTORY_LOSS, first, end), low, high,
                         mean_of(curve, BP_HISTORY_LOSS, middle - half, middle + half + 1),
                         curve->rows[end - 1][BP_HISTORY_RATE],
                         mean_of(curve, BP_HISTORY_GRAD_NORM, first, end),
                         mean_of(curve, BP_HISTORY_SPEED, middle - half, middle + half + 1));
    }
}

/* steps,tokens,hours,loss,accuracy: one of every N validations, and the last. */
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
        bp_buffer_printf(out, ",%.6g,%.6g\n", curve->rows[k][BP_HISTORY_VALID_LOSS],
                         curve->rows[k][BP_HISTORY_VALID_ACCURACY]);
    }
    return count;
}

/* The range of a column in all curves: with and without each curve's first lines. */
typedef struct reach {
    double low, high, later;
} reach;

static reach reach_of(const training *self, int column)
{
    reach all = {NAN, NAN, NAN};

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_curve *curve = &self->runs[r].curves[c];

            for (int64_t k = 0; k < curve->count; k++) {
                double value = curve->rows[k][column];

                all.low = fmin(all.low, value); /* which pass over NaN */
                all.high = fmax(all.high, value);
                if (k >= curve->count / FIRST_SHARE)
                    all.later = fmax(all.later, value);
            }
        }
    return all;
}

/* The end of the axis of losses; null: the end of the curves. Validations are always within it. */
static json_t *top_of_losses(const training *self)
{
    reach all = reach_of(self, BP_HISTORY_LOSS), valid = reach_of(self, BP_HISTORY_VALID_LOSS);
    bool steep = all.high - all.low > STEEP * (all.later - all.low);
    double top = all.later + 0.05 * (all.later - all.low);

    return steep ? json_real(fmax(top, valid.later)) : json_null(); /* which ignores NaN */
}

/* The largest value of a column, or 1 if no value is above 0. */
static json_t *most_of_curves(const training *self, int column)
{
    double most = reach_of(self, column).high;

    return json_real(most > 0 ? most : 1);
}

/* An empty curve has a line too, so that gnuplot counts it. */
static void end_block(bp_buffer *out, size_t began, const char *empty)
{
    if (out->bytes == began)
        bp_buffer_printf(out, "%s\n", empty);
    bp_buffer_printf(out, "\n\n");
}

/* ---- variables of the gnuplot scripts ---- */

static bool is_member(const bp_history *run, int64_t c)
{
    return c + 1 < run->curve_count;
}

/* Members of a single ensemble have names and colours of their own, and their mean is black; among
 * other runs they have their run's colour. */
static void describe_curve(json_t *variables, const training *self, int64_t r, int64_t c)
{
    const bp_history *run = &self->runs[r];
    bool alone = self->count == 1, member = is_member(run, c), of_mean = member || self->has_mean;
    const char *name = alone && run->curve_count > 1 ? run->curves[c].name
                       : member                      ? ""
                                                     : self->names[r];
    int64_t colour = !alone ? r + 1 : run->curve_count > 1 && !member ? 7 : c % 6 + 1;
    bool few = run->curves[c].count <= FEW_LINES;

    (void)json_array_append_new(json_object_get(variables, "names"), bp_json_string(name));
    (void)json_array_append_new(json_object_get(variables, "numbers"), json_integer(colour));
    (void)json_array_append_new(json_object_get(variables, "members"), json_integer(of_mean));
    (void)json_array_append_new(json_object_get(variables, "few"), json_integer(few));
}

static void set_block(json_t *variables, const char *name, bp_buffer *block)
{
    (void)json_object_set_new(variables, name, bp_json_string(block->data));
    bp_buffer_clear(block);
}

/* For runs that differ only in their seed: black, with the band that they span. */
static void describe_mean(json_t *variables, const bp_curve *mean)
{
    (void)json_array_append_new(json_object_get(variables, "names"), json_string("mean"));
    (void)json_array_append_new(json_object_get(variables, "numbers"), json_integer(7));
    (void)json_array_append_new(json_object_get(variables, "members"), json_integer(0));
    (void)json_array_append_new(json_object_get(variables, "few"),
                                json_integer(mean->count <= FEW_LINES));
}

static void put_blocks(bp_buffer *train, bp_buffer *valid, int64_t *validations,
                       const training *self, const bp_history *mean_of_run, const bp_curve *curve)
{
    size_t train_began = train->bytes, valid_began = valid->bytes;

    put_curve(train, self, mean_of_run, curve);
    end_block(train, train_began, "NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN,NaN");
    *validations += put_validations(valid, self, curve);
    end_block(valid, valid_began, "NaN,NaN,NaN,NaN,NaN");
}

static json_t *variables_of(const training *self)
{
    char axis[REPORT_AXIS_BYTES];
    json_t *variables =
        json_pack("{s:[], s:[], s:[], s:[], s:[o, o, o, o], s:o, s:s, s:i, s:i}", "names",
                  "numbers", "members", "few", "most", most_of_curves(self, BP_HISTORY_STEP),
                  most_of_curves(self, BP_HISTORY_TOKENS), most_of_curves(self, BP_HISTORY_HOURS),
                  most_of_curves(self, BP_HISTORY_SPEED), "top", top_of_losses(self), "axis",
                  report_loss_axis(axis, self->runs, self->count), "alone", (int)(self->count == 1),
                  "accuracies", (int)isfinite(reach_of(self, BP_HISTORY_VALID_ACCURACY).high));
    bp_buffer train = {0}, valid = {0};
    int64_t validations = 0;

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_curve *curve = &self->runs[r].curves[c];

            describe_curve(variables, self, r, c);
            put_blocks(&train, &valid, &validations, self,
                       is_member(&self->runs[r], c) ? NULL : &self->runs[r], curve);
        }
    if (self->has_mean) {
        describe_mean(variables, bp_history_main(&self->mean));
        put_blocks(&train, &valid, &validations, self, &self->mean, bp_history_main(&self->mean));
    }
    set_block(variables, "$train", &train);
    set_block(variables, "$valid", &valid);
    (void)json_object_set_new(variables, "validations", json_integer(validations));
    return variables;
}

/* One picture; its variables stay the caller's. */
static bp_err draw(char **picture, size_t *bytes, json_t *variables, const char *x,
                   const char *format)
{
    char *script = NULL;
    bp_err err;

    *picture = NULL;
    (void)json_object_set_new(variables, "x", bp_json_string(x));
    (void)json_object_set_new(variables, "formats", bp_json_string(format));
    err = bp_report_script(&script, "training", variables);
    if (err == BP_OK)
        err = bp_gnuplot(picture, bytes, NULL, script);
    if (err == BP_ERR_FORMAT) /* no fault of the runs */
        err = BP_ERR_SYSTEM;
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

    if (err == BP_OK) {
        variables = variables_of(&self);
        err = draw(&picture, &bytes, variables, x, png ? "png" : "svg");
    }
    if (err == BP_OK)
        err = bp_file_write(path, picture, bytes);
    bp_free(picture);
    json_decref(variables);
    close_runs(&self);
    return err;
}

/* ---- the page ---- */

/* Null if it is not a number. */
static json_t *real_text(const char *format, double value)
{
    return isfinite(value) ? json_sprintf(format, value) : json_null();
}

/* "12,345,678", or null. */
static json_t *count_text(int64_t value)
{
    return value > 0 ? json_integer(value) : json_null();
}

static json_t *row_of(const char *run, const char *curve_name, const char *state, int64_t steps,
                      const bp_curve_figures figures)
{
    char time[64];

    bp_clock_duration(time, sizeof time, 3600 * figures.hours);
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
        json_sprintf("%s%s%s", run, curve_name[0] ? ", " : "", curve_name), "state", state, "step",
        count_text(figures.step), "steps", count_text(steps), "tokens", count_text(figures.tokens),
        "time", isfinite(figures.hours) ? bp_json_string(time) : json_null(), "loss",
        real_text("%.4f", figures.loss), "valid_loss", real_text("%.4f", figures.best_valid_loss),
        "best_step", count_text(figures.best_step), "speed",
        count_text((int64_t)(isfinite(figures.median_speed) ? figures.median_speed : 0)));
}

#define RUNS_ACROSS 6 /* more are rows of the keys that differ, not columns */

/* {"corner": what rows are, "heads": [...], "rows": [{"head": ..., "values": [{"value": ...}]}]},
 * or null if nothing differs. */
static json_t *differences_of(const training *self)
{
    const char **keys = NULL;
    int64_t count = 0, lines, columns;
    bool by_run = self->count > RUNS_ACROSS;
    json_t *heads = json_array(), *rows = json_array();

    bp_history_differences(&keys, &count, self->runs, self->count);
    lines = by_run ? self->count : count;
    columns = by_run ? count : self->count;
    for (int64_t c = 0; c < columns; c++)
        (void)json_array_append_new(heads, bp_json_string(by_run ? keys[c] : self->names[c]));
    for (int64_t l = 0; l < lines && count > 0; l++) {
        json_t *values = json_array();

        for (int64_t c = 0; c < columns; c++)
            (void)json_array_append_new(
                values,
                json_pack("{s:s?}", "value",
                          bp_history_key(&self->runs[by_run ? l : c], keys[by_run ? c : l])));
        (void)json_array_append_new(
            rows, json_pack("{s:o, s:o}", "head", bp_json_string(by_run ? self->names[l] : keys[l]),
                            "values", values));
    }
    bp_free(keys);
    if (count > 0)
        return json_pack("{s:s, s:o, s:o}", "corner", by_run ? "run" : "key", "heads", heads,
                         "rows", rows);
    json_decref(heads);
    json_decref(rows);
    return json_null();
}

/* For several runs: the commands are below the figures, as there may be many. */
static void add_runs(json_t *page, const training *self)
{
    const char **folders = bp_alloc("report", self->count, sizeof *folders);

    for (int64_t r = 0; r < self->count; r++)
        folders[r] = self->runs[r].folder;
    bp_report_about_runs(page, self->names, folders, self->count);
    (void)json_object_set_new(page, "several", json_true());
    bp_free(folders);
}

/* Names of a few runs, or how many they are. */
static json_t *title_of(const training *self)
{
    bp_buffer names = {0};
    json_t *title;

    for (int64_t r = 0; r < self->count; r++)
        bp_buffer_printf(&names, "%s%s",
                         r == 0                ? ""
                         : r + 1 < self->count ? ", "
                                               : " and ",
                         self->names[r]);
    title = self->count == 1             ? json_sprintf("Training of %s", names.data)
            : self->count <= RUNS_ACROSS ? json_sprintf("Trainings of %s", names.data)
                                         : json_sprintf("%" PRId64 " trainings", self->count);
    bp_buffer_clear(&names);
    return title;
}

static json_t *page_of(const training *self)
{
    json_t *rows = json_array(), *title, *page;

    for (int64_t r = 0; r < self->count; r++)
        for (int64_t c = 0; c < self->runs[r].curve_count; c++) {
            const bp_history *run = &self->runs[r];

            (void)json_array_append_new(
                rows,
                row_of(self->names[r], run->curve_count > 1 ? run->curves[c].name : "",
                       is_member(run, c) ? "" : run->state, run->steps, bp_history_row(run, c)));
        }
    if (self->has_mean)
        (void)json_array_append_new(
            rows, row_of("mean", "", "", self->runs[0].steps,
                         bp_history_row(&self->mean, self->mean.curve_count - 1)));
    title = title_of(self);
    page = json_pack("{s:o, s:o, s:o, s:b, s:I, s:i, s:[]}", "title", title, "runs", rows,
                     "differences", differences_of(self), "thinned", (int)self->thinned, "points",
                     (json_int_t)self->points, "smooth_percent", 100 / SMOOTH_SHARE, "plots");
    report_describe_losses(page, self->runs, self->count);
    (void)json_object_set_new(page, "seeds", json_boolean(self->has_mean));
    if (self->count == 1)
        bp_report_about(page, self->runs[0].folder);
    else
        add_runs(page, self);
    return page;
}

/* page.values: the values of each curve for the page's script, as JSON that is safe in a
 * <script>. */
static void add_points(json_t *page, const json_t *variables)
{
    json_t *points =
        json_pack("{s:O, s:O, s:O, s:O}", "names", json_object_get(variables, "names"), "most",
                  json_object_get(variables, "most"), "train", json_object_get(variables, "$train"),
                  "valid", json_object_get(variables, "$valid"));
    char *text = json_dumps(points, JSON_COMPACT | JSON_ENSURE_ASCII);
    bp_buffer out = {0};

    bp_script_escape(&out, text ? text : "");
    (void)json_object_set_new(page, "values", bp_json_string(out.data ? out.data : "{}"));
    bp_buffer_clear(&out);
    free(text); /* jansson's */
    json_decref(points);
}

/* Plots over steps, tokens and hours. Errors: those of draw. */
static bp_err add_plots(json_t *page, const training *self)
{
    static const char *const X[] = {"steps", "tokens", "hours"};
    json_t *variables = variables_of(self);
    bp_err err = BP_OK;

    add_points(page, variables);
    for (int k = 0; k < 3 && err == BP_OK; k++) {
        char *picture, *svg;
        size_t bytes;

        err = draw(&picture, &bytes, variables, X[k], "svg");
        svg = bp_report_svg(picture, X[k]);
        if (err == BP_OK && !svg)
            err = BP_FAIL(BP_ERR_SYSTEM, "gnuplot.no_picture", "gnuplot drew nothing");
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
    if (err == BP_OK)
        page = page_of(&self);
    if (err == BP_OK && add_plots(page, &self) != BP_OK) {
        *notice = bp_strdup(bp_err_message());
        (void)json_object_set_new(page, "notice", bp_json_string(*notice));
    }
    if (err == BP_OK)
        err = bp_report_page(path, "training", page);
    json_decref(page);
    close_runs(&self);
    return err;
}

/* A failure is a warning. */
static void leave_page(const char *folder)
{
    char *notice = NULL;
    const bp_path path = bp_path_in(folder, "index.html");
    bp_err err = bp_training_page(path.text, &folder, 1, &notice);

    if (err != BP_OK)
        bp_warn_failure("the page of the training was not written: %s", bp_err_text());
    else if (notice)
        bp_log("a page with figures, but no plots: %s (%s)", path.text, notice);
    else
        bp_log("a page with plots: %s", path.text);
    bp_free(notice);
}

void bp_training_keep_page(const char *folder, bool is_new)
{
    static const char *const names[] = {"index.html"};

    if (!is_new && (!bp_run_first_missing(folder, names, 1) || !bp_report_has_page("training")))
        return;
    if (!is_new)
        bp_run_say_missing(folder, names[0]);
    leave_page(folder);
}
