#include "engine/stage.h"
#include "base/trace.h"

#include "base/beat.h"
#include "base/fault.h"

#include "engine/tree.h"
#include "math/kernels.h"

#include <string.h>

#define TAG_FORWARD  301
#define TAG_BACKWARD 302

static int64_t hidden_floats(const bp_stage_spec *spec, const bp_network *network)
{
    return spec->B * spec->T * network->C;
}

static size_t block_saved_bytes(const bp_stage_spec *spec, const bp_network *network, int k)
{
    const bp_block *block = network->blocks[k];

    return bp_arena_bytes((int64_t)block->ops->saved_bytes(block, spec->B, spec->T), 1);
}

static size_t largest_saved_bytes(const bp_stage_spec *spec, const bp_network *network)
{
    size_t most = 0;

    for (int k = 0; k < network->block_count; k++) {
        size_t bytes = block_saved_bytes(spec, network, k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Recompute: a block that keeps something keeps its input instead, and runs forward again before
 * backward. */
static size_t block_kept_bytes(const bp_stage_spec *spec, const bp_network *network, int k)
{
    size_t saved = block_saved_bytes(spec, network, k);

    if (!spec->recompute || saved == 0)
        return saved;
    return bp_arena_bytes(hidden_floats(spec, network), sizeof(float));
}

static size_t kept_bytes(const bp_stage_spec *spec, const bp_network *network)
{
    size_t bytes = 0;

    for (int k = 0; k < network->block_count; k++)
        bytes += block_kept_bytes(spec, network, k);
    return bytes;
}

static int gradient_count(const bp_stage_spec *spec)
{
    return spec->tree ? bp_tree_depth(spec->micro_batches) : 1;
}

bp_stage_bytes bp_stage_plan(const bp_stage_spec *spec, const bp_network *network)
{
    int64_t slots =
        bp_schedule_slots(spec->schedule, spec->stage, spec->stages, spec->micro_batches);
    bp_stage_bytes bytes;

    bytes.gradients = (size_t)gradient_count(spec) * (size_t)network->floats * sizeof(float);
    bytes.activations = (size_t)slots * kept_bytes(spec, network) +
                        4 * bp_arena_bytes(hidden_floats(spec, network), sizeof(float));
    if (spec->recompute)
        bytes.activations += largest_saved_bytes(spec, network);
    bytes.scratch = bp_network_scratch_bytes(network, spec->B, spec->T, true);
    size_t evaluation = bp_network_scratch_bytes(network, spec->B, spec->T, false);
    bytes.scratch = bytes.scratch > evaluation ? bytes.scratch : evaluation;
    return bytes;
}

static bp_err allocate(bp_stage *stage)
{
    const bp_stage_spec *spec = &stage->spec;
    bp_stage_bytes bytes = bp_stage_plan(spec, stage->network);

    stage->depth = gradient_count(spec);
    stage->slots =
        bp_schedule_slots(spec->schedule, spec->stage, spec->stages, spec->micro_batches);
    stage->stack = bp_alloc("stage", stage->depth, sizeof *stage->stack);
    stage->actions = bp_alloc("stage", 2 * spec->micro_batches, sizeof *stage->actions);
    stage->kept = bp_alloc("stage", stage->slots, sizeof *stage->kept);
    stage->memory = bp_alloc("activations", (int64_t)(bytes.activations + bytes.scratch), 1);
    bool short_of = !stage->stack || !stage->actions || !stage->kept || !stage->memory;
    for (int k = 0; !short_of && k < stage->depth; k++) {
        stage->stack[k] = bp_alloc("gradients", stage->network->floats, sizeof(float));
        short_of = !stage->stack[k];
    }
    if (short_of)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at %.1f MiB of activations and %.1f MiB of gradients; use "
                       "--plan to see what takes it, "
                       "then train.recompute=yes, train.reduction=running, a smaller "
                       "mesh.micro_batch or more ranks",
                       (double)(bytes.activations + bytes.scratch) / 1048576,
                       (double)bytes.gradients / 1048576);
    return BP_OK;
}

static void carve(bp_stage *stage)
{
    const bp_stage_spec *spec = &stage->spec;
    bp_stage_bytes bytes = bp_stage_plan(spec, stage->network);
    bp_arena arena = {.base = stage->memory, .size_bytes = bytes.activations + bytes.scratch};
    int64_t floats = hidden_floats(spec, stage->network);

    stage->hidden = bp_arena_take(&arena, floats, sizeof(float));
    stage->dhidden = bp_arena_take(&arena, floats, sizeof(float));
    stage->outgoing = bp_arena_take(&arena, floats, sizeof(float));
    stage->dfollowing = bp_arena_take(&arena, floats, sizeof(float));
    for (int64_t k = 0; k < stage->slots; k++)
        stage->kept[k] = bp_arena_take(&arena, (int64_t)kept_bytes(spec, stage->network), 1);
    if (spec->recompute)
        stage->again = bp_arena_take(&arena, (int64_t)largest_saved_bytes(spec, stage->network), 1);
    stage->scratch = (bp_arena){.base = arena.base + arena.used_bytes,
                                .size_bytes = arena.size_bytes - arena.used_bytes};
    stage->gradient = stage->stack[0];
}

bp_err bp_stage_new(bp_stage **out, const bp_mesh *mesh, bp_network *network,
                    const bp_stage_spec *spec)
{
    bp_stage *stage = bp_alloc("stage", 1, sizeof *stage);
    bp_err err;

    *out = NULL;
    if (!stage)
        return BP_FAIL(BP_ERR_SYSTEM, "memory is short: at the pipeline stage; use more ranks");
    stage->spec = *spec;
    stage->mesh = mesh;
    stage->network = network;
    err = allocate(stage);
    if (err != BP_OK) {
        bp_stage_free(&stage);
        return err;
    }
    carve(stage);
    bp_schedule_fill(stage->actions, spec->schedule, spec->stage, spec->stages,
                     spec->micro_batches);
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
    bp_free(self->stack);
    bp_free(self->actions);
    bp_free(self->kept);
    bp_free(self->memory);
    bp_free(self);
    *stage = NULL;
}

static bool is_first(const bp_stage *stage)
{
    return stage->spec.stage == 0;
}

static bool is_last(const bp_stage *stage)
{
    return stage->spec.stage == stage->spec.stages - 1;
}

static bp_packet packet_of(const bp_stage *stage, float *data)
{
    return (bp_packet){.count = 1,
                       .item = {{.name = "hidden", .columns = stage->network->C, .data = data}}};
}

static bp_pass pass_of(bp_stage *stage, const bp_stage_step *step, int64_t micro_batch)
{
    int64_t B = stage->spec.B, T = stage->spec.T;

    return (bp_pass){.B = B,
                     .T = T,
                     .inputs = step->inputs + micro_batch * B * T,
                     .targets = step->targets + micro_batch * B * T,
                     .training = true,
                     .dropout = true,
                     .step = step->step,
                     .first_slot = step->first_slot + micro_batch * B,
                     .loss_weight = step->loss_weight,
                     .scratch = &stage->scratch};
}

/* A send is started from a buffer of its own and waited for before the next in the same direction:
 * the neighbour has received the one before by then in both schedules, so that no two stages wait
 * for each other. */
static void send_hidden(bp_stage *stage, bp_transfer *transfer, float *buffer, const float *data,
                        int to, int tag)
{
    int64_t bytes = hidden_floats(&stage->spec, stage->network) * (int64_t)sizeof(float);

    bp_wait(transfer);
    bp_fault_point("pp.send");
    memcpy(buffer, data, (size_t)bytes);
    bp_send_start(transfer, buffer, bytes, to, tag, stage->mesh->pipeline);
}

static void recv_hidden(bp_stage *stage, float *data, int from, int tag)
{
    int64_t bytes = hidden_floats(&stage->spec, stage->network) * (int64_t)sizeof(float);

    bp_fault_point("pp.recv");
    bp_recv(data, bytes, from, tag, stage->mesh->pipeline);
}

/* Where block k's part lies in what is kept of a micro-batch. */
static char *kept_of_block(bp_stage *stage, int64_t micro_batch, int k)
{
    char *at = stage->kept[micro_batch % stage->slots];

    for (int j = 0; j < k; j++)
        at += block_kept_bytes(&stage->spec, stage->network, j);
    return at;
}

static bool runs_again(const bp_stage *stage, int k)
{
    return stage->spec.recompute && block_saved_bytes(&stage->spec, stage->network, k) > 0;
}

static void run_forward(bp_stage *stage, const bp_stage_step *step, int64_t micro_batch)
{
    size_t bytes = (size_t)hidden_floats(&stage->spec, stage->network) * sizeof(float);
    bp_pass pass = pass_of(stage, step, micro_batch);
    bp_packet packet = packet_of(stage, stage->hidden);

    BP_TRACE(BP_TRACE_PASS_FORWARD, 0, 0);
    bp_trace_number(micro_batch);
    bp_beat_progress();
    if (!is_first(stage))
        recv_hidden(stage, stage->hidden, stage->spec.stage - 1, TAG_FORWARD);
    for (int k = 0; k < stage->network->block_count; k++) {
        if (k == stage->network->block_count / 2)
            bp_fault_point("fwd.mid");
        bp_block *block = stage->network->blocks[k];
        char *kept = kept_of_block(stage, micro_batch, k);

        if (step->needs)
            step->needs(step->context, k);
        if (runs_again(stage, k)) {
            memcpy(kept, stage->hidden, bytes);
            kept = stage->again;
        }
        block->ops->forward(block, &pass, &packet, kept);
    }
    if (!is_last(stage))
        send_hidden(stage, &stage->sending, stage->outgoing, stage->hidden, stage->spec.stage + 1,
                    TAG_FORWARD);
}

static void block_backward(bp_stage *stage, bp_pass *pass, bp_packet *gradients,
                           int64_t micro_batch, int k)
{
    bp_block *block = stage->network->blocks[k];
    char *kept = kept_of_block(stage, micro_batch, k);

    if (runs_again(stage, k)) {
        bp_packet packet = packet_of(stage, stage->hidden);
        memcpy(stage->hidden, kept,
               (size_t)hidden_floats(&stage->spec, stage->network) * sizeof(float));
        block->ops->forward(block, pass, &packet, stage->again);
        kept = stage->again;
    }
    block->ops->backward(block, pass, gradients, kept);
}

/* Backward of block k is over: adds up, for the groups that no other block adds to, the partial
 * sums that this leaf of the tree completes. */
static void close_leaf(bp_stage *stage, const bp_stage_step *step, int64_t micro_batch, int k)
{
    bool is_last_leaf = micro_batch == stage->spec.micro_batches - 1;
    int merges = stage->spec.tree ? bp_tree_merges(micro_batch, stage->spec.micro_batches) : 0;

    for (int g = stage->network->group_count - 1; g >= 0; g--) {
        const bp_group *group = &stage->network->groups[g];

        if (group->block != k)
            continue;
        for (int m = 0; m < merges; m++)
            bp_add(stage->stack[stage->top - 1 - m] + group->place,
                   stage->stack[stage->top - m] + group->place, group->padded);
        if (is_last_leaf && step->is_whole)
            step->is_whole(step->context, g);
    }
}

static double run_backward(bp_stage *stage, const bp_stage_step *step, int64_t micro_batch)
{
    bp_pass pass = pass_of(stage, step, micro_batch);
    bp_packet gradients = packet_of(stage, stage->dhidden);

    BP_TRACE(BP_TRACE_PASS_BACKWARD, 0, 0);
    bp_trace_number(micro_batch);
    bp_beat_progress();
    if (!is_last(stage))
        recv_hidden(stage, stage->dhidden, stage->spec.stage + 1, TAG_BACKWARD);
    for (int k = stage->network->block_count - 1; k >= 0; k--) {
        block_backward(stage, &pass, &gradients, micro_batch, k);
        if (k == stage->network->block_count / 2)
            bp_fault_point("bwd.mid");
        close_leaf(stage, step, micro_batch, k);
    }
    if (!is_first(stage))
        send_hidden(stage, &stage->sending_back, stage->dfollowing, stage->dhidden,
                    stage->spec.stage - 1, TAG_BACKWARD);
    return pass.loss_sum;
}

/* A new leaf on the stack of partial sums; in a running sum all leaves are one. */
static void open_leaf(bp_stage *stage, int64_t micro_batch)
{
    float *leaf = stage->stack[stage->spec.tree ? stage->top : 0];

    if (stage->spec.tree || micro_batch == 0)
        bp_zero(leaf, stage->network->floats);
    bp_network_bind_gradients(stage->network, leaf);
}

void bp_stage_accumulate(bp_stage *stage, const bp_stage_step *step, double *loss_sums)
{
    stage->top = 0;
    for (int64_t k = 0; k < 2 * stage->spec.micro_batches; k++) {
        int64_t micro_batch = stage->actions[k].micro_batch;

        if (!stage->actions[k].backward) {
            run_forward(stage, step, micro_batch);
            continue;
        }
        open_leaf(stage, micro_batch);
        loss_sums[micro_batch] = run_backward(stage, step, micro_batch);
        if (stage->spec.tree)
            stage->top += 1 - bp_tree_merges(micro_batch, stage->spec.micro_batches);
    }
    bp_wait(&stage->sending);
    bp_wait(&stage->sending_back);
}

void bp_stage_evaluate(bp_stage *stage, const int32_t *inputs, const int32_t *targets, int64_t B,
                       int64_t T, double *loss_sum, int64_t *loss_count)
{
    const bp_mesh *mesh = stage->mesh;
    int64_t bytes = B * T * stage->network->C * (int64_t)sizeof(float);
    bp_packet packet = packet_of(stage, stage->hidden);
    bp_pass pass = {
        .B = B, .T = T, .inputs = inputs, .targets = targets, .scratch = &stage->scratch};

    if (!is_first(stage))
        bp_recv(stage->hidden, bytes, stage->spec.stage - 1, TAG_FORWARD, mesh->pipeline);
    for (int k = 0; k < stage->network->block_count; k++) {
        bp_block *block = stage->network->blocks[k];
        block->ops->forward(block, &pass, &packet, NULL);
    }
    if (!is_last(stage))
        bp_send(stage->hidden, bytes, stage->spec.stage + 1, TAG_FORWARD, mesh->pipeline);
    *loss_sum = pass.loss_sum;
    *loss_count = pass.loss_count;
}
