/* The memory of scoring on each rank, from manifests only. Called by score.c before the model is
 * opened. */
#include "infer/score/memory.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "infer/neighbours/datastore.h"
#include "infer/score/boundaries.h"
#include "infer/score/keys.h"
#include "infer/score/sets.h"
#include "infer/score/unit.h"
#include "models/open.h"

/* Inputs of a window computed at once: by the requested context, else by the smallest of the
 * models' contexts. */
static int64_t find_inputs(const bp_work_models *models)
{
    int64_t least = BP_MODEL_UNLIMITED, asked = bp_score_rule_keys_of(models->config)->context;

    for (int64_t k = 0; k < models->count; k++) {
        int64_t context = bp_model_state_context(models->states[k]);

        least = context < least ? context : least;
    }
    bool unlimited = least == BP_MODEL_UNLIMITED;
    if (asked > 0)
        least = asked;
    if (unlimited && least > BP_SCORE_PIECE_INPUTS)
        least = BP_SCORE_PIECE_INPUTS;
    return bp_max(least, 1);
}

/* Bytes of a datastore, by the size of its file; 0 for a job without one. */
static int64_t neighbours_bytes(const bp_work_models *models, const bp_model_memory *model,
                                const bp_model_task *task)
{
    const bp_score_keys *keys = bp_score_keys_of(models->config);
    int64_t bytes = keys && keys->neighbours ? bp_file_size(keys->neighbours) : 0;

    return bytes <= 0 || model->width <= 0
               ? 0
               : bp_datastore_bytes(bytes, model->width, task->mesh->tensor * task->mesh->pipeline,
                                    keys->neighbours_memory, task->windows * task->length,
                                    keys->nearest);
}

/* Distributions of score.boundaries and score.entropy; 0 for a job without them. */
static int64_t boundaries_bytes(const bp_work_models *models, const bp_model_memory *model,
                                const bp_model_task *task)
{
    const bp_score_keys *keys = bp_score_keys_of(models->config);

    return !keys || (!keys->boundaries && !keys->entropy) || model->vocab_size <= 0
               ? 0
               : bp_boundaries_bytes(model->vocab_size, task->windows, task->length,
                                     bp_score_rule_keys_of(models->config)->memory);
}

/* Statistics of a token, as bp_model_info.statistics. */
static int64_t count_statistics(const bp_score_memory_spec *spec, const bp_work_models *models)
{
    const bp_model_info info = {.sets = spec->method && spec->method->sets,
                                .tempered = spec->method && spec->method->temperature > 0};
    const bp_score_keys *keys = bp_score_keys_of(models->config);

    return models->ensemble ? bp_model_first_member(&info) + models->members
           : keys           ? 1 + (keys->neighbours != NULL) + keys->boundaries + keys->entropy
                            : 1;
}

/* bp_work_memory.rank: any rank that computes may lead, and the coordinator writes states. */
static bp_err estimate_rank(const void *context, const bp_work_models *models,
                            const bp_work_place *place, bp_rank_memory *out)
{
    const bp_score_memory_spec *spec = context;
    const bp_mesh_shape *mesh = place->mesh;
    const bp_member_sampler *sampler = spec->method ? spec->method->sampler : NULL;
    int64_t inputs = find_inputs(models), statistics = count_statistics(spec, models);
    int64_t memory = bp_score_rule_keys_of(models->config)->memory;
    bp_model_task task = {.mesh = mesh,
                          .stage = place->stage,
                          .windows = bp_score_batch_windows(inputs),
                          .length = inputs};
    bool last = place->stage == mesh->pipeline - 1;
    bp_work_model_bytes bytes;

    out->own_bytes += scorer_sets_bytes(models, inputs);
    if (!place->computes)
        return BP_OK;
    bp_err err = bp_work_model_bytes_of(&bytes, models, &task, place->member);
    if (err != BP_OK)
        return err;
    out->node_bytes += bytes.node;
    out->own_bytes += spec->more_bytes + bytes.weights + bytes.work +
                      (int64_t)bp_score_unit_bytes(inputs, statistics) +
                      neighbours_bytes(models, &bytes.widest, &task) +
                      boundaries_bytes(models, &bytes.widest, &task);
    if (last && sampler && sampler->ops->bytes)
        out->own_bytes += sampler->ops->bytes(sampler, &bytes.widest, mesh);
    if (last && models->ensemble)
        out->own_bytes +=
            bp_ensemble_work_bytes(&bytes.widest, mesh, models->members, task.windows * task.length,
                                   memory, spec->method && spec->method->sets);
    return BP_OK;
}

static void describe(const bp_score_memory_spec *spec, bp_work_memory *out)
{
    const bp_ensemble_spec *method = spec->method;
    const bp_member_sampler *sampler = method ? method->sampler : NULL;

    out->model = method ? method->path : bp_score_keys_of(spec->config)->model;
    out->mixed = method != NULL;
    out->drawn = sampler ? sampler->count : 0;
    out->apart = sampler && sampler->ops->kind == BP_MEMBER_WEIGHTS;
    out->remedy = "use a smaller model";
    out->rank = estimate_rank;
    out->context = spec;
}

bp_err scorer_describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    scorer *self = context;
    bp_err err = BP_OK;

    (void)world;
    if (self->method)
        err = bp_config_set(self->config, "score.model", self->method->path);
    self->memory = bp_alloc("score.memory", 1, sizeof *self->memory);
    *self->memory = (bp_score_memory_spec){.config = self->config, .method = self->method};
    describe(self->memory, out);
    return err;
}

bp_err bp_score_memory_check(MPI_Comm world, const bp_mesh_shape *shape,
                             const bp_score_memory_spec *spec)
{
    bp_work_memory memory = {.config = spec->config,
                             .plan = spec->plan,
                             .process_bytes = (int64_t)bp_mem_resident_peak_bytes()};

    describe(spec, &memory);
    return bp_work_memory_check(world, shape, &memory, NULL);
}
