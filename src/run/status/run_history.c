/* Results of runs, read back for status, plots and tables: keys, curves, speeds. Called by
 * job/report/training.c. */
#include "run/status/run_history.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/sort.h"
#include "run/run_compare.h"
#include "run/run_fields.h"
#include "run/run_journal.h"
#include "run/status/run_status.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* The names of the columns in a line; those of an ensemble are means. */
static const char *const KEYS[BP_HISTORY_COLUMNS] = {
    "step", "tokens",    "seconds",           "loss",          "valid_loss",
    "lr",   "grad_norm", "tokens_per_second", "valid_accuracy"};
static const char *const MEAN_KEYS[BP_HISTORY_COLUMNS] = {
    "step", NULL, NULL, "loss_mean", "valid_loss_mean", NULL, NULL, NULL, NULL};

/* ---- lines ---- */

typedef struct reader {
    bp_curve *curve;
    const char *const *keys;
} reader;

/* A start that resumes from a checkpoint drops the lines after it. */
static void take_line(void *context, const json_t *line, off_t end)
{
    const reader *self = context;
    bp_curve *curve = self->curve;
    double row[BP_HISTORY_COLUMNS], before = 0,
                                    filled = bp_json_number(line, "tokens_without_padding");

    (void)end;
    for (int c = 0; c < BP_HISTORY_COLUMNS; c++)
        row[c] = !self->keys[c] ? NAN : bp_json_number(line, self->keys[c]);
    if (!isfinite(row[BP_HISTORY_STEP]))
        return;
    curve->padded = !isfinite(filled);
    if (isfinite(filled))
        row[BP_HISTORY_TOKENS] = filled;
    while (curve->count > 0 && curve->rows[curve->count - 1][BP_HISTORY_STEP] >= row[0])
        curve->count--;
    if (curve->count > 0)
        before = curve->rows[curve->count - 1][BP_HISTORY_HOURS];
    row[BP_HISTORY_HOURS] =
        (isfinite(row[BP_HISTORY_HOURS]) ? row[BP_HISTORY_HOURS] : 0) / 3600 + before;
    curve->rows =
        bp_grow("run.history", curve->rows, &curve->capacity, curve->count + 1, sizeof row);
    memcpy(curve->rows[curve->count++], row, sizeof row);
}

/* FOLDER/metrics.jsonl as one more curve, within the array's capacity. A missing file has no lines.
 */
static bp_err add_curve(bp_history *history, const char *folder, const char *name)
{
    reader self = {.curve = &history->curves[history->curve_count++],
                   .keys = strcmp(name, "mean") == 0 ? MEAN_KEYS : KEYS};
    bp_path path = bp_path_in(folder, "metrics.jsonl");
    run_journal journal = {.fd = -1, .path = path.text};
    bp_err err = bp_plain_open(path.text, O_RDONLY, &journal.fd);

    self.curve->name = bp_strdup(name);
    if (err == BP_OK)
        err = run_journal_each(&journal, &self, take_line);
    if (journal.fd >= 0)
        (void)close(journal.fd);
    return err == BP_ERR_INPUT ? BP_OK : err;
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
                isnan(mean->rows[i][BP_HISTORY_TOKENS])) {
                mean->padded = member->padded;
                memcpy(&mean->rows[i][BP_HISTORY_TOKENS], &row[BP_HISTORY_TOKENS],
                       2 * sizeof(double));
            }
        }
    }
}

/* The run's own curve; for an ensemble its members' curves, and their mean. */
static bp_err read_curves(bp_history *history)
{
    char **names = NULL;
    const bp_path members = bp_path_in(history->folder, "members");
    int64_t count = 0;
    bool has_members = bp_path_is_dir(members.text);
    bp_err err = has_members ? bp_dir_list(members.text, &names, &count) : BP_OK;

    history->curves = bp_alloc("run.history", count + 1, sizeof *history->curves);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        const bp_path folder = bp_path_in(members.text, names[k]);

        if (names[k][0] == 'm' && bp_path_is_dir(folder.text))
            err = add_curve(history, folder.text, names[k]);
    }
    if (err == BP_OK)
        err = add_curve(history, history->folder, has_members ? "mean" : "");
    if (err == BP_OK && has_members)
        place_mean(history);
    bp_names_free(&names, count);
    return err;
}

/* ---- runs ---- */

