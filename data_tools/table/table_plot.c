/* bagpipe-data table SCORE-RUN... --out FILE.svg: a row a group, a point a model. Called by
 * table_scores.c. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "job/report/report.h"
#include "table_scores_priv.h"

#include <inttypes.h>
#include <math.h>

static const char *const FIGURE_TITLES[SCORE_FIGURES] = {"perplexity of a token", "bits a byte",
                                                         "perplexity of a word"};

/* model,group,value,low,high of what is defined; ends: the least and the greatest of them. */
static void put_point(bp_buffer *rows, double ends[2], const score_cell *cell, int64_t group,
                      int figure)
{
    const score_figure *one = &cell->figures[figure];
    bool has = isfinite(one->interval.low) && isfinite(one->interval.high);
    double low = has ? one->interval.low : one->value, high = has ? one->interval.high : one->value;

    if (!isfinite(one->value))
        return;
    bp_buffer_printf(rows, "%" PRId64 ",%" PRId64 ",%.9g,%.9g,%.9g\n", cell->model + 1, group,
                     one->value, low, high);
    ends[0] = fmin(ends[0], low);
    ends[1] = fmax(ends[1], high);
}

/* What the script table.gp draws. New reference. */
static json_t *variables_of(const score_table *table, int figure, const char *format)
{
    json_t *models = json_array(), *groups = json_array(), *variables;
    double ends[2] = {INFINITY, -INFINITY};
    bp_buffer rows = {0};

    for (int64_t m = 0; m < table->model_count; m++)
        (void)json_array_append_new(models, bp_json_string(score_table_short_name(table, m)));
    for (int64_t k = 0; k < table->cell_count; k++) {
        char *name = score_table_spell_group(&table->cells[k]);

        if (score_table_is_first(table, &table->cells[k])) {
            (void)json_array_append_new(groups, bp_json_string(name));
            for (int64_t m = 0; m < table->model_count; m++) {
                const score_cell *cell = score_table_find(table, &table->cells[k], m);

                if (cell)
                    put_point(&rows, ends, cell, (int64_t)json_array_size(groups), figure);
            }
        }
        bp_free(name);
    }
    variables = json_pack("{s:s, s:o, s:o, s:s, s:i, s:f, s:f, s:s}", "formats", format, "models",
                          models, "groups", groups, "xlabel", FIGURE_TITLES[figure], "logarithmic",
                          figure != BITS_PER_BYTE, "low", ends[0], "high", ends[1], "$rows",
                          rows.data ? rows.data : "");
    bp_buffer_clear(&rows);
    return variables;
}

static bp_err check_figure(const score_table *table, int figure)
{
    for (int64_t k = 0; k < table->cell_count; k++)
        if (isfinite(table->cells[k].figures[figure].value))
            return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "table.no_figure",
                   "no run has the figure %s, which needs a corpus that was made of text: at "
                   "--figure; name another one",
                   score_figure_names[figure]);
}

bp_err score_table_draw(const score_table *table, int figure, const char *path)
{
    bp_err err = check_figure(table, figure);

    if (err != BP_OK)
        return err;
    json_t *variables = variables_of(table, figure, bp_has_suffix(path, ".png") ? "png" : "svg");
    char *script = NULL, *picture = NULL;
    size_t bytes = 0;

    err = bp_report_script(&script, "table", variables);
    if (err == BP_OK)
        err = bp_gnuplot(&picture, &bytes, NULL, script);
    if (err == BP_ERR_FORMAT) /* no fault of the runs */
        err = BP_ERR_SYSTEM;
    if (err == BP_OK)
        err = bp_file_write(path, picture, bytes);
    bp_free(picture);
    bp_free(script);
    json_decref(variables);
    return err;
}
