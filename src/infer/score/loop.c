/* Units of windows: batches through the model, the values of a unit to its part (job/work.h has the
 * loop over units). Called by each.c and score.c. */
#include "infer/score/sets.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/page/page.h"
#include "infer/score/tables/tables.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"
#include "models/network/weights.h"

#include <inttypes.h>

#define RESULT_BYTES 65536 /* of a result with keys besides its keys and values, usually */

static bp_err no_memory(int64_t tokens)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for a batch of %" PRId64 " tokens",
                   tokens);
}

/* ---- a batch ---- */

void scorer_share_batch(MPI_Comm group, const bp_model_batch *batch)
{
    int64_t bytes = batch->windows * batch->length * (int64_t)sizeof(int32_t);

    /* the lead's buffers are only read by a broadcast from it */
    bp_bcast_bytes((int32_t *)batch->inputs, bytes, 0, group);
    bp_bcast_bytes((int32_t *)batch->targets, bytes, 0, group);
    if (batch->source_length == 0)
        return;
    bp_bcast_bytes((int32_t *)batch->sources,
                   batch->windows * batch->source_length * (int64_t)sizeof(int32_t), 0, group);
    bp_bcast_bytes((int32_t *)batch->source_lengths, batch->windows * (int64_t)sizeof(int32_t), 0,
                   group);
}

/* Compute the batch's values and, if requested, its keys. */
static bp_err answer(void *context, const void *what)
{
    const scorer *self = context;
    score_windows *mine = &((scorer *)context)->windows;
    bp_model_batch batch = *(const bp_model_batch *)what;

    if (!self->leads) { /* the lead's are in its unit */
        batch.inputs = mine->inputs;
        batch.targets = mine->targets;
        batch.sources = mine->sources;
        batch.source_lengths = mine->source_lengths;
        batch.segments = NULL; /* these would be the lead's pointers */
        batch.vectors = batch.source_vectors = NULL;
    }
    scorer_share_batch(self->mesh->replica, &batch);
    bp_heartbeat_step(++mine->batches);
    return mine->keys ? self->model->ops->keys(self->model, &batch, mine->values, mine->keys)
                      : bp_model_score(self->model, &batch, mine->values);
}

/* Put its keys at the beginning of the unit's result. */
static bp_err score_batch(scorer *self, int64_t b, bp_buffer *out)
{
    score_windows *mine = &self->windows;
    bp_model_batch batch;
    bp_err err = bp_score_unit_batch(mine->unit, b, &batch);

    if (err == BP_OK)
        err = bp_request(&self->job->requests, &batch, sizeof batch);
    if (err == BP_OK && mine->keys)
        bp_score_unit_take_rows(mine->unit, b, mine->keys, self->info.states.columns,
                                (float *)(void *)out->data);
    return err == BP_OK ? bp_score_unit_take(mine->unit, b, mine->values) : err;
}

/* For the keys of any unit, and the data after them. */
static bp_err make_room(const scorer *self, bp_buffer *out)
{
    const score_windows *mine = &self->windows;
    size_t value = (size_t)(self->info.states.columns + self->statistics.count) * sizeof(float),
           bytes = (size_t)bp_score_unit_capacity(mine->unit) * value + RESULT_BYTES;

    if (!mine->keys || bp_buffer_try_reserve(out, "score.states", bytes))
        return BP_OK;
    return no_memory(bp_score_unit_capacity(mine->unit));
}

/* The next unit is requested before the last batch of this one. */
static bp_err score_all(scorer *self, int64_t number, bp_buffer *out, bool *stopped)
{
    bp_score_unit *unit = self->windows.unit;
    bp_err err = make_room(self, out);

    if (err == BP_OK)
        err = bp_score_unit_load(unit, number);
    int64_t batches = err == BP_OK ? bp_score_unit_batches(unit) : 0;

    for (int64_t b = 0; err == BP_OK && b < batches; b++) {
        *stopped = bp_work_between(self->job);
        if (*stopped)
            break;
        if (b == batches - 1)
            bp_work_ask_next(self->job);
        err = score_batch(self, b, out);
    }
    return err;
}

static bp_err run_unit(void *context, int64_t number, bp_buffer *out, bool *stopped)
{
    scorer *self = context;
    score_windows *mine = &self->windows;
    bp_err err = score_all(self, number, out, stopped);

    if (err != BP_OK || *stopped)
        return err;
    int64_t scored = bp_score_unit_scored(mine->unit);

    if (mine->keys)
        out->bytes = (size_t)(scored * self->info.states.columns) * sizeof(float);
    bp_score_unit_pack(mine->unit, bp_score_keys_of(self->config)->tokens, out);
    if (mine->keys)
        bp_buffer_add(out, &scored, sizeof scored);
    return BP_OK;
}

static int64_t count_inputs(const void *context, int64_t number)
{
    (void)number; /* this unit is already loaded */
    return bp_score_unit_inputs(((const scorer *)context)->windows.unit);
}

