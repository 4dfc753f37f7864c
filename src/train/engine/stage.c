/* A pipeline stage: runs its blocks forward and backward in the order of its schedule. Called by
 * engine.c; its memory is laid out by stage_memory.c. */
#include "train/engine/stage_priv.h"

#include "base/bounds.h"
#include "base/fault.h"
#include "base/trace.h"

#include "math/kernels/kernels.h"
#include "train/engine/tree.h"

#include <string.h>

#define TAG_EVALUATE 303

/* Calls MPI between blocks: some networks move messages only inside MPI calls. */
static void move_messages(const bp_stage *stage)
{
    if (stage->schedule.pipeline.stages > 1)
        bp_transfers_move(stage->schedule.comm);
}

/* What block k works on, at `data`. */
static bp_activations activations_at(const bp_stage *stage, int k, const bp_pass *pass, float *data,
                                     bool gradients)
{
    bp_activations activations = *bp_network_at(stage->network, k);

    bp_activations_lay(&activations, &stage->network->nn, pass, data, gradients);
    return activations;
}

static bp_pass pass_of(bp_stage *stage, const bp_stage_step *step, int64_t micro_batch)
{
    int64_t B = stage->spec.most.B;
    bp_batch batch = bp_batch_part(step->batch, micro_batch * B, B);
    bp_pass pass = bp_pass_over(&batch);

    pass.training = pass.dropout = true;
    pass.step = step->step;
    pass.restart = stage->spec.restart;
    pass.second_text = step->second_text;
    pass.first_slot = step->first_slot + micro_batch * B;
    for (int s = 0; s < BP_STREAMS; s++)
        pass.slot_T[s] = step->batch->stream[s].T;
    pass.scratch = &stage->scratch;
    pass.teacher = stage->teacher;
    pass.states_weight = step->states_weight;
    pass.balance_weight = step->balance_weight;
    pass.expert_loads = step->expert_loads;
    memcpy(pass.loss_weight, step->loss_weight, sizeof pass.loss_weight);
    return pass;
}

/* Where block k's part of a micro-batch's kept memory begins. */
static char *kept_of_block(bp_stage *stage, const bp_action *action, int k)
{
    const bp_stage_chunk *chunk = &stage->chunks[action->chunk];
    char *at = chunk->kept + (size_t)(action->micro_batch % chunk->slots) * chunk->slot_bytes;

    for (int j = chunk->first; j < k; j++)
        at += stage_kept_bytes(&stage->spec, stage->network, j);
    return at;
}

static bool runs_again(const bp_stage *stage, int k)
{
    return stage->spec.recompute && stage_saved_bytes(&stage->spec, stage->network, k) > 0;
}

/* Memory for what block k saves until its backward pass, which others had before. */
static char *again_of(bp_stage *stage, int k)
{
    bp_bounds_set(stage->again, stage_saved_bytes(&stage->spec, stage->network, k), 0);
    return stage->again;
}

static size_t given_bytes(const bp_stage *stage, int k)
{
    return (size_t)stage_given_floats(&stage->spec, stage->network, k) * sizeof(float);
}

/* For a timeline. */
static void name_pass(const bp_stage *stage, const bp_action *action)
{
    bp_trace_number(action->micro_batch);
    if (stage->schedule.pipeline.chunks > 1)
        bp_trace_chunk(action->chunk);
}

static void run_forward(bp_stage *stage, const bp_stage_step *step, const bp_action *action)
{
    const bp_stage_chunk *chunk = &stage->chunks[action->chunk];
    bp_pass pass = pass_of(stage, step, action->micro_batch);

    BP_TRACE(BP_TRACE_PASS_FORWARD, 0, 0);
    name_pass(stage, action);
    bp_pipeline_comm_take(&stage->forward, action);
    for (int k = chunk->first; k < chunk->end; k++) {
        bp_activations activations = activations_at(stage, k, &pass, stage->forward.work, false);

        if (k == (chunk->first + chunk->end) / 2)
            bp_fault_point("fwd.mid");
        bp_block *block = stage->network->blocks[k];
        char *kept = kept_of_block(stage, action, k);

        if (step->needs)
            step->needs(step->context, k);
        if (runs_again(stage, k)) {
            memcpy(kept, stage->forward.work, given_bytes(stage, k));
            kept = again_of(stage, k);
        }
        bp_block_forward(block, &pass, &activations, kept);
        move_messages(stage);
    }
    bp_pipeline_comm_send(&stage->forward, action);
}

static void block_backward(bp_stage *stage, bp_pass *pass, const bp_action *action, int k)
{
    bp_block *block = stage->network->blocks[k];
    bp_activations gradients = activations_at(stage, k, pass, stage->backward.work, true);
    char *kept = kept_of_block(stage, action, k);

    if (runs_again(stage, k)) {
        bp_activations activations = activations_at(stage, k, pass, stage->forward.work,
                                                    false); /* free until the next forward */
        memcpy(stage->forward.work, kept, given_bytes(stage, k));
        kept = again_of(stage, k);
        bp_block_forward(block, pass, &activations, kept);
    }
    bp_block_backward(block, pass, &gradients, kept);
}

