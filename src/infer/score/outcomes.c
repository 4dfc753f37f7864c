/* What an ensemble says of each prediction of a task, for those who compare methods: outcomes.h5. A
 * start after a stop scores anew. */
#include "infer/score/scorer_priv.h"

#include "base/err.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/signals.h"
#include "infer/score/tables/tables.h"
#include "infer/score/task_documents_priv.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>

typedef struct outcomes {
    scorer *self;
    task_documents documents;
    int64_t count;     /* predictions: of a text one, or one of each word, or both ends of a span */
    float *statistics; /* [statistics][count]; NaN: not known, since there is no label */
    float *values;     /* [statistics][TASK_GROUP][length] of a batch */
} outcomes;

/* Is a statistic one of the label, and not of the distribution alone? */
static bool is_of_label(const bp_token_statistics *statistics, int64_t statistic)
{
    return statistic == BP_MODEL_LOGPROB || statistic == BP_MODEL_LOGPROB_VARIANCE ||
           statistic == BP_MODEL_CORRECT || statistic == BP_MODEL_BRIER ||
           (statistic >= BP_MODEL_MEMBER && statistic < statistics->count);
}

/* Of example w of the batch, which is document d. */
static void take_document(outcomes *work, const bp_model_batch *batch, int64_t d, int64_t w)
{
    const task_documents *documents = &work->documents;
    int64_t stride = batch->windows * batch->length, ends = task_documents_ends(documents);

    for (int64_t r = documents->first_row[d]; r < documents->first_row[d + 1]; r++)
        for (int64_t end = 0; end < ends; end++) {
            const task_row *row = &documents->row[r];
            int64_t k = task_documents_at(documents, row, end, w, batch->length);

            for (int64_t c = 0; c < work->self->info.statistics; c++)
                work->statistics[c * work->count + r * ends + end] =
                    row->label < 0 && is_of_label(&work->self->statistics, c)
                        ? NAN
                        : work->values[c * stride + k];
        }
}

/* Where there is no label outcome 0 is asked for. */
static bp_err score_group(outcomes *work, int64_t g)
{
    task_documents *documents = &work->documents;
    bp_model_batch batch;
    bp_err err = task_documents_group(documents, g, 0, &batch);

    if (batch.windows < 0)
        return err;
    bp_heartbeat_progress();
    err = bp_model_score(work->self->lm, &batch, work->values);
    for (int64_t w = 0; w < batch.windows && err == BP_OK && work->self->leads; w++)
        take_document(work, &batch, g * TASK_GROUP + w, w);
    return err;
}

/* Data ranks take groups in turn, and agree after each on whether to stop. */
static bp_err score_groups(outcomes *work)
{
    const bp_mesh *mesh = work->self->mesh;
    int64_t groups = task_documents_groups(&work->documents);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < groups && err == BP_OK; first += mesh->datas) {
        if (first + mesh->data_at < groups)
            err = score_group(work, first + mesh->data_at);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_stop_request_stopped("at document %" PRId64 " of %" PRId64, first * TASK_GROUP,
                                          work->documents.count);
        err = bp_agree(mesh->compute, err);
    }
    return err;
}

/* What all data ranks have found, on the coordinator. */
static void gather(const outcomes *work)
{
    const bp_mesh *mesh = work->self->mesh;
    int64_t floats = work->count * work->self->info.statistics;

    if (mesh->computes && work->self->leads && mesh->datas > 1) {
        float *scratch = bp_alloc("score.task", floats, sizeof *scratch);

        bp_all_sum(work->statistics, floats, scratch, mesh->data);
        bp_free(scratch);
    }
    if (mesh->dedicated)
        bp_bcast_bytes(work->statistics, floats * (int64_t)sizeof *work->statistics, 1,
                       mesh->world);
}

/* Of each document of the corpora, whose windows lie one behind the other. */
static void count_predictions(const outcomes *work, int64_t *predictions)
{
    const task_documents *documents = &work->documents;

    for (int64_t d = 0; d < documents->count; d++)
        predictions[bp_document_table_document(documents->table, documents->number[d])] +=
            (documents->first_row[d + 1] - documents->first_row[d]) *
            task_documents_ends(documents);
}

/* Of a regression a document has its value. */
static bp_err write_values(const outcomes *work, const char *path, const bp_outcomes *table)
{
    float *label = bp_alloc("score.task", work->count, sizeof *label);
    bp_err err;

    for (int64_t r = 0; r < work->count; r++)
        label[r] = work->documents.row[r].value;
    err = bp_outcomes_write_values(path, table, label);
    bp_free(label);
    return err;
}

static bp_err write_outcomes(const outcomes *work)
{
    const scorer *self = work->self;
    char *path = bp_path_join(self->folder, "outcomes.h5");
    int64_t *predictions = bp_alloc("score.task", self->plan.documents, sizeof *predictions);
    bp_outcomes table = {.plan = &self->plan,
                         .statistics = &self->statistics,
                         .predictions = predictions,
                         .count = work->count,
                         .values = work->statistics};
    bp_err err = bp_run_check_owner(self->job->run);

    if (bp_model_is_prior(&self->info))
        table.spread = work->statistics + self->statistics.count * work->count;
    count_predictions(work, predictions);
    if (err == BP_OK)
        err = bp_dir_make(self->folder);
    if (err == BP_OK)
        err = work->documents.kind->is_value ? write_values(work, path, &table)
                                             : bp_outcomes_write(path, &table);
    bp_free(predictions);
    bp_free(path);
    return err;
}

static bp_err prepare(outcomes *work)
{
    scorer *self = work->self;
    task_documents_spec spec = {.mesh = self->mesh,
                                .model = &self->info,
                                .path = bp_score_keys_of(self->config)->model,
                                .corpus = self->corpus,
                                .open = true,
                                .config = self->config};
    bp_err err = task_documents_open(&work->documents, &spec, self->mesh->world);
    const task_documents *documents = &work->documents;

    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates)
        task_documents_tell_cut(documents);
    work->count = documents->rows * task_documents_ends(documents);
    work->statistics =
        bp_try_alloc("score.task", self->info.statistics * work->count, sizeof(float));
    work->values = bp_try_alloc(
        "score.task", self->info.statistics * TASK_GROUP * documents->length, sizeof(float));
    return bp_agree(self->mesh->world,
                    work->statistics && work->values
                        ? BP_OK
                        : bp_fail_memory("the outcomes of documents",
                                         self->info.statistics * work->count, sizeof(float)));
}

bp_err scorer_run_outcomes(scorer *self)
{
    outcomes work = {.self = self};
    bp_err err;

    BP_ASSERT(self->info.members > 0 && bp_task_has_head(&self->info.task));
    err = prepare(&work);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? score_groups(&work) : BP_OK);
    if (err == BP_OK) {
        gather(&work);
        err = bp_agree(self->mesh->world, self->mesh->coordinates ? write_outcomes(&work) : BP_OK);
    }
    task_documents_clear(&work.documents);
    bp_free(work.statistics);
    bp_free(work.values);
    return err;
}