static bp_err prepare(void *context)
{
    scorer *self = context;
    score_windows *mine = &self->windows;
    int64_t tokens = bp_score_batch_tokens(bp_score_piece_inputs(&self->rule));

    mine->values =
        bp_try_alloc("score.batch", self->statistics.count * tokens, sizeof(*mine->values));
    mine->inputs = bp_alloc("score.batch", self->leads ? 0 : tokens, sizeof(int32_t));
    mine->targets = bp_alloc("score.batch", self->leads ? 0 : tokens, sizeof(int32_t));
    if (self->info.reads_source && !self->leads) {
        mine->sources = bp_alloc("score.batch", tokens, sizeof(int32_t));
        mine->source_lengths = bp_alloc("score.batch", BP_SCORE_BATCH_TOKENS, sizeof(int32_t));
    }
    if (scorer_asks_keys(self))
        mine->keys =
            bp_try_alloc("score.states", tokens * self->info.states.columns, sizeof(*mine->keys));
    if (!mine->values || (scorer_asks_keys(self) && !mine->keys))
        return no_memory(tokens);
    return self->leads ? bp_score_unit_new(&mine->unit, &self->plan, self->statistics.count)
                       : BP_OK;
}

static void release(void *context)
{
    score_windows *mine = &((scorer *)context)->windows;

    bp_score_unit_free(&mine->unit);
    bp_free(mine->source_lengths);
    bp_free(mine->sources);
    bp_free(mine->targets);
    bp_free(mine->inputs);
    bp_free(mine->keys);
    bp_free(mine->values);
}

/* ---- files and figures ---- */

static json_t *describe_neighbours(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);

    return json_pack("{ss sI sI so so}", "datastore", self->datastore.hash, "entries",
                     (json_int_t)self->datastore.entries, "k", (json_int_t)keys->nearest,
                     "temperature", bp_json_real(keys->temperature), "weight",
                     bp_json_real(keys->weight));
}

/* Results of other sets from the same parts. */
static bp_err merge_others(scorer *self, bp_parts *parts)
{
    bp_err err = BP_OK;

    for (int k = -1; err == BP_OK && (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->merge_windows)
            err = self->sets[k]->merge_windows(self, parts);
    return err;
}

static bp_err merge(void *context, bp_parts *parts)
{
    scorer *self = context;
    bool tokens = bp_score_keys_of(self->config)->tokens, keyed = scorer_asks_keys(self);
    char *tokens_path = bp_path_join(self->folder, "tokens.h5");
    char *documents_path = bp_path_join(self->folder, "documents.h5");
    char *summary_path = bp_path_join(self->folder, "summary.json");
    bp_score_table table = {0};
    bp_err err = merge_others(self, parts);

    if (err == BP_OK)
        err = bp_score_table_init(&table, &self->plan, &self->statistics);
    table.seed = (uint64_t)bp_run_keys_of(self->config)->seed;
    table.helpers = &self->job->requests;
    table.clusters = self->clusters;
    if (err == BP_OK)
        err = bp_score_table_merge(&table, parts, keyed ? self->info.states.columns : 0,
                                   tokens ? tokens_path : NULL);
    if (err == BP_OK)
        err = bp_documents_write(&table, documents_path);
    for (int64_t k = 0; err == BP_OK && k < self->plan.files; k++)
        self->unscored += table.files[k].sums.unscored;
    if (err == BP_OK)
        err = bp_score_summarise(&self->summary, &table, &self->info);
    if (err == BP_OK) {
        scorer_record_clusters(self, self->summary,
                               json_integer_value(json_object_get(self->summary, "clusters")));
        bp_weights_record(self->summary, self->config);
        bp_training_text_record(self->summary, &self->known);
    }
    for (int k = -1; err == BP_OK && (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->summarise)
            self->sets[k]->summarise(self, self->summary);
    if (err == BP_OK && bp_score_keys_of(self->config)->neighbours)
        (void)json_object_set_new(self->summary, "neighbours", describe_neighbours(self));
    if (err == BP_OK)
        err = bp_json_save(summary_path, self->summary);
    if (err == BP_OK && self->page)
        score_page_write(self, &table);
    bp_score_table_clear(&table);
    bp_free(summary_path);
    bp_free(documents_path);
    bp_free(tokens_path);
    return err;
}

static bp_err help(void *context, const void *what)
{
    return bp_score_bootstrap_answer(((const scorer *)context)->mesh->world, what);
}

/* ---- the set ---- */

static const bp_work_units *units(scorer *self)
{
    const bp_score_plan *plan = &self->plan;

    self->windows.units = (bp_work_units){.parts = "parts",
                                          .key = self->key,
                                          .count = plan->units,
                                          .mesh_keys = "mesh.tensor, mesh.members",
                                          .again = "scored",
                                          .amount = (double)plan->inputs,
                                          .noun = "inputs",
                                          .speed = "tokens/s",
                                          .prepare = prepare,
                                          .run = run_unit,
                                          .answer = answer,
                                          .amount_of = count_inputs,
                                          .release = release,
                                          .merge = merge,
                                          .help = help};
    return &self->windows.units;
}

static void say(const scorer *self)
{
    bp_log("scoring %" PRId64 " documents in %" PRId64 " windows of up to %" PRId64
           " inputs (%s), %" PRId64 " inputs in %" PRId64 " work units",
           self->plan.scored, self->plan.windows,
           self->rule.context == BP_MODEL_UNLIMITED ? self->plan.longest : self->rule.context,
           bp_score_convention_name(self->rule.convention), self->plan.inputs, self->plan.units);
}

static bool is_asked(const scorer *self)
{
    return !bp_task_has_head(&self->info.task);
}

static bool keeps_tokens(const scorer *self)
{
    return bp_score_keys_of(self->config)->tokens;
}

const score_set score_windows_set = {
    .is_asked = is_asked,
    .files =
        (const score_file[]){
            {.name = "summary.json"}, {.name = "documents.h5"}, {"tokens.h5", keeps_tokens}, {0}},
    .units = units,
    .say = say,
    .report = scorer_report,
};