/* Runs the last block backward; its workspace is the memory of gradients that earlier blocks write
 * later. */
static void last_block_backward(bp_stage *stage, bp_pass *pass, const bp_action *action,
                                float *leaf)
{
    bp_network *network = stage->network;
    stage_lent lent = stage_find_lent(&stage->spec, network);

    pass->lent = (bp_arena){.base = (char *)(leaf + lent.first),
                            .size_bytes = (size_t)lent.lent * sizeof(float)};
    block_backward(stage, pass, action, network->block_count - 1);
    bp_bounds_set(pass->lent.base, pass->lent.size_bytes, 0);
    pass->lent = (bp_arena){0};
    for (int g = 0; g < network->group_count; g++)
        if (!network->groups[g].frozen && network->groups[g].place >= lent.first &&
            network->groups[g].place < lent.first + lent.floats)
            bp_group_open_gradients(&network->groups[g], leaf);
}

static float *leaf_of(const bp_stage *stage, const bp_action *action)
{
    return stage->stack[stage->spec.tree ? stage->chunks[action->chunk].top : 0];
}

/* Opens a new leaf on a chunk's stack of partial sums; a running sum has a single leaf. */
static void open_leaf(bp_stage *stage, const bp_action *action)
{
    const bp_stage_chunk *chunk = &stage->chunks[action->chunk];
    float *leaf = leaf_of(stage, action);

    for (int g = 0; g < stage->network->group_count; g++) {
        bp_group *group = &stage->network->groups[g];

        if (group->block < chunk->first || group->block >= chunk->end)
            continue;
        bp_group_bind_gradients(group, leaf);
        if (stage->spec.tree || action->micro_batch == 0)
            bp_group_open_gradients(group, leaf);
    }
}

/* Squares of a leaf, before it is added to others. */
static void square(float *y, const float *x, int64_t n)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * x[i];
}

/* Adds the partial sums of a group that this many merges complete; for experts, by source. */
static void merge(float *const *stack, int top, int merges, const bp_group *group)
{
    for (int s = 0; s < bp_group_sums(group); s++) {
        int64_t at = group->place + s * group->source_floats;

        for (int m = 0; m < merges; m++)
            bp_add(stack[top - 1 - m] + at, stack[top - m] + at, group->padded);
    }
}

/* After backward of block k: adds up the partial sums that this leaf of the tree completes, for
 * groups to which no later block adds. */
static void close_leaf(bp_stage *stage, const bp_stage_step *step, const bp_action *action, int k)
{
    bool is_last_leaf = action->micro_batch == stage->spec.micro_batches - 1;
    int top = stage->chunks[action->chunk].top, merges = 0;

    if (stage->spec.tree)
        merges = bp_tree_merges(action->micro_batch, stage->spec.micro_batches);
    for (int g = stage->network->group_count - 1; g >= 0; g--) {
        const bp_group *group = &stage->network->groups[g];

        if (group->block != k)
            continue;
        BP_ASSERT(bp_group_is_written(group));
        if (stage->squares && !group->frozen) {
            square(stage->squares[top] + group->place, stage->stack[top] + group->place,
                   group->padded);
            merge(stage->squares, top, merges, group);
        }
        if (!group->frozen)
            merge(stage->stack, top, merges, group);
        if (is_last_leaf && step->is_whole)
            step->is_whole(step->context, g);
    }
}

/* Zeroes the gradients of the activations after the model's last block, before it runs backward.
 * That block writes one of them; the blocks that then run backward add to the others. */
static void clear_gradients(bp_stage *stage, const bp_pass *pass, int last)
{
    const bp_network *network = stage->network;
    const bp_activations *at = bp_network_at(network, last);

    if (network->outputs[last].count == 0 && at->count > 1)
        bp_zero(stage->backward.work, bp_activations_floats(at, &network->nn, pass, true));
}

/* A stage that others wait for sends first, and adds up after that: else the additions of all
 * stages would follow one another. */
static bp_pass run_backward(bp_stage *stage, const bp_stage_step *step, const bp_action *action)
{
    bp_stage_chunk *chunk = &stage->chunks[action->chunk];
    bp_pass pass = pass_of(stage, step, action->micro_batch);
    bool sends = bp_action_sends(&stage->schedule.pipeline, stage->spec.stage, action);

    BP_TRACE(BP_TRACE_PASS_BACKWARD, 0, 0);
    name_pass(stage, action);
    open_leaf(stage, action);
    bp_pipeline_comm_take(&stage->backward, action);
    clear_gradients(stage, &pass, chunk->end - 1);
    for (int k = chunk->end - 1; k >= chunk->first; k--) {
        if (k == stage->network->block_count - 1)
            last_block_backward(stage, &pass, action, leaf_of(stage, action));
        else
            block_backward(stage, &pass, action, k);
        move_messages(stage);
        if (k == (chunk->first + chunk->end) / 2)
            bp_fault_point("bwd.mid");
        if (!sends)
            close_leaf(stage, step, action, k);
    }
    bp_pipeline_comm_send(&stage->backward, action);
    for (int k = chunk->end - 1; k >= chunk->first && sends; k--) {
        close_leaf(stage, step, action, k);
        move_messages(stage);
    }
    if (stage->spec.tree)
        chunk->top += 1 - bp_tree_merges(action->micro_batch, stage->spec.micro_batches);
    return pass;
}

