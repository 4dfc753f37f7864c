/* The memory of a pipeline stage: planned from the sizes that its blocks report, allocated once,
 * and divided. Called by plan.c, which only plans, and by engine.c. */
#include "train/engine/stage_priv.h"

#include "train/engine/tree.h"

/* Ranks that hold several chunks have a network of several runs of blocks. */
static bp_pipeline pipeline_of(const bp_stage_spec *spec, const bp_network *network)
{
    return (bp_pipeline){.schedule = spec->schedule,
                         .stages = spec->stages,
                         .chunks = network->chunk_count,
                         .micro_batches = spec->micro_batches};
}

/* The most floats between two blocks: in training this rank's part, and the whole. */
static int64_t between_floats(const bp_stage_spec *spec, const bp_network *network, bool training)
{
    bp_pass pass = {.extent = spec->most, .B = spec->most.B, .training = training};

    return bp_network_activation_floats(network, &pass);
}

int64_t stage_evaluation_floats(const bp_stage_spec *spec, const bp_network *network)
{
    int64_t floats = between_floats(spec, network, false);

    return between_floats(spec, network, true) < floats ? floats : 0;
}

int64_t stage_given_floats(const bp_stage_spec *spec, const bp_network *network, int k)
{
    bp_pass pass = {.extent = spec->most, .B = spec->most.B, .training = true};

    return bp_activations_floats(bp_network_before(network, k), &network->nn, &pass, false);
}

static int gradient_count(const bp_stage_spec *spec)
{
    return spec->tree ? bp_tree_depth(spec->micro_batches) : 1;
}

size_t stage_saved_bytes(const bp_stage_spec *spec, const bp_network *network, int k)
{
    const bp_block *block = network->blocks[k];

    return bp_arena_bytes((int64_t)block->ops->saved_bytes(block, &spec->most), 1);
}

