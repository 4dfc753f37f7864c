/* score/index.html of a task: its figures, the confusion matrix, the reliability diagram. Called by
 * task_report.c. */
#include "task_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/page/page.h"
#include "job/report/report.h"
#include "statistics/calibration.h"

#include <math.h>
#include <string.h>

#define CONFUSION_SHOWN 40 /* classes of a matrix that a page can show */

/* And labels to compare them with. */
static bool has_classes(const task_scoring *task)
{
    return task->kind->has_names && task_has_figures(task);
}

static json_t *figures_of(const json_t *results)
{
    json_t *rows = json_array();
    const char *name;
    const json_t *figure;

    json_object_foreach((json_t *)results, name, figure)
    {
        json_t *row;

        if (!json_is_number(json_object_get(figure, "value")))
            continue;
        row = json_pack("{s:s}", "name", name);
        score_page_add_value(row, "value", "%.4f",
                             json_number_value(json_object_get(figure, "value")));
        score_page_add_value(row, "low", "%.4f", json_number_value(json_object_get(figure, "low")));
        score_page_add_value(row, "high", "%.4f",
                             json_number_value(json_object_get(figure, "high")));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* Rows of labels, whose cells are the darker the larger their share of the row is. */
static void add_confusion(json_t *page, const task_scoring *task, const json_t *results)
{
    const json_t *counts = json_object_get(results, "confusion");
    size_t K = json_array_size(counts);
    json_t *names, *rows;

    if (K == 0 || K > CONFUSION_SHOWN)
        return;
    names = json_array();
    rows = json_array();
    for (size_t k = 0; k < K; k++) {
        const json_t *row = json_array_get(counts, k);
        json_t *cells = json_array();
        double all = 0;

        for (size_t j = 0; j < K; j++)
            all += json_number_value(json_array_get(row, j));
        for (size_t j = 0; j < K; j++) {
            json_t *cell = json_pack("{s:O}", "count", json_array_get(row, j));

            score_page_add_value(cell, "share", "%.3f",
                                 all > 0 ? json_number_value(json_array_get(row, j)) / all : 0);
            (void)json_array_append_new(cells, cell);
        }
        (void)json_array_append_new(
            names, score_page_text(task->documents.names[k], strlen(task->documents.names[k])));
        (void)json_array_append_new(
            rows, json_pack("{s:O, s:o}", "name", json_array_get(names, k), "cells", cells));
    }
    (void)json_object_set_new(page, "confusion",
                              json_pack("{s:o, s:o}", "names", names, "rows", rows));
}

static bp_calibration calibration_of(const task_scoring *task)
{
    bp_calibration sums = {0};

    for (int64_t r = 0; r < task->documents.rows; r++) {
        const float *row = task->table + r * task->width;
        int32_t best = task_best_of(task, r);

        if (!task_has_label(task, r))
            continue;
        bp_calibration_add(&sums, expf(row[best]), best == task->documents.row[r].label,
                           -(double)row[task->documents.row[r].label], 0);
    }
    return sums;
}

/* The diagram, or why there is none, into the page. */
static bp_err add_reliability(json_t *page, const task_scoring *task)
{
    bp_calibration sums = calibration_of(task);
    bp_buffer bins = {0};
    json_t *variables;
    bp_err err;

    for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
        bp_reliability bar = bp_calibration_bar(&sums, b);

        if (bar.tokens > 0)
            bp_buffer_printf(&bins, "%.6g,%.6g,%lld\n", bar.confidence, bar.accuracy,
                             (long long)bar.tokens);
    }
    score_page_add_value(page, "ece", "%.4f", bp_calibration_ece(&sums));
    variables = json_pack("{s:s}", "$bins", bins.data ? bins.data : "");
    err = bp_report_plot(page, "task", variables, "reliability");
    json_decref(variables);
    bp_buffer_clear(&bins);
    return err;
}

void task_page_write(const task_scoring *task)
{
    const scorer *self = task->self;
    const json_t *summary = self->summary, *results = json_object_get(summary, "task");
    const char *model = bp_score_keys_of(self->config)->model;
    json_t *page = json_pack(
        "{s:o, s:s, s:o, s:O?, s:O?, s:I, s:I, s:b, s:b, s:b, s:b, s:s}", "model",
        score_page_text(model, strlen(model)), "kind", task->kind->name, "figures",
        figures_of(results), "documents", json_object_get(summary, "documents"), "step",
        json_object_get(json_object_get(summary, "model"), "step"), "context",
        (json_int_t)task->documents.length, "members", (json_int_t)self->info.members, "ensemble",
        self->info.members > 0, "has_classes", (int)has_classes(task), "of_words",
        task->kind->at_words, "measured", task_has_figures(task), "texts", task->kind->texts);
    bp_err err = BP_OK;

    (void)json_object_set_new(page, "title", score_page_title(model));
    add_confusion(page, task, results);
    if (has_classes(task))
        err = add_reliability(page, task);
    bp_work_write_page(self->job, "task", page, err);
}
