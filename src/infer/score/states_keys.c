/* score.states of a model that gives keys: the datastore of a nearest-neighbour language model.
 * Work units are those of scoring, so a token's key is what it is predicted from when it is scored.
 */
#include "infer/score/states_priv.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "infer/score/tables/tables.h"
#include "math/math.h"
#include "mesh/mesh.h"

#include <string.h>

#define GAP_ROWS 2048

/* Rows [first, first + count) of /scored. */
static bp_err write_flags(state_job *job, int64_t first, int64_t count, bool scored)
{
    uint8_t flags[GAP_ROWS];
    bp_err err = BP_OK;

    memset(flags, scored, sizeof flags);
    while (count > 0 && err == BP_OK) {
        int64_t now = count < GAP_ROWS ? count : GAP_ROWS;

        err = bp_h5_write_slab(job->draft.file, "scored", BP_H5_U8, first, flags, now);
        first += now;
        count -= now;
    }
    return err;
}

/* A window's keys, which lie at `states`. */
static bp_err store_run(state_job *job, const float *states, bp_score_run run)
{
    int64_t C = job->form.columns;
    bp_err err = states_write_gap(job, job->written, run.first);

    if (err == BP_OK)
        err = bp_h5_write_slab(job->draft.file, "layer_0", BP_H5_F32, run.first * C, states,
                               run.count * C);
    if (err == BP_OK)
        err = write_flags(job, run.first, run.count, true);
    job->written = run.first + run.count;
    return err;
}

static bp_err store_unit(state_job *job, int64_t number)
{
    bp_err err = bp_score_unit_load(job->unit, number);

    for (int64_t w = 0; err == BP_OK && w < bp_score_unit_windows(job->unit); w++) {
        int64_t value;
        bp_score_run run = bp_score_unit_run(job->unit, w, &value);

        if (run.count > 0)
            err = store_run(job, job->states + value * job->form.columns, run);
    }
    return err;
}

/* ---- a unit through the model ---- */

/* The batch of a lead, or what it sends; false where there are no more. */
static bool run_batch(state_job *job, bp_model_batch *batch, bp_err *err)
{
    int64_t unit = 0; /* of no use to the others */

    scorer_share_batch(job->self->mesh->ensemble, batch, &unit);
    if (batch->windows == 0)
        return false;
    bp_heartbeat_progress();
    *err = job->self->lm->ops->keys(job->self->lm, batch, job->values, job->keys);
    return *err == BP_OK;
}

static bp_err lead_unit(state_job *job, int64_t number)
{
    bp_err err = bp_score_unit_load(job->unit, number), given = BP_OK;
    bool goes_on = true;

    for (int64_t b = 0; err == BP_OK && goes_on && b < bp_score_unit_batches(job->unit); b++) {
        bp_model_batch batch;

        err = bp_score_unit_batch(job->unit, b, &batch);
        goes_on = err == BP_OK && run_batch(job, &batch, &given);
        if (goes_on)
            bp_score_unit_take_rows(job->unit, b, job->keys, job->form.columns, job->states);
    }
    if (given == BP_OK) /* else the others know */
        (void)run_batch(job, &(bp_model_batch){0}, &given);
    job->floats = bp_score_unit_scored(job->unit) * job->form.columns;
    return err == BP_OK ? given : err;
}

static bp_err follow_unit(state_job *job)
{
    bp_model_batch batch;
    bp_err err = BP_OK;

    do
        batch = (bp_model_batch){.inputs = job->inputs,
                                 .targets = job->targets,
                                 .sources = job->sources,
                                 .source_lengths = job->source_lengths};
    while (run_batch(job, &batch, &err));
    return err;
}

static bp_err compute_unit(state_job *job, int64_t number)
{
    return job->self->leads ? lead_unit(job, number) : follow_unit(job);
}

/* ---- before and after ---- */

static bp_err alloc_batch(state_job *job)
{
    const scorer *self = job->self;
    int64_t tokens = bp_score_batch_tokens(bp_score_piece_inputs(&self->rule));

    job->keys = bp_try_alloc("score.states", tokens * job->form.columns, sizeof *job->keys);
    job->values = bp_alloc("score.states", self->info.statistics * tokens, sizeof *job->values);
    if (!self->leads) {
        job->inputs = bp_alloc("score.states", tokens, sizeof *job->inputs);
        job->targets = bp_alloc("score.states", tokens, sizeof *job->targets);
    }
    if (!self->leads && self->info.reads_source) {
        job->sources = bp_alloc("score.states", tokens, sizeof *job->sources);
        job->source_lengths =
            bp_alloc("score.states", BP_SCORE_BATCH_TOKENS, sizeof *job->source_lengths);
    }
    return job->keys ? BP_OK : states_no_memory(tokens);
}

int64_t states_key_bytes(int64_t columns, int64_t inputs, int64_t statistics)
{
    int64_t tokens = bp_score_batch_tokens(inputs),
            rows = tokens + BP_SCORE_UNIT_INPUTS + inputs + GAP_ROWS;

    return (rows * columns + statistics * tokens) * (int64_t)sizeof(float) +
           (int64_t)bp_score_unit_bytes(inputs, 1);
}

bp_err states_prepare_keys(state_job *job)
{
    scorer *self = job->self;
    bp_err err = self->mesh->computes ? alloc_batch(job) : BP_OK;

    job->compute = compute_unit;
    job->store = store_unit;
    job->most = GAP_ROWS;
    job->count = self->plan.units;
    if (err != BP_OK || !(self->leads || self->mesh->coordinates))
        return err;
    err = bp_score_unit_new(&job->unit, &self->plan, 1);
    if (err != BP_OK)
        return err;
    int64_t most = bp_score_unit_capacity(job->unit);
    job->states = bp_try_alloc("score.states", most * job->form.columns, sizeof *job->states);
    return job->states ? BP_OK : states_no_memory(most);
}

bp_err states_begin_keys(state_job *job)
{
    const bp_score_plan *plan = &job->self->plan;
    int64_t rows = plan->first_token[plan->files];
    bp_h5 *file = job->draft.file;
    bp_err err = bp_h5_put_text(file, "/", "model_digest", job->self->info.digest);

    if (err == BP_OK)
        err = bp_h5_put_text(file, "/", "precision", bp_math_keys_of(job->self->config)->precision);
    if (err == BP_OK)
        err = bp_h5_make(file, "scored", BP_H5_U8, rows);
    if (err == BP_OK)
        err = write_flags(job, 0, rows, false);
    return err == BP_OK ? bp_score_text_write(file, plan) : err;
}

void states_clear_keys(state_job *job)
{
    bp_score_unit_free(&job->unit);
    bp_free(job->source_lengths);
    bp_free(job->sources);
    bp_free(job->targets);
    bp_free(job->inputs);
    bp_free(job->values);
    bp_free(job->keys);
}