static size_t largest_saved_bytes(const bp_stage_spec *spec, const bp_network *network)
{
    size_t most = 0;

    for (int k = 0; k < network->block_count; k++) {
        size_t bytes = stage_saved_bytes(spec, network, k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t stage_kept_bytes(const bp_stage_spec *spec, const bp_network *network, int k)
{
    size_t saved = stage_saved_bytes(spec, network, k);

    if (!spec->recompute || saved == 0)
        return saved;
    return bp_arena_bytes(stage_given_floats(spec, network, k), sizeof(float));
}

static size_t kept_bytes(const bp_stage_spec *spec, const bp_network *network, int chunk)
{
    size_t bytes = 0;

    for (int k = bp_network_chunk_first(network, chunk); k < network->chunk_end[chunk]; k++)
        bytes += stage_kept_bytes(spec, network, k);
    return bytes;
}

static bool has_table_of_head(const bp_group *group)
{
    for (int k = 0; k < group->count; k++)
        if (group->params[k].of_head)
            return true;
    return false;
}

/* Floats of a group of which each tensor rank has the same number: where ranks have equal shares,
 * or whole copies. Padding is excluded, so that the result does not depend on the number of data
 * ranks: products over rows in this memory depend on it. */
static int64_t floats_of_each(const bp_group *group, int tensor_ranks)
{
    int64_t floats = 0;

    if (tensor_ranks == 1 || group->replicated)
        return group->floats;
    for (int k = 0; k < group->count; k++) {
        const bp_param *param = &group->params[k];
        int64_t all = param->dims == 1 ? param->shape[0] : param->shape[0] * param->shape[1];

        floats += bp_param_floats(param) * tensor_ranks == all ? all / tensor_ranks : 0;
    }
    return floats;
}

static stage_lent longer(const stage_lent *run, const bp_group *group, int tensor_ranks)
{
    return (stage_lent){run->floats > 0 ? run->first : group->place, run->floats + group->padded,
                        run->lent + floats_of_each(group, tensor_ranks)};
}

stage_lent stage_find_lent(const bp_stage_spec *spec, const bp_network *network)
{
    int last = network->block_count - 1,
        begin = bp_network_chunk_first(network, network->chunk_count - 1);
    bool has_table = false;
    stage_lent run = {0}, most = {0};

    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];
        bool is_here = group->block >= begin && !group->frozen;

        has_table = has_table || (is_here && has_table_of_head(group));
        if ((group->frozen && !group->searched) || group->sources > 0)
            continue; /* experts' are after all others */
        if (!is_here || group->searched || group->block == last || has_table_of_head(group))
            run = (stage_lent){0};
        else
            run = longer(&run, group, network->nn.tensor_ranks);
        most = run.lent > most.lent ? run : most;
    }
    if (!has_table || (!spec->tree && spec->micro_batches > 1))
        return (stage_lent){0};
    return most;
}

bp_extent bp_stage_most(const bp_stage_spec *spec, const bp_network *network)
{
    bp_extent most = spec->most;

    most.lent_bytes = (size_t)stage_find_lent(spec, network).lent * sizeof(float);
    return most;
}

bp_stage_bytes bp_stage_plan(const bp_stage_spec *spec, const bp_network *network)
{
    bp_extent most = bp_stage_most(spec, network);
    bp_pipeline pipeline = pipeline_of(spec, network);
    bp_stage_bytes bytes;

    bytes.gradients = (size_t)gradient_count(spec) * (spec->squares ? 2 : 1) *
                      (size_t)network->gradient_floats * sizeof(float);
    bytes.activations = 2 * (size_t)bp_pipeline_comm_buffers(&pipeline) *
                        bp_arena_bytes(between_floats(spec, network, true), sizeof(float));
    for (int c = 0; c < pipeline.chunks; c++)
        bytes.activations +=
            (size_t)bp_schedule_slots(&pipeline, spec->stage, c) * kept_bytes(spec, network, c);
    if (spec->recompute)
        bytes.activations += largest_saved_bytes(spec, network);
    bytes.scratch = bp_network_scratch_bytes(network, &most, true);
    size_t evaluation = bp_network_scratch_bytes(network, &spec->most, false) +
                        bp_arena_bytes(stage_evaluation_floats(spec, network), sizeof(float));
    bytes.scratch = bytes.scratch > evaluation ? bytes.scratch : evaluation;
    return bytes;
}

static bp_err allocate(bp_stage *stage)
{
    const bp_stage_spec *spec = &stage->spec;
    bp_stage_bytes bytes = bp_stage_plan(spec, stage->network);
    const bp_pipeline *pipeline = &stage->schedule.pipeline;

    stage->depth = gradient_count(spec);
    stage->stack = bp_alloc("stage", stage->depth, sizeof *stage->stack);
    if (spec->squares)
        stage->squares = bp_alloc("stage", stage->depth, sizeof *stage->squares);
    stage->actions = bp_alloc("stage", bp_schedule_actions(pipeline), sizeof *stage->actions);
    stage->chunks = bp_alloc("stage", pipeline->chunks, sizeof *stage->chunks);
    stage->messages = bp_alloc("stage", pipeline->chunks, sizeof *stage->messages);
    stage->memory = bp_try_alloc("activations", (int64_t)(bytes.activations + bytes.scratch), 1);
    bool short_of = !stage->memory;
    for (int k = 0; !short_of && k < stage->depth; k++) {
        stage->stack[k] = bp_try_alloc("gradients", stage->network->gradient_floats, sizeof(float));
        short_of = !stage->stack[k];
        if (spec->squares && !short_of)
            short_of = !(stage->squares[k] = bp_try_alloc(
                             "gradients", stage->network->gradient_floats, sizeof(float)));
    }
    if (short_of)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %.1f MiB of activations and %.1f MiB of gradients; use "
                       "--plan to see what takes it, "
                       "then train.recompute=yes, train.reduction=running, a smaller "
                       "mesh.micro_batch or more ranks",
                       (double)(bytes.activations + bytes.scratch) / 1048576,
                       (double)bytes.gradients / 1048576);
    return BP_OK;
}

