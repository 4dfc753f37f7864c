/* Pipeline schedules: the list of actions of a stage for gpipe, 1f1b and interleaved. Pure. Called
 * by pipeline_comm.c, stage.c and train/loop/memory/plan_text.c. */
#include "train/engine/schedule.h"

/* Forwards before the first backward. Interleaved: until the first gradient can arrive, plus
 * `stages` micro-batches for each further chunk. */
static int64_t forwards_ahead(const bp_pipeline *pipeline, int stage)
{
    int64_t all = pipeline->micro_batches * pipeline->chunks, ahead = all;
    int after = pipeline->stages - 1 - stage;

    if (pipeline->schedule == BP_1F1B)
        ahead = after + 1;
    else if (pipeline->schedule == BP_INTERLEAVED)
        ahead = 2 * after + (int64_t)(pipeline->chunks - 1) * pipeline->stages + 1;
    return ahead < all ? ahead : all;
}

/* The k-th forward, or backward, of every stage: `stages` micro-batches through one chunk after
 * another, then the next ones. */
static bp_action kth(const bp_pipeline *pipeline, bool backward, int64_t k)
{
    int stages = pipeline->stages, chunks = pipeline->chunks;
    int64_t round = (int64_t)stages * chunks;
    int chunk = (int)(k % round / stages);

    if (chunks == 1)
        return (bp_action){.backward = backward, .micro_batch = k};
    return (bp_action){.backward = backward,
                       .chunk = backward ? chunks - 1 - chunk : chunk,
                       .micro_batch = k / round * stages + k % stages};
}

/* How far a stage is. */
typedef struct place {
    int64_t forward, backward;
} place;

static bp_action next_action(const bp_pipeline *pipeline, int stage, place *at)
{
    bool goes_back = at->forward == pipeline->micro_batches * pipeline->chunks ||
                     at->forward - at->backward == forwards_ahead(pipeline, stage);

    return kth(pipeline, goes_back, goes_back ? at->backward++ : at->forward++);
}

double bp_schedule_busy(const bp_pipeline *pipeline)
{
    double work = (double)pipeline->chunks * (double)pipeline->micro_batches;

    return work / (work + pipeline->stages - 1);
}

int64_t bp_schedule_actions(const bp_pipeline *pipeline)
{
    return 2 * pipeline->micro_batches * pipeline->chunks;
}

void bp_schedule_fill(bp_action *actions, const bp_pipeline *pipeline, int stage)
{
    place at = {0, 0};

    for (int64_t k = 0; k < bp_schedule_actions(pipeline); k++)
        actions[k] = next_action(pipeline, stage, &at);
}

int64_t bp_schedule_slots(const bp_pipeline *pipeline, int stage, int chunk)
{
    place at = {0, 0};
    int64_t kept = 0, most = 0;

    for (int64_t k = 0; k < bp_schedule_actions(pipeline); k++) {
        bp_action action = next_action(pipeline, stage, &at);

        if (action.chunk == chunk)
            kept += action.backward ? -1 : 1;
        most = kept > most ? kept : most;
    }
    return most;
}

static bool is_first_run(int stage, const bp_action *action)
{
    return stage == 0 && action->chunk == 0;
}

static bool is_last_run(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    return stage == pipeline->stages - 1 && action->chunk == pipeline->chunks - 1;
}

bool bp_action_receives(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    return action->backward ? !is_last_run(pipeline, stage, action) : !is_first_run(stage, action);
}

bool bp_action_sends(const bp_pipeline *pipeline, int stage, const bp_action *action)
{
    return action->backward ? !is_first_run(stage, action) : !is_last_run(pipeline, stage, action);
}
