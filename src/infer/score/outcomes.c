/* What an ensemble says of the classes of documents, for those who compare methods: outcomes.h5. A
 * start after a stop scores anew. */
#include "infer/score/scorer_priv.h"

#include "base/err.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
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
    float *statistics; /* [statistics][documents]; NaN: not known, since there is no class */
    float *values;     /* [statistics][TASK_GROUP][length] of a batch */
} outcomes;

/* Is a statistic one of the class that a document has, and not of the distribution alone? */
static bool is_of_label(int64_t statistic)
{
    return statistic == BP_MODEL_LOGPROB || statistic == BP_MODEL_LOGPROB_VARIANCE ||
           statistic == BP_MODEL_CORRECT || statistic == BP_MODEL_BRIER ||
           statistic >= BP_MODEL_MEMBER;
}

/* A document without a class is asked for class 0. */
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
        for (int64_t c = 0; c < work->self->info.statistics; c++) {
            int64_t d = g * TASK_GROUP + w;
            bool unknown = documents->label[d] < 0 && is_of_label(c);

            work->statistics[c * documents->count + d] =
                unknown ? NAN : work->values[(c * batch.windows + w) * batch.length];
        }
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
    int64_t floats = work->documents.count * work->self->info.statistics;

    if (mesh->computes && work->self->leads && mesh->datas > 1) {
        float *scratch = bp_alloc("score.task", floats, sizeof *scratch);

        bp_all_sum(work->statistics, floats, scratch, mesh->data);
        bp_free(scratch);
    }
    if (mesh->dedicated)
        bp_bcast_bytes(work->statistics, floats * (int64_t)sizeof *work->statistics, 1,
                       mesh->world);
}

static bp_err write_outcomes(const outcomes *work)
{
    const scorer *self = work->self;
    char *path = bp_path_join(self->folder, "outcomes.h5");
    bp_err err = bp_run_check_owner(self->run);

    if (err == BP_OK)
        err = bp_dir_make(self->folder);
    if (err == BP_OK)
        err = bp_outcomes_write(path, &self->plan, &self->statistics, work->statistics);
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
                                .open = true};
    bp_err err = task_documents_open(&work->documents, &spec, self->mesh->world);
    int64_t count = work->documents.count;

    if (err != BP_OK)
        return err;
    if (work->documents.cut > 0 && self->mesh->coordinates)
        bp_log("%" PRId64 " of %" PRId64 " documents are longer than the model's %" PRId64
               " places: their longer text is cut",
               work->documents.cut, count, work->documents.length);
    work->statistics = bp_try_alloc("score.task", self->info.statistics * count, sizeof(float));
    work->values = bp_try_alloc(
        "score.task", self->info.statistics * TASK_GROUP * work->documents.length, sizeof(float));
    return bp_agree(self->mesh->world,
                    work->statistics && work->values
                        ? BP_OK
                        : bp_fail_memory("the outcomes of documents", self->info.statistics * count,
                                         sizeof(float)));
}

bp_err scorer_run_outcomes(scorer *self)
{
    outcomes work = {.self = self};
    bp_err err;

    BP_ASSERT(self->info.members > 0 && self->info.task.kind == BP_TASK_CLASSES);
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
