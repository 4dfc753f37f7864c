/* outcomes.h5: an ensemble's statistics of each prediction of a task, for comparing methods. A row
 * has those of its prediction, or of both ends of a span. Called by task.c after its last unit. */
#include "infer/score/task/task_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/tables/tables.h"

#include <math.h>
#include <string.h>

static int64_t width_of(const task_scoring *task)
{
    return task_documents_ends(&task->documents) * task->self->info.statistics;
}

static bool is_tempered_label(const bp_token_statistics *statistics, int64_t statistic)
{
    const char *name = statistic < statistics->count - statistics->members
                           ? bp_token_statistics_column(statistics, statistic)
                           : "";

    return strcmp(name, bp_model_statistic_name(BP_MODEL_TEMPERED_LOGPROB)) == 0 ||
           strcmp(name, bp_model_statistic_name(BP_MODEL_TEMPERED_BRIER)) == 0;
}

/* Is a statistic one of the label, and not only of the distribution? */
static bool is_of_label(const bp_token_statistics *statistics, int64_t statistic)
{
    return statistic == BP_MODEL_LOGPROB || statistic == BP_MODEL_LOGPROB_VARIANCE ||
           statistic == BP_MODEL_CORRECT || statistic == BP_MODEL_BRIER ||
           (statistic == BP_MODEL_SET_RANK && statistic < statistics->count) ||
           is_tempered_label(statistics, statistic) ||
           (statistic >= statistics->count - statistics->members && statistic < statistics->count);
}

/* NaN if unknown, because there is no label. */
static void take(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                 int64_t at, float *out)
{
    const task_documents *documents = &task->documents;
    const task_row *row = &documents->row[r];
    int64_t stride = batch->windows * batch->length;

    (void)at;
    for (int64_t end = 0; end < task_documents_ends(documents); end++) {
        int64_t k = bp_task_documents_at(documents, row, end, w, batch->length);

        for (int64_t c = 0; c < task->self->info.statistics; c++)
            *out++ = row->label < 0 && is_of_label(&task->self->statistics, c)
                         ? NAN
                         : task->values[c * stride + k];
    }
}

/* table[statistics][predictions] */
static void put(task_scoring *task, int64_t first, int64_t rows, const char *from)
{
    int64_t ends = task_documents_ends(&task->documents), statistics = task->self->info.statistics,
            count = task->documents.rows * ends;

    for (int64_t k = first * ends; k < (first + rows) * ends; k++)
        for (int64_t c = 0; c < statistics; c++, from += sizeof(float))
            memcpy(&task->table[c * count + k], from, sizeof(float));
}

/* For each document of the corpora, whose windows follow each other. */
static void count_predictions(const task_scoring *task, int64_t *predictions)
{
    const task_documents *documents = &task->documents;

    for (int64_t d = 0; d < documents->count; d++)
        predictions[bp_document_table_document(documents->table, documents->number[d])] +=
            (documents->first_row[d + 1] - documents->first_row[d]) *
            task_documents_ends(documents);
}

/* For a regression: the value of each document. */
static bp_err write_values(const task_scoring *task, const char *path, const bp_outcomes *table)
{
    float *label = bp_alloc("score.task", table->count, sizeof *label);
    bp_err err;

    for (int64_t r = 0; r < table->count; r++)
        label[r] = task->documents.row[r].value;
    err = bp_outcomes_write_values(path, table, label);
    bp_free(label);
    return err;
}

/* The outcome of each prediction, and the names of outcomes. */
static void take_labels(const task_scoring *task, bp_outcomes *table)
{
    int64_t ends = task_documents_ends(&task->documents);

    table->label = bp_alloc("score.task", table->count, sizeof *table->label);
    for (int64_t k = 0; k < table->count; k++)
        table->label[k] = (float)task->documents.row[k / ends].label;
    table->outcome_names = task->documents.names;
    table->outcomes = task->self->info.task.outcomes;
}

static bp_err write_outcomes(task_scoring *task)
{
    const scorer *self = task->self;
    int64_t count = task->documents.rows * task_documents_ends(&task->documents);
    char *path = bp_path_join(self->folder, "outcomes.h5");
    int64_t *predictions = bp_alloc("score.task", self->plan.documents, sizeof *predictions);
    bp_outcomes table = {.plan = &self->plan,
                         .statistics = &self->statistics,
                         .predictions = predictions,
                         .count = count,
                         .values = task->table,
                         .extras = self->info.extras,
                         .cut = task->documents.cut,
                         .positions = task->documents.length};
    bp_err err;

    if (task->kind->has_names)
        take_labels(task, &table);
    count_predictions(task, predictions);
    err = task->kind->is_value ? write_values(task, path, &table) : bp_outcomes_write(path, &table);
    bp_free(table.label);
    bp_free(predictions);
    bp_free(path);
    return err;
}

const task_results task_outcomes = {
    .width_of = width_of, .take = take, .put = put, .write = write_outcomes};