static void alloc(bp_stage *stage)
{
    const bp_stage_spec *spec = &stage->spec;
    bp_stage_bytes bytes = bp_stage_plan(spec, stage->network);
    bp_arena arena = {.base = stage->memory, .size_bytes = bytes.activations + bytes.scratch};

    bp_pipeline_comm_init(&stage->forward, &stage->schedule, false, &arena);
    bp_pipeline_comm_init(&stage->backward, &stage->schedule, true, &arena);
    for (int c = 0; c < stage->schedule.pipeline.chunks; c++) {
        bp_stage_chunk *chunk = &stage->chunks[c];

        chunk->first = bp_network_chunk_first(stage->network, c);
        chunk->end = stage->network->chunk_end[c];
        chunk->slots = bp_schedule_slots(&stage->schedule.pipeline, spec->stage, c);
        chunk->slot_bytes = kept_bytes(spec, stage->network, c);
        chunk->kept = bp_arena_take(&arena, chunk->slots * (int64_t)chunk->slot_bytes, 1);
    }
    if (spec->recompute)
        stage->again = bp_arena_take(&arena, (int64_t)largest_saved_bytes(spec, stage->network), 1);
    stage->scratch = (bp_arena){.base = arena.base + arena.used_bytes,
                                .size_bytes = arena.size_bytes - arena.used_bytes};
    stage->gradient = stage->stack[0];
}

void bp_stage_messages(bp_chunk_messages *messages, const bp_stage_spec *spec,
                       const bp_network *network)
{
    bp_pass pass = {.extent = spec->most, .B = spec->most.B, .training = true};

    for (int c = 0; c < network->chunk_count; c++) {
        const bp_activations *input = &network->inputs[c],
                             *output = &network->outputs[network->chunk_end[c] - 1];

        messages[c] = (bp_chunk_messages){
            .input = bp_activations_floats(input, &network->nn, &pass, false),
            .output = bp_activations_floats(output, &network->nn, &pass, false),
            .input_gradient = bp_activations_floats(input, &network->nn, &pass, true),
            .output_gradient = bp_activations_floats(output, &network->nn, &pass, true)};
    }
}

bp_err bp_stage_new(bp_stage **out, const bp_mesh *mesh, bp_network *network,
                    const bp_stage_spec *spec)
{
    bp_stage *stage = bp_alloc("stage", 1, sizeof *stage);
    bp_err err;

    *out = NULL;
    stage->spec = *spec;
    stage->mesh = mesh;
    stage->network = network;
    stage->schedule = (bp_stage_schedule){.pipeline = pipeline_of(spec, network),
                                          .stage = spec->stage,
                                          .comm = mesh->pipeline,
                                          .floats = between_floats(spec, network, true)};
    err = allocate(stage);
    if (err != BP_OK) {
        bp_stage_free(&stage);
        return err;
    }
    bp_stage_messages(stage->messages, spec, network);
    stage->schedule.messages = stage->messages;
    alloc(stage);
    bp_schedule_fill(stage->actions, &stage->schedule.pipeline, spec->stage);
    stage->schedule.actions = stage->actions;
    *out = stage;
    return BP_OK;
}

void bp_stage_free(bp_stage **stage)
{
    bp_stage *self = *stage;

    if (!self)
        return;
    for (int k = 0; self->stack && k < self->depth; k++)
        bp_free(self->stack[k]);
    for (int k = 0; self->squares && k < self->depth; k++)
        bp_free(self->squares[k]);
    bp_free(self->stack);
    bp_free(self->squares);
    bp_free(self->actions);
    bp_free(self->chunks);
    bp_free(self->messages);
    bp_free(self->memory);
    bp_free(self);
    *stage = NULL;
}
