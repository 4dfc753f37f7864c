/* The report of a scored task: predictions, figures with their intervals, lines for people. Called
 * by task.c, page.c and spans.c. */
#include "infer/score/task/task_priv.h"

#include "base/buffer.h"
#include "base/config/csv.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/corpus/corpus_writer.h"
#include "models/network/weights.h"
#include "statistics/clusters.h"
#include "statistics/task_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tables of more classes are too large to read. */
#define TABLE_CLASSES 1000

int32_t task_best_of(const task_scoring *task, int64_t r)
{
    const float *row = task->table + r * task->width;
    int32_t best = 0;

    for (int32_t k = 1; k < task->outcomes; k++)
        if (row[k] > row[best])
            best = k;
    return best;
}

void task_add_field(bp_buffer *out, const char *text)
{
    bp_csv_add(out, text, strlen(text));
}

/* The fewest digits that restore a float32. */
static void add_value(bp_buffer *out, float value)
{
    char text[32];

    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    bp_buffer_printf(out, "%s", text);
}

static void add_value_row(bp_buffer *out, const task_scoring *task, int64_t r)
{
    const float *row = task->table + r * task->width;

    if (task_has_label(task, r))
        add_value(out, task->documents.row[r].value);
    bp_buffer_printf(out, ",%.9g", (double)row[0]);
    if (task->width > task->outcomes)
        bp_buffer_printf(out, ",%.9g", (double)row[task->outcomes]);
}

static void add_class_row(bp_buffer *out, const task_scoring *task, int64_t r)
{
    const float *row = task->table + r * task->width;
    int32_t best = task_best_of(task, r);

    if (task->kind->at_words)
        bp_buffer_printf(out, "%" PRId32 ",", task->documents.row[r].word);
    if (task_has_label(task, r))
        task_add_field(out, task->documents.names[task->documents.row[r].label]);
    bp_buffer_printf(out, ",");
    task_add_field(out, task->documents.names[best]);
    bp_buffer_printf(out, ",%.9g", exp((double)row[best]));
    if (task->width > task->outcomes)
        bp_buffer_printf(out, ",%.9g,%.9g", (double)row[task->outcomes + TASK_ENTROPY],
                         (double)row[task->outcomes + TASK_MUTUAL]);
}

/* Does the table have a column for each class? */
static bool reports_classes(const task_scoring *task)
{
    return bp_task_kind_has_classes(task->kind) && task->outcomes <= TABLE_CLASSES;
}

/* Rows of document d. */
static bp_err add_document(bp_buffer *out, const task_scoring *task, int64_t d)
{
    const task_documents *documents = &task->documents;
    char id[BP_CORPUS_ID_BYTES + 1];
    bp_err err = task_documents_id(documents, documents->number[d], id, sizeof id);

    for (int64_t r = documents->first_row[d]; r < documents->first_row[d + 1] && err == BP_OK;
         r++) {
        bp_buffer_printf(out, "%" PRId64 ",", documents->number[d]);
        if (task->kind->is_value)
            add_value_row(out, task, r);
        else
            add_class_row(out, task, r);
        bp_buffer_printf(out, ",");
        task_add_field(out, id);
        if (!task->kind->at_words)
            bp_buffer_printf(out, ",%" PRId64, documents->tokens[d]);
        for (int64_t k = 0; k < task->outcomes && reports_classes(task); k++)
            bp_buffer_printf(out, ",%.9g", exp((double)task->table[r * task->width + k]));
        bp_buffer_printf(out, "\n");
    }
    return err;
}

static void add_header(bp_buffer *out, const task_scoring *task)
{
    bp_buffer_printf(out, "document,%slabel,prediction%s%s,doc_id%s",
                     task->kind->at_words ? "word," : "",
                     task->kind->is_value ? "" : ",probability",
                     task->width == task->outcomes ? ""
                     : task->kind->is_value        ? ",variance"
                                                   : ",entropy,mutual_information",
                     task->kind->at_words ? "" : ",tokens");
    for (int64_t k = 0; k < task->outcomes && reports_classes(task); k++) {
        char *name = bp_sprintf("p_%s", task->documents.names[k]);

        bp_buffer_printf(out, ",");
        task_add_field(out, name);
        bp_free(name);
    }
    bp_buffer_printf(out, "\n");
}

