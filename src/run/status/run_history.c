/* What runs left, read back for status, plots and tables: keys, curves, speeds. */
#include "run/status/run_history.h"

#include "base/fs.h"
#include "base/mem.h"
#include "run/run_compare_priv.h"
#include "run/status/run_status.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_LIMIT ((size_t)1 << 20)

/* The names of the columns in a line; those of an ensemble's are means. */
static const char *const KEYS[BP_HISTORY_COLUMNS] = {
    "step", "tokens", "seconds", "loss", "valid_loss", "lr", "grad_norm", "tokens_per_second"};
static const char *const MEAN_KEYS[BP_HISTORY_COLUMNS] = {
    "step", NULL, NULL, "loss_mean", "valid_loss_mean", NULL, NULL, NULL};

/* ---- lines ---- */

typedef struct reader {
    bp_curve *curve;
    const char *const *keys;
    int64_t room;
    bool short_of_memory;
} reader;

/* A start that goes on from a checkpoint takes back the lines behind it. */
static void take_line(reader *self, const json_t *line)
{
    bp_curve *curve = self->curve;
    double row[BP_HISTORY_COLUMNS];

    for (int c = 0; c < BP_HISTORY_COLUMNS; c++) {
        const json_t *value = self->keys[c] ? json_object_get(line, self->keys[c]) : NULL;

        row[c] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    if (!isfinite(row[BP_HISTORY_STEP]))
        return;
    while (curve->count > 0 && curve->rows[curve->count - 1][BP_HISTORY_STEP] >= row[0])
        curve->count--;
    if (curve->count >= self->room) {
        int64_t room = 2 * self->room + 256;
        void *grown = bp_realloc("run.history", curve->rows, room, sizeof row);

        self->short_of_memory = self->short_of_memory || !grown;
        curve->rows = grown;
        self->room = room;
    }
    row[BP_HISTORY_HOURS] =
        (isfinite(row[BP_HISTORY_HOURS]) ? row[BP_HISTORY_HOURS] : 0) / 3600 +
        (curve->count > 0 ? curve->rows[curve->count - 1][BP_HISTORY_HOURS] : 0);
    memcpy(curve->rows[curve->count++], row, sizeof row);
}

/* Take each whole line that is an object; others are passed over, and so is a last line without its
 * end. A missing file has none. */
static bp_err each_line(const char *path, reader *self)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); /* no FIFO is waited for */
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    bp_err err = BP_OK;

    if (stream == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return errno == ENOENT ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't read", path);
    }
    while ((bytes = getline(&line, &room, stream)) > 0 && line[bytes - 1] == '\n') {
        json_t *value = (size_t)bytes > LINE_LIMIT
                            ? NULL
                            : json_loadb(line, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);

        if (json_is_object(value))
            take_line(self, value);
        json_decref(value);
    }
    if (ferror(stream))
        err = bp_fail_errno(BP_ERR_IO, "can't read", path);
    free(line); /* getline's */
    (void)fclose(stream);
    return err;
}

static bp_err out_of_memory(void)
{
    return bp_fail_memory("the lines of a run", 1, sizeof(double) * BP_HISTORY_COLUMNS);
}

/* FOLDER/metrics.jsonl as one more curve, which there is room for. */
static bp_err add_curve(bp_history *history, const char *folder, const char *name)
{
    bp_curve *curve = &history->curves[history->curve_count++];
    bool mean = strcmp(name, "mean") == 0;
    reader self = {.curve = curve, .keys = mean ? MEAN_KEYS : KEYS};
    char *path = bp_path_join(folder, "metrics.jsonl");
    bp_err err;

    curve->name = bp_strdup(name);
    err = path && curve->name ? each_line(path, &self) : out_of_memory();
    bp_free(path);
    return err == BP_OK && self.short_of_memory ? out_of_memory() : err;
}

