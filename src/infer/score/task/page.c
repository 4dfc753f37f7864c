/* score/index.html of a task: its figures, the confusion matrix, the reliability diagram. Called by
 * report.c. */
#include "infer/score/task/task_priv.h"

#include "base/buffer.h"
#include "infer/score/page/page.h"
#include "io/corpus/corpus_writer.h"
#include "job/report/report.h"
#include "statistics/calibration.h"

#include <math.h>
#include <string.h>

#define CONFUSION_SHOWN 40   /* classes of a matrix that a page can show */
#define DRAWN           2000 /* points of a regression's plot */

/* And there are labels to compare with. */
static bool has_classes(const task_scoring *task)
{
    return task->kind->has_names && task_has_figures(task);
}

static const char *title_of(const char *name)
{
    static const char *const TITLES[][2] = {{"accuracy", "accuracy"},
                                            {"f1_macro", "F1, mean over classes"},
                                            {"f1_micro", "F1 of all predictions"},
                                            {"f1", "F1"},
                                            {"precision", "precision"},
                                            {"recall", "recall"},
                                            {"matthews", "Matthews correlation"},
                                            {"mse", "mean squared error"},
                                            {"mae", "mean absolute error"},
                                            {"pearson", "Pearson correlation"},
                                            {"spearman", "Spearman correlation"},
                                            {"exact", "exact match"},
                                            {"exact_match", "exact match"}};

    for (size_t k = 0; k < sizeof TITLES / sizeof TITLES[0]; k++)
        if (strcmp(TITLES[k][0], name) == 0)
            return TITLES[k][1];
    return name;
}

static double count_at(const json_t *counts, size_t label, size_t prediction)
{
    return json_number_value(json_array_get(json_array_get(counts, label), prediction));
}

/* Words of which no class but "O" is predicted have no entities, of which precision would be. */
static bool has_no_precision(const task_scoring *task, const json_t *results)
{
    const json_t *counts = json_object_get(results, "confusion");
    size_t K = json_array_size(counts);

    for (size_t label = 0; label < K; label++)
        for (size_t k = 0; k < K; k++)
            if (strcmp(task->documents.names[k], "O") != 0 && count_at(counts, label, k) > 0)
                return false;
    return task->kind->at_words && K > 0;
}

/* Of errors, with as many digits as their interval needs; shares and correlations have three. */
static void add_figure(json_t *row, const char *key, const char *name, double value, double error)
{
    if (strcmp(name, "mse") == 0 || strcmp(name, "mae") == 0)
        bp_score_page_add_figure(row, key, value, error);
    else
        bp_score_page_add_value(row, key, "%.3f", value);
}