static bp_err write_predictions(const task_scoring *task)
{
    char *path = bp_path_join(task->self->folder, "predictions.csv");
    bp_buffer out = {0};
    bp_err err = BP_OK;

    add_header(&out, task);
    for (int64_t d = 0; d < task->documents.count && err == BP_OK; d++)
        err = add_document(&out, task, d);
    if (err == BP_OK)
        err = bp_file_write(path, out.data, out.bytes);
    bp_buffer_clear(&out);
    bp_free(path);
    return err;
}

/* Rows are labels, columns predictions; null for many classes. New reference. */
static json_t *confusion_of(const task_scoring *task, const int32_t *predicted)
{
    int64_t K = task->outcomes, *counts;
    json_t *rows;

    if (K > TABLE_CLASSES)
        return json_null();
    counts = bp_alloc("score.task", K * K, sizeof *counts);
    rows = json_array();
    for (int64_t r = 0; r < task->documents.rows; r++)
        if (task_has_label(task, r))
            counts[task->documents.row[r].label * K + predicted[r]]++;
    for (int64_t k = 0; k < K; k++) {
        json_t *row = json_array();

        for (int64_t j = 0; j < K; j++)
            (void)json_array_append_new(row, json_integer((json_int_t)counts[k * K + j]));
        (void)json_array_append_new(rows, row);
    }
    bp_free(counts);
    return rows;
}

bp_err task_estimate(json_t **out, const task_scoring *task, const bp_metric *metric,
                     const void *answers, const int64_t *documents, int64_t count)
{
    const int64_t *clusters = task->self->clusters;
    int64_t *cluster = clusters ? bp_alloc("score.task", count, sizeof *cluster) : NULL;
    bp_figure figures[BP_METRIC_FIGURES];
    bp_err err;

    for (int64_t k = 0; k < count && clusters; k++)
        cluster[k] = clusters[documents[k]];
    err = bp_metric_estimate_clusters(figures, metric, answers, count, cluster,
                                      (uint64_t)bp_run_keys_of(task->self->config)->seed);
    if (err == BP_OK)
        *out = bp_metric_json(metric, figures);
    if (err == BP_OK && clusters)
        (void)json_object_set_new(
            *out, "clusters", json_integer((json_int_t)bp_clusters_of(NULL, cluster, NULL, count)));
    bp_free(cluster);
    return err;
}

/* The number of used document d among all documents. */
static int64_t number_of(const task_scoring *task, int64_t d)
{
    return bp_document_table_document(task->documents.table, task->documents.number[d]);
}

static bp_err estimate_classes(const task_scoring *task, json_t **out, const int32_t *predicted)
{
    int64_t *numbers = bp_alloc("score.task", task->documents.count, sizeof *numbers);
    int32_t *label = bp_alloc("score.task", 2 * task->documents.count, sizeof *label),
            *said = label + task->documents.count;
    bp_class_answers answers = {0, task->outcomes, label, said};
    bp_err err;

    for (int64_t d = 0; d < task->documents.count; d++)
        if (task_has_label(task, d)) {
            numbers[answers.documents] = number_of(task, d);
            label[answers.documents] = task->documents.row[d].label;
            said[answers.documents++] = predicted[d];
        }
    err = task_estimate(out, task, &bp_metric_classes, &answers, numbers, answers.documents);
    bp_free(label);
    bp_free(numbers);
    return err;
}