/* Adds the losses of a micro-batch's backward pass through a chunk; chunks without a term's head
 * add 0. */
static void add_losses(bp_stage *stage, const bp_stage_step *step, const bp_action *action,
                       double *sums, int64_t stride)
{
    bp_pass pass = run_backward(stage, step, action);
    bool first = action->chunk == stage->schedule.pipeline.chunks - 1;

    for (int t = 0; t < BP_TERMS; t++)
        if (pass.batch.term[t].count > 0)
            sums[t * stride] = (first ? 0 : sums[t * stride]) + pass.loss_sum[t];
    if (step->states_sums)
        step->states_sums[action->micro_batch] =
            (first ? 0 : step->states_sums[action->micro_batch]) + pass.states_loss;
    if (step->balance_sums)
        step->balance_sums[action->micro_batch] =
            (first ? 0 : step->balance_sums[action->micro_batch]) + pass.balance_loss;
}

void bp_stage_accumulate(bp_stage *stage, const bp_stage_step *step, double *loss_sums,
                         int64_t stride)
{
    int chunks = stage->schedule.pipeline.chunks;

    for (int c = 0; c < chunks; c++)
        stage->chunks[c].top = 0;
    bp_pipeline_comm_begin(&stage->forward);
    bp_pipeline_comm_begin(&stage->backward);
    for (int64_t k = 0; k < bp_schedule_actions(&stage->schedule.pipeline); k++) {
        const bp_action *action = &stage->actions[k];

        if (!action->backward) {
            run_forward(stage, step, action);
            continue;
        }
        add_losses(stage, step, action, loss_sums + action->micro_batch, stride);
    }
    bp_pipeline_comm_end(&stage->forward);
    bp_pipeline_comm_end(&stage->backward);
}

/* Evaluates one chunk: waits for its input and sends its result at once. */
static void evaluate_chunk(bp_stage *stage, bp_pass *pass, float *data, const bp_action *action)
{
    const bp_stage_chunk *chunk = &stage->chunks[action->chunk];
    const bp_pipeline *pipeline = &stage->schedule.pipeline;
    const bp_network *network = stage->network;
    int at = stage->spec.stage, stages = pipeline->stages;
    int64_t input =
                bp_activations_floats(&network->inputs[action->chunk], &network->nn, pass, false),
            output =
                bp_activations_floats(&network->outputs[chunk->end - 1], &network->nn, pass, false);

    if (bp_action_receives(pipeline, at, action))
        bp_recv(data, input * (int64_t)sizeof(float), (at + stages - 1) % stages, TAG_EVALUATE,
                stage->schedule.comm);
    for (int k = chunk->first; k < chunk->end; k++) {
        bp_activations activations = activations_at(stage, k, pass, data, false);

        bp_block_forward(network->blocks[k], pass, &activations, NULL);
    }
    if (bp_action_sends(pipeline, at, action))
        bp_send(data, output * (int64_t)sizeof(float), (at + 1) % stages, TAG_EVALUATE,
                stage->schedule.comm);
}

void bp_stage_evaluate(bp_stage *stage, const bp_evaluation *of, double loss_sum[BP_TERMS],
                       int64_t loss_count[BP_TERMS])
{
    bp_pass pass = bp_pass_over(of->batch);
    int64_t floats = stage_evaluation_floats(&stage->spec, stage->network);
    size_t mark = stage->scratch.used_bytes;
    float *data =
        floats > 0 ? bp_arena_take(&stage->scratch, floats, sizeof(float)) : stage->forward.work;

    pass.first_window = of->first_window;
    pass.resumes = of->resumes;
    pass.restart = stage->spec.restart;
    pass.suspends = stage->network->carry_count > 0 && stage->network->carries[0].kept;
    pass.scratch = &stage->scratch;
    pass.predicted = of->predicted;
    for (int c = 0; c < stage->schedule.pipeline.chunks; c++)
        evaluate_chunk(stage, &pass, data, &(bp_action){.chunk = c});
    stage->scratch.used_bytes = mark;
    memcpy(loss_sum, pass.loss_sum, sizeof pass.loss_sum);
    memcpy(loss_count, pass.loss_count, sizeof pass.loss_count);
    if (of->right)
        *of->right += pass.right;
}