static bp_err read_state(bp_history *history)
{
    json_t *status = NULL, *member;
    bp_err err = bp_run_status_read(&status, history->folder, 0, NULL);
    const char *job = text_of(status, "job");
    size_t k;

    if (err == BP_ERR_INPUT && bp_path_exists(history->folder))
        err = BP_FAIL(BP_ERR_FORMAT, "run.no_record",
                      "this is not a run, it has no run.json: at %s; name the run.dir of "
                      "pretrain or ensemble",
                      history->folder);
    else if (err == BP_ERR_INPUT)
        err = BP_FAIL(BP_ERR_INPUT, "run.missing",
                      "there is no such run: at %s; name the run.dir of a job", history->folder);
    else if (err == BP_OK &&
             !is_among(job, (const char *const[]){"", "pretrain", "finetune", "ensemble", NULL}))
        err = BP_FAIL(BP_ERR_FORMAT, "run.trains_nothing",
                      "the run is one of the job %s, which trains nothing: at %s; name the "
                      "run.dir of pretrain or ensemble%s",
                      job, history->folder,
                      strcmp(job, "score") == 0
                          ? "; its scores are in score/documents.h5, which bagpipe-data table reads"
                          : "");
    if (err == BP_OK) {
        history->state = bp_strdup(text_of(status, "state"));
        history->steps = integer_of(status, "steps");
        json_array_foreach(json_object_get(status, "members"), k, member) /* all have as many */
            if (history->steps == 0) history->steps = integer_of(member, "steps");
    }
    json_decref(status);
    return err;
}

/* From an ensemble's keys, those that its members run with, with their values, and its own: it has
 * keys for members of all kinds. */
static bp_err take_members_keys(run_pairs *pairs, const bp_history *history)
{
    const bp_path members = bp_path_in(history->folder, "members");
    const bp_path first = bp_path_in(members.text, history->curves[0].name);
    run_pairs of_member = {0};
    bp_err err = bp_run_pairs_read(&of_member, first.text);
    int64_t kept = 0;

    for (int64_t k = 0; of_member.count > 0 && k < pairs->count; k++) {
        char *key = pairs->texts[2 * k], *own = pairs->texts[2 * k + 1];
        const char *value = bp_run_pairs_find(&of_member, key);
        bool is_own = strncmp(key, "run.", 4) == 0 || strncmp(key, "ensemble.", 9) == 0;

        if (!is_own && !value) {
            bp_free(key);
            bp_free(own);
            continue;
        }
        if (!is_own) {
            bp_free(own);
            own = bp_strdup(value);
        }
        pairs->texts[2 * kept] = key;
        pairs->texts[2 * kept++ + 1] = own;
    }
    if (of_member.count > 0)
        pairs->count = kept;
    bp_run_pairs_clear(&of_member);
    return err;
}

bp_err bp_history_read(bp_history *out, const char *folder)
{
    run_pairs pairs = {0};
    bp_err err;

    *out = (bp_history){.folder = folder};
    err = read_state(out);
    if (err == BP_OK)
        err = read_curves(out);
    if (err == BP_OK)
        err = bp_run_pairs_read(&pairs, folder);
    if (err == BP_OK && out->curve_count > 1)
        err = take_members_keys(&pairs, out);
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
    bp_run_pairs_clear(&pairs);
    *history = (bp_history){.folder = NULL};
}

/* ---- configurations ---- */

const char *bp_history_key(const bp_history *history, const char *key)
{
    const run_pairs pairs = {.texts = history->pairs, .count = history->pair_count};

    return bp_run_pairs_find(&pairs, key);
}

static bool differs(const char *key, const bp_history *runs, int64_t count)
{
    const char *first = bp_history_key(&runs[0], key);

    for (int64_t r = 1; r < count; r++) {
        const char *value = bp_history_key(&runs[r], key);

        if ((!first) != (!value) || (first && strcmp(first, value) != 0))
            return true;
    }
    return false;
}

void bp_history_differences(const char ***keys, int64_t *key_count, const bp_history *runs,
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
}

/* ---- the mean of runs ---- */

static bool differ_in_seed_alone(const bp_history *runs, int64_t count)
{
    const char **keys;
    int64_t found;

    bp_history_differences(&keys, &found, runs, count);
    bool are = found == 1 && strcmp(keys[0], "run.seed") == 0;

    bp_free(keys);
    for (int64_t r = 0; r < count; r++)
        are = are && runs[r].curve_count == 1;
    return are;
}

