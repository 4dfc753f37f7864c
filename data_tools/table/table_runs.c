/* bagpipe-data table RUN...: trainings side by side as CSV, the best first. */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "run/status/run_history.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- order ---- */

typedef struct table_row {
    bp_history run;
    bp_curve_figures figures;
    int64_t place; /* on the command line */
} table_row;

static int compare_reals(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b); /* what is not known comes last */
    return a < b ? -1 : a > b;
}

/* By validation; runs without it after those with it, by their last loss. */
static int compare_rows(const void *a, const void *b)
{
    const table_row *x = a, *y = b;
    int by_valid = compare_reals(x->figures.best_valid_loss, y->figures.best_valid_loss);
    int by_loss = compare_reals(x->figures.loss, y->figures.loss);

    if (by_valid != 0)
        return by_valid;
    if (isnan(x->figures.best_valid_loss) && by_loss != 0)
        return by_loss;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* ---- CSV ---- */

static void put_real(double value, int digits)
{
    putchar(',');
    if (isfinite(value))
        printf("%.*g", digits, value);
}

/* Nothing for 0: it is not known. */
static void put_count(int64_t value)
{
    putchar(',');
    if (value > 0)
        printf("%" PRId64, value);
}

static void put_row(const table_row *row, const char *const *keys, int64_t key_count)
{
    put_csv(stdout, row->run.folder, SIZE_MAX);
    putchar(',');
    put_csv(stdout, row->run.state, SIZE_MAX);
    put_count(row->figures.step);
    put_count(row->figures.tokens);
    put_real(row->figures.hours, 6);
    put_real(row->figures.loss, 17);
    put_real(row->figures.best_valid_loss, 17);
    put_count(row->figures.best_step);
    put_real(row->figures.median_speed, 6);
    for (int64_t k = 0; k < key_count; k++) {
        const char *value = bp_history_key(&row->run, keys[k]);

        putchar(',');
        put_csv(stdout, value ? value : "", SIZE_MAX);
    }
    putchar('\n');
}

/* Keys that differ among all runs, not only among those that are shown. */
static void put_table(const table_row *rows, int64_t count, int64_t shown)
{
    const char **keys;
    int64_t key_count;
    bp_history *runs = bp_alloc("tool.runs", count, sizeof *runs);

    for (int64_t r = 0; r < count; r++)
        runs[r] = rows[r].run; /* borrowed */
    bp_history_differences(&keys, &key_count, runs, count);
    printf("run,state,step,tokens,hours,loss,best_valid_loss,best_step,tokens_per_second");
    for (int64_t k = 0; k < key_count; k++) {
        putchar(',');
        put_csv(stdout, keys[k], SIZE_MAX);
    }
    putchar('\n');
    for (int64_t r = 0; r < shown; r++)
        put_row(&rows[r], keys, key_count);
    bp_free(keys);
    bp_free(runs);
}

/* If there are several names, as a shell's * gives them, those that are not runs are left out. */
static bp_err read_rows(table_row *rows, int64_t *count, char *const *folders, int folder_count)
{
    int missing = 0;

    for (int k = 0; k < folder_count; k++) {
        table_row *row = &rows[*count];
        bp_err err = bp_history_read(&row->run, folders[k]);

        if (err == BP_OK) {
            row->figures = bp_curve_figures_of(bp_history_main(&row->run));
            row->place = k;
            ++*count;
            continue;
        }
        bp_history_clear(&row->run);
        if (folder_count == 1 || (err != BP_ERR_INPUT && err != BP_ERR_FORMAT))
            return err;
        if (bp_path_is_dir(folders[k]))
            bp_warn_failure("left out: %s", bp_err_text());
        else
            missing++;
    }
    if (*count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "run.no_training",
                       "none of the %d names is a training: at the command line; name run.dir of "
                       "pretrain or ensemble",
                       folder_count);
    if (missing > 0)
        BP_WARN("run.missing", "left out: %d name%s of no folder", missing,
                missing == 1 ? "" : "s");
    return BP_OK;
}

bp_err table_of_runs(char *const *folders, int count, const file_options *options)
{
    int64_t head = options->head;
    table_row *rows = bp_alloc("tool.runs", count, sizeof *rows);
    int64_t found = 0;
    bp_err err = read_rows(rows, &found, folders, count);

    if (err == BP_OK) {
        qsort(rows, (size_t)found, sizeof *rows, compare_rows);
        put_table(rows, found, head >= 0 && head < found ? head : found);
    }
    for (int64_t r = 0; r < found; r++)
        bp_history_clear(&rows[r].run);
    bp_free(rows);
    return err;
}