/* Tokens and hours of an ensemble's lines: those of the first member that has the step. */
static void place_mean(bp_history *history)
{
    bp_curve *mean = &history->curves[history->curve_count - 1];

    for (int64_t k = 0; k + 1 < history->curve_count; k++) {
        const bp_curve *member = &history->curves[k];

        for (int64_t i = 0, j = 0; i < mean->count && j < member->count; j++) {
            const double *row = member->rows[j];

            while (i < mean->count && mean->rows[i][BP_HISTORY_STEP] < row[BP_HISTORY_STEP])
                i++;
            if (i < mean->count && mean->rows[i][BP_HISTORY_STEP] == row[BP_HISTORY_STEP] &&
                isnan(mean->rows[i][BP_HISTORY_TOKENS]))
                memcpy(&mean->rows[i][BP_HISTORY_TOKENS], &row[BP_HISTORY_TOKENS],
                       2 * sizeof(double));
        }
    }
}

static bp_err read_members(bp_history *history, const char *members)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(members, &names, &count);

    if (err == BP_OK) {
        history->curves = bp_alloc("run.history", count + 1, sizeof *history->curves);
        err = history->curves ? BP_OK : out_of_memory();
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *folder = bp_path_join(members, names[k]);

        if (names[k][0] == 'm' && bp_path_is_dir(folder))
            err = add_curve(history, folder, names[k]);
        bp_free(folder);
    }
    bp_names_free(&names, count);
    if (err == BP_OK)
        err = add_curve(history, history->folder, "mean");
    if (err == BP_OK)
        place_mean(history);
    return err;
}

static bp_err read_lines(bp_history *history)
{
    char *members = bp_path_join(history->folder, "members");
    bp_err err = members ? BP_OK : out_of_memory();

    if (err == BP_OK && bp_path_is_dir(members)) {
        err = read_members(history, members);
    } else if (err == BP_OK) {
        history->curves = bp_alloc("run.history", 1, sizeof *history->curves);
        err = history->curves ? add_curve(history, history->folder, "") : out_of_memory();
    }
    bp_free(members);
    return err;
}

/* ---- runs ---- */

/* Of a run, or of the members of an ensemble: all have as many. */
static int64_t steps_of(const json_t *status)
{
    const json_t *member, *members = json_object_get(status, "members");
    int64_t steps = json_integer_value(json_object_get(status, "steps"));
    size_t k;

    if (steps == 0)
        json_array_foreach(members, k, member) if (steps == 0) steps =
            json_integer_value(json_object_get(member, "steps"));
    return steps;
}

static bp_err read_state(bp_history *history)
{
    json_t *status = NULL;
    bp_err err = bp_run_status_read(&status, history->folder, 0);
    const char *job = json_string_value(json_object_get(status, "job"));

    if (err == BP_ERR_INPUT && bp_path_exists(history->folder))
        err = BP_FAIL(BP_ERR_FORMAT,
                      "this is no run, it has no run.json: at %s; name the run.dir of "
                      "pretrain or ensemble",
                      history->folder);
    else if (err == BP_ERR_INPUT)
        err = BP_FAIL(BP_ERR_INPUT, "there is no such run: at %s; name the run.dir of a job",
                      history->folder);
    else if (err == BP_OK && job && strcmp(job, "pretrain") != 0 && strcmp(job, "ensemble") != 0)
        err = BP_FAIL(BP_ERR_FORMAT,
                      "the run is one of the job %s, which trains nothing: at %s; name the "
                      "run.dir of pretrain or ensemble",
                      job, history->folder);
    if (err == BP_OK) {
        history->state = bp_strdup(json_string_value(json_object_get(status, "state")));
        err = history->state ? BP_OK : out_of_memory();
        history->steps = steps_of(status);
    }
    json_decref(status);
    return err;
}

