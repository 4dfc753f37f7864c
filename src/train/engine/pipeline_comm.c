/* Pipeline communication: activations to the next stage, gradients to the one before, posted ahead.
 * Called by stage.c. */
#include "train/engine/pipeline_comm.h"

#include "base/fault.h"

#define TAG_FORWARD  301
#define TAG_BACKWARD 302

int64_t bp_pipeline_comm_buffers(const bp_pipeline *pipeline)
{
    return pipeline->stages == 1 ? 1 : 1 + BP_RECEIVES_AHEAD + BP_SENDS_IN_FLIGHT;
}

void bp_pipeline_comm_init(bp_pipeline_comm *comm, const bp_stage_schedule *schedule, bool backward,
                           bp_arena *arena)
{
    *comm = (bp_pipeline_comm){.schedule = schedule, .backward = backward};
    comm->work = bp_arena_take(arena, schedule->floats, sizeof(float));
    if (schedule->pipeline.stages == 1)
        return;
    for (int k = 0; k < BP_RECEIVES_AHEAD; k++)
        comm->coming[k] = bp_arena_take(arena, schedule->floats, sizeof(float));
    for (int k = 0; k < BP_SENDS_IN_FLIGHT; k++)
        comm->leaving[k] = bp_arena_take(arena, schedule->floats, sizeof(float));
}

static int tag_of(const bp_pipeline_comm *comm)
{
    return comm->backward ? TAG_BACKWARD : TAG_FORWARD;
}

/* Stages are in a ring: after the last stage's chunk comes the first stage's next one. */
static int neighbour(const bp_stage_schedule *schedule, bool previous)
{
    int stages = schedule->pipeline.stages;

    return (schedule->stage + (previous ? stages - 1 : 1)) % stages;
}

static int64_t message_bytes(const bp_pipeline_comm *comm, const bp_action *action, bool comes)
{
    const bp_chunk_messages *chunk = &comm->schedule->messages[action->chunk];
    int64_t floats = comm->backward ? (comes ? chunk->output_gradient : chunk->input_gradient)
                                    : (comes ? chunk->input : chunk->output);

    return floats * (int64_t)sizeof(float);
}

/* Post the receive of the next action that has one, if any. */
static void post_next(bp_pipeline_comm *comm)
{
    const bp_stage_schedule *schedule = comm->schedule;
    int64_t actions = bp_schedule_actions(&schedule->pipeline), slot;

    for (; comm->looked_at < actions; comm->looked_at++) {
        const bp_action *action = &schedule->actions[comm->looked_at];

        if (action->backward != comm->backward ||
            !bp_action_receives(&schedule->pipeline, schedule->stage, action))
            continue;
        comm->looked_at++;
        slot = comm->posted++ % BP_RECEIVES_AHEAD;
        bp_recv_start(&comm->receives[slot], comm->coming[slot], message_bytes(comm, action, true),
                      neighbour(schedule, !comm->backward), tag_of(comm), schedule->comm);
        return;
    }
}

static void swap(float **a, float **b)
{
    float *before = *a;

    *a = *b;
    *b = before;
}

void bp_pipeline_comm_begin(bp_pipeline_comm *comm)
{
    comm->looked_at = comm->posted = comm->taken = comm->sent = 0;
    for (int k = 0; k < BP_RECEIVES_AHEAD; k++)
        post_next(comm);
}

void bp_pipeline_comm_take(bp_pipeline_comm *comm, const bp_action *action)
{
    const bp_stage_schedule *schedule = comm->schedule;
    int64_t slot = comm->taken % BP_RECEIVES_AHEAD;

    if (!bp_action_receives(&schedule->pipeline, schedule->stage, action))
        return;
    bp_fault_point("pp.recv");
    bp_wait(&comm->receives[slot]);
    swap(&comm->work, &comm->coming[slot]);
    comm->taken++;
    post_next(comm);
}

void bp_pipeline_comm_send(bp_pipeline_comm *comm, const bp_action *action)
{
    const bp_stage_schedule *schedule = comm->schedule;
    int64_t slot = comm->sent % BP_SENDS_IN_FLIGHT;

    if (!bp_action_sends(&schedule->pipeline, schedule->stage, action))
        return;
    bp_wait(&comm->sends[slot]);
    bp_fault_point("pp.send");
    swap(&comm->work, &comm->leaving[slot]);
    comm->sent++;
    bp_send_start(&comm->sends[slot], comm->leaving[slot], message_bytes(comm, action, false),
                  neighbour(schedule, comm->backward), tag_of(comm), schedule->comm);
}

void bp_pipeline_comm_end(bp_pipeline_comm *comm)
{
    for (int k = 0; k < BP_SENDS_IN_FLIGHT; k++)
        bp_wait(&comm->sends[k]);
}