/* Entities of each document; without names of entities (parts of speech) only the accuracy. */
static bp_err estimate_tags(const task_scoring *task, json_t **out, const int32_t *predicted)
{
    static const char *const OF_ENTITIES[] = {"precision", "recall", "f1"};
    int64_t *numbers = bp_alloc("score.task", task->documents.count, sizeof *numbers);
    const char **tags = bp_alloc("score.task", 2 * task->documents.rows, sizeof *tags),
               **said = tags + task->documents.rows;
    bp_entity_counts *counts = bp_alloc("score.task", task->documents.count, sizeof *counts);
    bp_tag_answers answers = {0, counts};
    bp_err err;

    for (int64_t d = 0; d < task->documents.count; d++) {
        int64_t first = task->documents.first_row[d], words = 0;

        for (int64_t r = first; r < task->documents.first_row[d + 1]; r++)
            if (task_has_label(task, r)) {
                tags[first + words] = task->documents.names[task->documents.row[r].label];
                said[first + words++] = task->documents.names[predicted[r]];
            }
        if (words == 0 && first < task->documents.first_row[d + 1])
            continue;
        numbers[answers.documents] = number_of(task, d);
        counts[answers.documents++] = bp_entities_compare(tags + first, said + first, words);
    }
    err = task_estimate(out, task, &bp_metric_tags, &answers, numbers, answers.documents);
    for (size_t k = 0; k < 3 && err == BP_OK; k++)
        if (!bp_tags_have_entities(task->documents.names, task->outcomes))
            (void)json_object_del(*out, OF_ENTITIES[k]);
    bp_free(counts);
    bp_free(tags);
    bp_free(numbers);
    return err;
}

void task_put_means(json_t *results, const double sums[TASK_MORE], int64_t count)
{
    static const char *const MEANS[] = {"entropy", "mutual_information"};

    for (int k = 0; k < TASK_MORE; k++)
        (void)json_object_set_new(results, MEANS[k], bp_json_real(sums[k] / (double)count));
}

/* "task" of the summary, with the means of an ensemble's statistics. */
static bp_err measure_classes(const task_scoring *task, json_t **out)
{
    const json_t *labels =
        json_object_get(json_object_get(task->documents.state, "model"), "labels");
    int32_t *predicted = bp_alloc("score.task", task->documents.rows, sizeof *predicted);
    double sums[TASK_MORE] = {0};
    bp_err err;

    for (int64_t r = 0; r < task->documents.rows; r++) {
        const float *more = task->table + r * task->width + task->outcomes;

        predicted[r] = task_best_of(task, r);
        for (int k = 0; k < TASK_MORE && task->width > task->outcomes; k++)
            sums[k] += (double)more[k];
    }
    if (!task_has_figures(task)) {
        *out = json_object();
        err = BP_OK;
    } else {
        err = task->kind->at_words ? estimate_tags(task, out, predicted)
                                   : estimate_classes(task, out, predicted);
    }
    if (err == BP_OK) {
        if (task_has_figures(task))
            (void)json_object_set_new(*out, "confusion", confusion_of(task, predicted));
        if (labels)
            (void)json_object_set(*out, "labels", (json_t *)labels);
        if (task->width > task->outcomes)
            task_put_means(*out, sums, task->documents.rows);
    }
    bp_free(predicted);
    return err;
}

static bp_err measure_values(const task_scoring *task, json_t **out)
{
    int64_t *numbers = bp_alloc("score.task", task->documents.count, sizeof *numbers);
    double *label = bp_alloc("score.task", task->documents.count, sizeof *label),
           *predicted = bp_alloc("score.task", task->documents.count, sizeof *predicted);
    int64_t count = 0;
    double variance = 0;
    bp_real_answers answers;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < task->documents.count; d++) {
        variance += (double)task->table[(d + 1) * task->width - 1];
        if (!task_has_label(task, d))
            continue;
        numbers[count] = number_of(task, d);
        label[count] = (double)task->documents.row[d].value;
        predicted[count++] = (double)task->table[d * task->width];
    }
    bp_real_answers_init(&answers, label, predicted, count);
    if (task_has_figures(task))
        err = task_estimate(out, task, &bp_metric_regression, &answers, numbers, count);
    else
        *out = json_object();
    if (err == BP_OK && task->width > task->outcomes)
        (void)json_object_set_new(*out, "variance",
                                  bp_json_real(variance / (double)task->documents.count));
    bp_real_answers_clear(&answers);
    bp_free(numbers);
    bp_free(label);
    bp_free(predicted);
    return err;
}