bp_err bp_history_read(bp_history *out, const char *folder)
{
    run_pairs pairs = {0};
    bp_err err;

    *out = (bp_history){.folder = folder};
    err = read_state(out);
    if (err == BP_OK)
        err = read_lines(out);
    if (err == BP_OK)
        err = run_pairs_read(&pairs, folder);
    out->pairs = pairs.texts;
    out->pair_count = pairs.count;
    return err;
}

void bp_history_clear(bp_history *history)
{
    run_pairs pairs = {.texts = history->pairs, .count = history->pair_count};

    for (int64_t k = 0; k < history->curve_count; k++) {
        bp_free(history->curves[k].name);
        bp_free(history->curves[k].rows);
    }
    bp_free(history->curves);
    bp_free(history->state);
    run_pairs_clear(&pairs);
    *history = (bp_history){.folder = NULL};
}

/* ---- configurations ---- */

const char *bp_history_key(const bp_history *history, const char *key)
{
    const run_pairs pairs = {.texts = history->pairs, .count = history->pair_count};

    return run_pairs_find(&pairs, key);
}

static bool same_value(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool differs(const char *key, const bp_history *runs, int64_t count)
{
    const char *value = bp_history_key(&runs[0], key);

    for (int64_t r = 1; r < count; r++)
        if (!same_value(value, bp_history_key(&runs[r], key)))
            return true;
    return false;
}

bp_err bp_history_differences(const char ***keys, int64_t *key_count, const bp_history *runs,
                              int64_t count)
{
    int64_t most = 0, found = 0;

    for (int64_t r = 0; r < count; r++)
        most += runs[r].pair_count;
    *key_count = 0;
    *keys = bp_alloc("run.history", most, sizeof **keys);
    for (int64_t r = 0; r < count; r++)
        for (int64_t k = 0; k < runs[r].pair_count; k++) {
            const char *key = runs[r].pairs[2 * k];
            bool known = strcmp(key, "run.dir") == 0;

            for (int64_t j = 0; j < found; j++)
                known = known || strcmp((*keys)[j], key) == 0;
            if (!known && differs(key, runs, count))
                (*keys)[found++] = key;
        }
    *key_count = found;
    return BP_OK;
}

/* ---- figures ---- */

const bp_curve *bp_history_main(const bp_history *history)
{
    return &history->curves[history->curve_count - 1];
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* NaN: no line has one, or memory is short. */
static double median_speed(const bp_curve *curve)
{
    double *speeds = bp_alloc("run.history", curve->count, sizeof *speeds), median = NAN;
    int64_t count = 0;

    for (int64_t k = 0; speeds && k < curve->count; k++)
        if (isfinite(curve->rows[k][BP_HISTORY_SPEED]))
            speeds[count++] = curve->rows[k][BP_HISTORY_SPEED];
    if (count > 0) {
        qsort(speeds, (size_t)count, sizeof *speeds, compare_reals);
        median = speeds[count / 2];
    }
    bp_free(speeds);
    return median;
}

bp_curve_figures bp_curve_figures_of(const bp_curve *curve)
{
    bp_curve_figures out = {.hours = NAN, .loss = NAN, .best_valid_loss = NAN};

    for (int64_t k = 0; k < curve->count; k++) {
        const double *row = curve->rows[k];

        out.step = (int64_t)row[BP_HISTORY_STEP];
        out.tokens = isfinite(row[BP_HISTORY_TOKENS]) ? (int64_t)row[BP_HISTORY_TOKENS] : 0;
        out.hours = row[BP_HISTORY_HOURS];
        if (isfinite(row[BP_HISTORY_LOSS]))
            out.loss = row[BP_HISTORY_LOSS];
        if (isfinite(row[BP_HISTORY_VALID_LOSS]) &&
            !(row[BP_HISTORY_VALID_LOSS] >= out.best_valid_loss)) {
            out.best_valid_loss = row[BP_HISTORY_VALID_LOSS];
            out.best_step = out.step;
        }
    }
    out.median_speed = median_speed(curve);
    return out;
}