/* The row of the mean at a row of the first run; returns false if another run lacks the step. A
 * column is NaN unless it is finite in all runs. */
static bool mean_row(double *out, const bp_history *runs, int64_t count, const double *first,
                     int64_t *at)
{
    memcpy(out, first, BP_HISTORY_COLUMNS * sizeof *out);
    for (int64_t r = 1; r < count; r++) {
        const bp_curve *curve = &runs[r].curves[0];

        while (at[r] < curve->count && curve->rows[at[r]][BP_HISTORY_STEP] < first[BP_HISTORY_STEP])
            at[r]++;
        if (at[r] == curve->count || curve->rows[at[r]][BP_HISTORY_STEP] != first[BP_HISTORY_STEP])
            return false;
        for (int c = BP_HISTORY_HOURS; c < BP_HISTORY_COLUMNS; c++)
            out[c] += curve->rows[at[r]][c];
    }
    for (int c = BP_HISTORY_HOURS; c < BP_HISTORY_COLUMNS; c++)
        out[c] /= (double)count;
    out[BP_HISTORY_SPEED] = NAN; /* of one run: those of others are of other times */
    return true;
}

bool bp_history_mean(bp_history *out, const bp_history *runs, int64_t count)
{
    int64_t *at;
    bp_curve *mean;

    *out = (bp_history){.folder = NULL};
    if (count < 2 || !differ_in_seed_alone(runs, count))
        return false;
    out->curve_count = count + 1;
    out->curves = bp_alloc("run.history", count + 1, sizeof *out->curves);
    for (int64_t r = 0; r < count; r++)
        out->curves[r] = runs[r].curves[0];
    mean = &out->curves[count];
    mean->padded = runs[0].curves[0].padded;
    mean->rows = bp_alloc("run.history", runs[0].curves[0].count, sizeof *mean->rows);
    at = bp_alloc("run.history", count, sizeof *at);
    for (int64_t k = 0; k < runs[0].curves[0].count; k++)
        mean->count +=
            mean_row(mean->rows[mean->count], runs, count, runs[0].curves[0].rows[k], at);
    bp_free(at);
    return true;
}

void bp_history_mean_clear(bp_history *mean)
{
    if (mean->curve_count > 0)
        bp_free(mean->curves[mean->curve_count - 1].rows);
    bp_free(mean->curves);
    *mean = (bp_history){.folder = NULL};
}

/* ---- figures ---- */

const bp_curve *bp_history_main(const bp_history *history)
{
    return &history->curves[history->curve_count - 1];
}

bp_curve_figures bp_curve_figures_of(const bp_curve *curve)
{
    bp_curve_figures out = {.hours = NAN, .loss = NAN, .best_valid_loss = NAN, .median_speed = NAN};
    double *speeds = bp_alloc("run.history", curve->count, sizeof *speeds);
    int64_t count = 0;

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
        if (isfinite(row[BP_HISTORY_SPEED]))
            speeds[count++] = row[BP_HISTORY_SPEED];
    }
    if (count > 0) {
        bp_sort_reals(speeds, count);
        out.median_speed = speeds[count / 2];
    }
    bp_free(speeds);
    return out;
}

bp_curve_figures bp_history_figures(const bp_history *history, int64_t *members)
{
    bp_curve_figures all = bp_curve_figures_of(bp_history_main(history));

    *members = history->curve_count > 1 ? history->curve_count - 1 : 1;
    if (history->curve_count < 2)
        return all;
    all.tokens = 0;
    all.hours = 0;
    for (int64_t k = 0; k < *members; k++) {
        const bp_curve_figures one = bp_curve_figures_of(&history->curves[k]);

        all.tokens += one.tokens;
        all.hours += one.hours; /* NaN if one is unknown */
    }
    return all;
}

bp_curve_figures bp_history_row(const bp_history *history, int64_t c)
{
    bp_curve_figures mean;
    int64_t members;

    if (history->curve_count < 2 || c < history->curve_count - 1)
        return bp_curve_figures_of(&history->curves[c]);
    mean = bp_history_figures(history, &members);
    mean.tokens /= members;
    mean.hours /= (double)members;
    return mean;
}