static void add_likelihood(const task_scoring *task, json_t *summary)
{
    double nll = 0;

    if (!task->kind->has_names || !task_has_figures(task))
        return;
    for (int64_t r = 0; r < task->documents.rows; r++)
        if (task_has_label(task, r))
            nll -= (double)task->table[r * task->width + task->documents.row[r].label];
    (void)json_object_set_new(summary, "nll_nats", bp_json_real(nll));
    (void)json_object_set_new(
        summary, "perplexity",
        bp_json_real(exp(nll / (double)(task->predictions - task->unlabelled))));
}

static void count_unlabelled(task_scoring *task)
{
    task->predictions = task->documents.rows;
    for (int64_t r = 0; r < task->documents.rows; r++)
        task->unlabelled += !task_has_label(task, r);
}

static bp_err summarise(task_scoring *task)
{
    scorer *self = task->self;
    char *path = bp_path_join(self->folder, "summary.json");
    json_t *results = NULL;
    bp_err err = task->kind->is_value         ? measure_values(task, &results)
                 : task->kind->over_positions ? task_measure_spans(task, &results)
                                              : measure_classes(task, &results);

    if (err == BP_OK) {
        (void)json_object_set_new(results, "kind", bp_json_string(task->kind->name));
        if (task->unlabelled > 0)
            (void)json_object_set_new(results, "unlabelled",
                                      json_integer((json_int_t)task->unlabelled));
        self->summary = json_pack(
            "{s:I, s:I, s:o, s:{s:s, s:I, s:s}, s:{s:s, s:I}}", "documents",
            (json_int_t)(task->kind->over_positions ? task->predictions : task->documents.count),
            "documents_cut", (json_int_t)task->documents.cut, "task", results, "convention", "name",
            "task", "context", (json_int_t)task->documents.length, "tokenizer_hash",
            self->info.tokenizer_hash, "model", "digest", self->info.digest, "step",
            (json_int_t)self->info.step);
        if (task->kind->over_positions)
            (void)json_object_set_new(self->summary, "windows",
                                      json_integer((json_int_t)task->documents.count));
        if (task->kind->at_words)
            (void)json_object_update_new(
                self->summary, json_pack("{s:I, s:I}", "words", (json_int_t)task->documents.rows,
                                         "words_cut", (json_int_t)task->documents.words_cut));
        if (json_object_get(results, "clusters")) { /* there are figures */
            scorer_record_clusters(self, self->summary,
                                   json_integer_value(json_object_get(results, "clusters")));
            (void)json_object_del(results, "clusters");
        }
        bp_weights_record(self->summary, self->config);
        add_likelihood(task, self->summary);
        err = bp_json_save(path, self->summary);
    }
    bp_free(path);
    return err;
}

/* Log how many predictions have no label to compare with. */
static void say_unlabelled(const task_scoring *task)
{
    const char *column = task->documents.column;

    bp_log("%" PRId64 " of %" PRId64 " %s have no %s%s%s%s: %s", task->unlabelled,
           task->predictions, task->kind->labelled, task->kind->label, column ? " '" : "",
           column ? column : "", column ? "'" : "",
           task_has_figures(task) ? "they are predicted, and count for no figure"
                                  : "they are predicted, without figures");
}

static void say(const task_scoring *task)
{
    const json_t *results = json_object_get(task->self->summary, "task"), *value;
    const char *name;

    json_object_foreach((json_t *)results, name, value)
    {
        const json_t *figure = json_object_get(value, "value");
        char interval[SCORER_INTERVAL_BYTES];

        if (json_is_number(figure))
            bp_log("%-10s %8.4f  (%s)", name, json_number_value(figure),
                   scorer_interval(interval, value));
    }
    if (task->unlabelled > 0)
        say_unlabelled(task);
}

bp_err task_report(task_scoring *task)
{
    bp_err err = BP_OK;

    if (!task->kind->over_positions) { /* whose questions are found with their answers */
        count_unlabelled(task);
        err = write_predictions(task);
    }
    if (err == BP_OK)
        err = summarise(task);
    if (err == BP_OK && task->self->page)
        task_page_write(task);
    if (err == BP_OK)
        say(task);
    return err;
}
