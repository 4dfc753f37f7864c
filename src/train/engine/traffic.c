#include "train/engine/traffic.h"

#include "base/fault.h"

#define TAG_FORWARD  301
#define TAG_BACKWARD 302

int64_t bp_traffic_buffers(const bp_pipeline *pipeline)
{
    return pipeline->stages == 1 ? 1 : 1 + BP_RECEIVES_AHEAD + BP_SENDS_BEHIND;
}

void bp_traffic_init(bp_traffic *traffic, const bp_route *route, bool backward, bp_arena *arena)
{
    *traffic = (bp_traffic){.route = route, .backward = backward};
    traffic->work = bp_arena_take(arena, route->floats, sizeof(float));
    if (route->pipeline.stages == 1)
        return;
    for (int k = 0; k < BP_RECEIVES_AHEAD; k++)
        traffic->coming[k] = bp_arena_take(arena, route->floats, sizeof(float));
    for (int k = 0; k < BP_SENDS_BEHIND; k++)
        traffic->leaving[k] = bp_arena_take(arena, route->floats, sizeof(float));
}

static int tag_of(const bp_traffic *traffic)
{
    return traffic->backward ? TAG_BACKWARD : TAG_FORWARD;
}

/* Stages are in a ring: after the last stage's chunk comes the first stage's next one. */
static int neighbour(const bp_route *route, bool behind)
{
    int stages = route->pipeline.stages;

    return (route->stage + (behind ? stages - 1 : 1)) % stages;
}

/* Post the receive of the next action that has one, if there is. */
static void post_next(bp_traffic *traffic)
{
    const bp_route *route = traffic->route;
    int64_t actions = bp_schedule_actions(&route->pipeline), slot;

    for (; traffic->looked_at < actions; traffic->looked_at++) {
        const bp_action *action = &route->actions[traffic->looked_at];

        if (action->backward != traffic->backward ||
            !bp_action_receives(&route->pipeline, route->stage, action))
            continue;
        traffic->looked_at++;
        slot = traffic->posted++ % BP_RECEIVES_AHEAD;
        bp_recv_start(&traffic->receives[slot], traffic->coming[slot],
                      route->floats * (int64_t)sizeof(float), neighbour(route, !traffic->backward),
                      tag_of(traffic), route->comm);
        return;
    }
}

static void swap(float **a, float **b)
{
    float *before = *a;

    *a = *b;
    *b = before;
}

void bp_traffic_begin(bp_traffic *traffic)
{
    traffic->looked_at = traffic->posted = traffic->taken = traffic->sent = 0;
    for (int k = 0; k < BP_RECEIVES_AHEAD; k++)
        post_next(traffic);
}

void bp_traffic_take(bp_traffic *traffic, const bp_action *action)
{
    const bp_route *route = traffic->route;
    int64_t slot = traffic->taken % BP_RECEIVES_AHEAD;

    if (!bp_action_receives(&route->pipeline, route->stage, action))
        return;
    bp_fault_point("pp.recv");
    bp_wait(&traffic->receives[slot]);
    swap(&traffic->work, &traffic->coming[slot]);
    traffic->taken++;
    post_next(traffic);
}

void bp_traffic_send(bp_traffic *traffic, const bp_action *action)
{
    const bp_route *route = traffic->route;
    int64_t slot = traffic->sent % BP_SENDS_BEHIND;

    if (!bp_action_sends(&route->pipeline, route->stage, action))
        return;
    bp_wait(&traffic->sends[slot]);
    bp_fault_point("pp.send");
    swap(&traffic->work, &traffic->leaving[slot]);
    traffic->sent++;
    bp_send_start(&traffic->sends[slot], traffic->leaving[slot],
                  route->floats * (int64_t)sizeof(float), neighbour(route, traffic->backward),
                  tag_of(traffic), route->comm);
}

void bp_traffic_end(bp_traffic *traffic)
{
    for (int k = 0; k < BP_SENDS_BEHIND; k++)
        bp_wait(&traffic->sends[k]);
}