static json_t *figures_of(const task_scoring *task, const json_t *results)
{
    bool no_precision = has_no_precision(task, results);
    json_t *rows = json_array(), *figure;
    const char *name;

    json_object_foreach((json_t *)results, name, figure)
    {
        double value = json_number_value(json_object_get(figure, "value"));
        const json_t *low = json_object_get(figure, "low"), *high = json_object_get(figure, "high");
        bool has = json_is_number(low) && json_is_number(high);
        double error = has ? (json_number_value(high) - json_number_value(low)) / 2 : NAN;
        bool none = no_precision && strcmp(name, "precision") == 0;
        json_t *row;

        if (!json_is_number(json_object_get(figure, "value")))
            continue;
        row = json_pack("{s:s}", "name", title_of(name));
        add_figure(row, "value", name, none ? NAN : value, error);
        add_figure(row, "low", name, has && !none ? json_number_value(low) : NAN, error);
        add_figure(row, "high", name, has && !none ? json_number_value(high) : NAN, error);
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- classes ---- */

/* Class k of the order shown: the tag of no entity, which has most words, is the first one. */
static size_t class_at(const task_scoring *task, size_t K, size_t k)
{
    size_t none = 0;

    while (none < K && strcmp(task->documents.names[none], "O") != 0)
        none++;
    return none == K || k > none ? k : k == 0 ? none : k - 1;
}

static json_t *class_name(const task_scoring *task, size_t label)
{
    const char *name = task->documents.names[label];

    return bp_score_page_text(name, strlen(name));
}

/* A row of the matrix: the larger a cell's share of the row, the darker it is. */
static json_t *confusion_row(const task_scoring *task, const json_t *counts, size_t label)
{
    size_t K = json_array_size(counts);
    json_t *cells = json_array();
    double all = 0;

    for (size_t k = 0; k < K; k++)
        all += count_at(counts, label, k);
    for (size_t k = 0; k < K; k++) {
        double count = count_at(counts, label, class_at(task, K, k));
        json_t *cell = json_pack("{s:I}", "count", (json_int_t)count);

        bp_score_page_add_value(cell, "share", "%.3f", all > 0 ? count / all : 0);
        (void)json_array_append_new(cells, cell);
    }
    return json_pack("{s:o, s:o}", "name", class_name(task, label), "cells", cells);
}

/* Precision, recall and F1 of a class, as shares of counts that are in the row too. */
static json_t *class_row(const task_scoring *task, const json_t *counts, size_t label)
{
    double right = count_at(counts, label, label), labelled = 0, predicted = 0;
    json_t *row;

    for (size_t k = 0; k < json_array_size(counts); k++) {
        labelled += count_at(counts, label, k);
        predicted += count_at(counts, k, label);
    }
    row = json_pack("{s:o, s:I, s:I}", "name", class_name(task, label), "labelled",
                    (json_int_t)labelled, "predicted", (json_int_t)predicted);
    bp_score_page_add_value(row, "precision", "%.3f", predicted > 0 ? right / predicted : NAN);
    bp_score_page_add_value(row, "recall", "%.3f", labelled > 0 ? right / labelled : NAN);
    bp_score_page_add_value(row, "f1", "%.3f",
                            labelled + predicted > 0 ? 2 * right / (labelled + predicted) : NAN);
    return row;
}

static void add_classes(json_t *page, const task_scoring *task, const json_t *results)
{
    const json_t *counts = json_object_get(results, "confusion");
    size_t K = json_array_size(counts);
    json_t *names = json_array(), *rows = json_array(), *classes = json_array();

    for (size_t k = 0; k < K && K <= CONFUSION_SHOWN; k++) {
        (void)json_array_append_new(names, class_name(task, class_at(task, K, k)));
        (void)json_array_append_new(rows, confusion_row(task, counts, class_at(task, K, k)));
    }
    for (size_t k = 0; k < K; k++)
        (void)json_array_append_new(classes, class_row(task, counts, class_at(task, K, k)));
    (void)json_object_set_new(page, "classes", classes);
    (void)json_object_set_new(page, "confusion",
                              json_array_size(rows) == 0
                                  ? json_null()
                                  : json_pack("{s:O, s:O}", "names", names, "rows", rows));
    json_decref(names);
    json_decref(rows);
}

/* ---- the most confident mistakes ---- */

typedef struct mistake {
    float log_p;
    int64_t document, row;
} mistake;

/* Insert it at its place among the most confident ones so far. */
static void insert(mistake *list, int *count, mistake one)
{
    int at = *count < TASK_MISSES ? (*count)++ : TASK_MISSES - 1;

    if (at == TASK_MISSES - 1 && *count == TASK_MISSES && list[at].row >= 0 &&
        list[at].log_p >= one.log_p)
        return;
    for (; at > 0 && list[at - 1].log_p < one.log_p; at--)
        list[at] = list[at - 1];
    list[at] = one;
}

/* The texts of document d of the corpora: both of a pair. */
static bp_err add_texts(json_t *row, const task_scoring *task, const bp_tokenizer *tokenizer,
                        int64_t d)
{
    const bp_score_plan *plan = &task->self->plan;

    return task->kind->over_positions || task->documents.pair[d]
               ? score_page_add_pair(row, tokenizer, plan, d)
               : score_page_add_beginning(row, tokenizer, plan, d);
}

static bp_err add_mistake(json_t *rows, const task_scoring *task, const bp_tokenizer *tokenizer,
                          const mistake *one)
{
    const task_documents *documents = &task->documents;
    const float *values = task->table + one->row * task->width;
    int32_t label = documents->row[one->row].label, best = task_best_of(task, one->row);
    char id[BP_CORPUS_ID_BYTES + 1];
    bp_err err = task_documents_id(documents, documents->number[one->document], id, sizeof id);
    json_t *row;

    if (err != BP_OK)
        return err;
    row = json_pack("{s:o, s:o, s:o}", "id", bp_score_page_text(id, strlen(id)), "label",
                    class_name(task, (size_t)label), "prediction", class_name(task, (size_t)best));
    if (task->kind->at_words)
        (void)json_object_set_new(row, "word", json_integer(documents->row[one->row].word + 1));
    bp_score_page_add_value(row, "probability", "%.3f", exp((double)values[best]));
    bp_score_page_add_value(row, "of_label", "%.3g", exp((double)values[label]));
    if (tokenizer)
        err = add_texts(row, task, tokenizer, documents->number[one->document]);
    (void)json_array_append_new(rows, row);
    return err;
}

static bool has_pairs(const task_scoring *task)
{
    for (int64_t d = 0; d < task->documents.count; d++)
        if (task->documents.pair[task->documents.number[d]])
            return true;
    return false;
}

static bp_err add_mistakes(json_t *page, const task_scoring *task)
{
    const task_documents *documents = &task->documents;
    mistake list[TASK_MISSES];
    json_t *rows = json_array();
    bp_tokenizer *tokenizer = NULL;
    int count = 0;
    bp_err err = bp_score_page_tokenizer(&tokenizer, task->self->corpus, task->self->config);

    for (int k = 0; k < TASK_MISSES; k++)
        list[k] = (mistake){.row = -1};
    for (int64_t d = 0; d < documents->count; d++)
        for (int64_t r = documents->first_row[d]; r < documents->first_row[d + 1]; r++) {
            int32_t best = task_best_of(task, r);

            if (task_has_label(task, r) && best != documents->row[r].label)
                insert(list, &count, (mistake){task->table[r * task->width + best], d, r});
        }
    for (int k = 0; k < count && err == BP_OK; k++)
        err = add_mistake(rows, task, tokenizer, &list[k]);
    (void)json_object_set_new(page, "mistakes", rows);
    (void)json_object_set_new(page, "has_text", json_boolean(tokenizer));
    (void)json_object_set_new(page, "has_pairs", json_boolean(tokenizer && has_pairs(task)));
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* ---- values ---- */

static double miss_of(const task_scoring *task, int64_t r)
{
    return fabs((double)task->table[r * task->width] - (double)task->documents.row[r].value);
}

/* Rows with the largest misses, the largest first: how many there are. */
static int find_misses(const task_scoring *task, int64_t *list)
{
    int count = 0;

    for (int64_t r = 0; r < task->documents.rows; r++) {
        int at;

        if (!task_has_label(task, r) ||
            (count == TASK_MISSES && miss_of(task, r) <= miss_of(task, list[count - 1])))
            continue;
        count += count < TASK_MISSES;
        for (at = count - 1; at > 0 && miss_of(task, list[at - 1]) < miss_of(task, r); at--)
            list[at] = list[at - 1];
        list[at] = r;
    }
    return count;
}

/* page.misses of a regression, whose documents have a row each. */
static bp_err add_value_misses(json_t *page, const task_scoring *task)
{
    int64_t list[TASK_MISSES];
    int count = find_misses(task, list);
    json_t *rows = json_array();
    bp_tokenizer *tokenizer = NULL;
    bp_err err = bp_score_page_tokenizer(&tokenizer, task->self->corpus, task->self->config);

    for (int k = 0; k < count && err == BP_OK; k++) {
        int64_t d = task->documents.number[list[k]];
        char id[BP_CORPUS_ID_BYTES + 1];
        json_t *row = json_object();

        err = task_documents_id(&task->documents, d, id, sizeof id);
        (void)json_object_set_new(row, "id", bp_score_page_text(id, err == BP_OK ? strlen(id) : 0));
        bp_score_page_add_value(row, "label", "%.4g", (double)task->documents.row[list[k]].value);
        bp_score_page_add_value(row, "prediction", "%.4g",
                                (double)task->table[list[k] * task->width]);
        if (err == BP_OK && tokenizer)
            err = add_texts(row, task, tokenizer, d);
        (void)json_array_append_new(rows, row);
    }
    (void)json_object_set_new(page, "misses", rows);
    (void)json_object_set_new(page, "has_text", json_boolean(tokenizer));
    (void)json_object_set_new(page, "has_pairs", json_boolean(tokenizer && has_pairs(task)));
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* page.plot: predictions by values, of documents at even steps if there are many. */
static bp_err add_values(json_t *page, const task_scoring *task)
{
    int64_t rows = task->documents.rows, drawn = rows < DRAWN ? rows : DRAWN;
    double low = INFINITY, high = -INFINITY;
    bp_buffer points = {0}, right = {0};
    json_t *variables;
    bp_err err;

    for (int64_t k = 0; k < drawn; k++) {
        int64_t r = k * rows / drawn;

        if (!task_has_label(task, r))
            continue;
        low = fmin(low, (double)task->documents.row[r].value);
        high = fmax(high, (double)task->documents.row[r].value);
        bp_buffer_printf(&points, "%.6g,%.6g\n", (double)task->documents.row[r].value,
                         (double)task->table[r * task->width]);
    }
    bp_buffer_printf(&right, "%.6g,%.6g\n%.6g,%.6g\n", low, low, high, high);
    variables =
        json_pack("{s:s, s:s}", "$points", points.data ? points.data : "", "$right", right.data);
    err = points.data ? bp_report_plot(page, "regression", variables, "values") : BP_OK;
    (void)json_object_set_new(page, "of_values", json_true());
    if (rows > DRAWN)
        (void)json_object_set_new(page, "drawn", json_integer((json_int_t)drawn));
    json_decref(variables);
    bp_buffer_clear(&points);
    bp_buffer_clear(&right);
    return err == BP_OK ? add_value_misses(page, task) : err;
}

/* ---- spans ---- */

/* page.answers from task->misses, with the questions. */
static bp_err add_answers(json_t *page, const task_scoring *task)
{
    bp_tokenizer *tokenizer = NULL;
    json_t *row;
    size_t k;
    bp_err err = bp_score_page_tokenizer(&tokenizer, task->self->corpus, task->self->config);

    json_array_foreach(task->misses, k, row)
    {
        double probability = bp_json_number(row, "probability");

        if (err == BP_OK && tokenizer)
            err = add_texts(row, task, tokenizer,
                            json_integer_value(json_object_get(row, "document")));
        bp_score_page_add_value(row, "probability", "%.3g", probability);
    }
    (void)json_object_set(page, "answers", task->misses);
    (void)json_object_set_new(page, "of_answers", json_true());
    (void)json_object_set_new(page, "has_text", json_boolean(tokenizer));
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* ---- reliability ---- */

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

void task_page_write(const task_scoring *task)
{
    const scorer *self = task->self;
    const json_t *summary = self->summary, *results = json_object_get(summary, "task");
    const char *model = bp_score_keys_of(self->config)->model;
    json_t *page = json_pack(
        "{s:o, s:s, s:o, s:O?, s:O?, s:I, s:I, s:b, s:b, s:b, s:b, s:s}", "model",
        bp_score_page_text(model, strlen(model)), "kind", task->kind->name, "figures",
        figures_of(task, results), "documents", json_object_get(summary, "documents"), "step",
        json_object_get(json_object_get(summary, "model"), "step"), "context",
        (json_int_t)task->documents.length, "members", (json_int_t)self->info.members, "ensemble",
        self->info.members > 0, "has_classes", (int)has_classes(task), "of_words",
        task->kind->at_words, "measured", task_has_figures(task), "texts", task->kind->texts);
    bp_err err = BP_OK;

    (void)json_object_set_new(page, "title", score_page_title(model));
    (void)json_object_set_new(page, "cluster", scorer_page_cluster(self));
    if (has_classes(task)) {
        add_classes(page, task, results);
        err = add_mistakes(page, task);
    }
    if (has_classes(task) && err == BP_OK) {
        const bp_calibration sums = calibration_of(task);

        err = score_page_add_reliability(
            page, &sums, bp_task_kind_of(&self->info.task)->whole_text && !self->clusters);
    }
    if (task->kind->is_value && task_has_figures(task))
        err = add_values(page, task);
    if (task->misses)
        err = add_answers(page, task);
    bp_work_write_page(self->job, "task", page, err);
}
