/* Advances the programs of all stages together, each until it needs a result that is not yet
 * known. */
#include "train/scale/step_time.h"

#include "base/mem.h"
#include "mesh/shard.h"

#include <math.h>
#include <string.h>

#define STEPS 3 /* only the last one counts: gathers overlap with the next step */
#define FLOAT ((double)sizeof(float))
#define PIECE_BYTES                                                                                \
    1048576.0 /* a chunk is added while the next ones are sent (mesh/collective.c) */

/* ---- a sum or gather over data ranks ---- */

/* Rank 0 has the most elements. */
bp_step_collective bp_step_collective_of(const bp_step_program *program, const bp_step_group *group,
                                         bool gathers, const bp_network_rates *rates,
                                         const bp_node_layout *layout)
{
    bp_shard_round rounds[BP_SHARD_ROUNDS];
    int count = bp_shard_rounds(rounds, group->units, 0, group->holders);
    double value = gathers ? FLOAT : program->value_bytes;
    bp_step_collective out = {0};

    for (int k = 0; k < count; k++) {
        const bp_shard_round *round = &rounds[k];
        double most = (double)(round->sent > round->kept ? round->sent : round->kept) *
                      (double)group->unit,
               added = gathers ? 0 : (double)round->kept * (double)group->unit;
        double bytes = most * value;
        int crossing = bp_node_crossing(layout, group->stride * round->partner);
        double travels = bp_message_seconds(rates, crossing, bytes),
               adds = 3 * FLOAT * added / rates->memory_bandwidth,
               last = adds * fmin(1, PIECE_BYTES / fmax(bytes, 1));

        if (most == 0)
            continue;
        if (!gathers && value < FLOAT) /* rounded before it leaves */
            adds += (FLOAT + value) * (double)round->sent * (double)group->unit /
                    rates->memory_bandwidth;
        out.pauses += program->overlap ? rates->round_pause : 0;
        out.seconds += fmax(travels, adds) + last;
        out.stolen += adds + (crossing == 0 ? bytes / rates->inner_bandwidth : 0);
        out.link_bytes +=
            crossing * (double)(gathers ? round->kept : round->sent) * (double)group->unit * value;
        out.crossing = crossing > out.crossing ? crossing : out.crossing;
    }
    out.seconds += out.pauses;
    return out;
}

/* ---- the progress of a stage ---- */

typedef struct arrivals {
    double *seconds; /* [capacity] */
    int64_t sent, taken;
    double link; /* when the link is free again */
} arrivals;

typedef struct track {
    const bp_step_stage *stage;
    bp_step_collective *sums, *gathers; /* [groups] */
    double *gathered;                   /* [groups] when its gather is complete */
    double now, progress, reduced; /* times: of the stage, when the progress thread is free, when
                                      the last sum is complete */
    int64_t at;
    int step, last; /* the group whose sum began last */
    bool meets;     /* waits for the other stages, at an agreement */
    bool tied;
    arrivals coming[2]; /* forward, backward: from the neighbour */
    bp_step_time parts; /* of the last step */
    double began;
} track;

typedef struct run {
    const bp_step_program *program;
    const bp_network_rates *rates;
    bp_node_layout layout;
    track *tracks;
} run;

/* Waits until `until`, and adds the wait to `part`. */
static void wait_until(track *t, double until, double *part)
{
    if (until <= t->now)
        return;
    *part += until - t->now;
    t->now = until;
}

/* Waits for a job that is done at *done. A stage that waits leaves its core to the progress thread,
 * which then makes no pauses, in this job and later ones. */
static void wait_for(track *t, double *done, const bp_step_collective *job, double *part)
{
    double end = *done, saved;

    if (end <= t->now)
        return;
    saved = job->seconds > 0 ? (end - t->now) * job->pauses / job->seconds : 0;
    t->progress -= saved;
    if (t->reduced >= end)
        t->reduced -= saved;
    for (int g = 0; g < t->stage->group_count; g++)
        if (t->gathered[g] >= end)
            t->gathered[g] -= saved;
    wait_until(t, *done, part);
}

static void spend(track *t, double seconds, double *part)
{
    *part += seconds;
    t->now += seconds;
}

static void begin_job(const run *r, track *t, const bp_step_collective *job, double *done,
                      double *part)
{
    double begins = t->progress > t->now ? t->progress : t->now;

    *done = t->progress = begins + job->seconds;
    t->parts.link_bytes += job->link_bytes;
    if (!r->program->overlap)
        wait_until(t, *done, part);
    else
        spend(t, job->stolen, part);
}

static void send(run *r, int stage, const bp_step_op *op)
{
    int stages = r->program->mesh.pipeline, to = (stage + (op->backward ? stages - 1 : 1)) % stages;
    arrivals *way = &r->tracks[to].coming[op->backward];
    double begins = way->link > r->tracks[stage].now ? way->link : r->tracks[stage].now;
    double seconds = bp_message_seconds(r->rates, r->layout.pipeline, op->bytes);

    way->seconds[way->sent++] = begins + seconds;
    way->link = begins + seconds -
                (r->layout.pipeline > 0 ? r->rates->node_latency : r->rates->inner_latency);
    r->tracks[stage].parts.link_bytes += r->layout.pipeline * op->bytes;
}

static double tensor_seconds(const run *r, const bp_step_op *op)
{
    int T = r->program->mesh.tensor, levels = 0;

    while (1 << levels < T)
        levels++;
    return bp_message_seconds(r->rates, r->layout.tensor, op->bytes) +
           (op->rounds * levels - 1) * bp_message_seconds(r->rates, r->layout.tensor, 0);
}

/* Rows travel between nodes beside the experts' products. Within a node a core copies them. */
static void run_experts(const run *r, track *t, const bp_step_op *op)
{
    const bp_node_layout *at = &r->layout;
    const bp_network_rates *rates = r->rates;
    double each = (op->bytes + op->back) / (at->turns_here + at->turns_away),
           computes = op->flops / rates->flops,
           copies = at->turns_here * bp_message_seconds(rates, 0, each),
           travels = (at->turns_away > 0 ? 2 * rates->node_latency : 0) +
                     at->experts * (each / rates->node_bandwidth + 2 / rates->message_rate);

    spend(t, op->rounds * bp_message_seconds(rates, at->experts, 0) + copies, &t->parts.experts);
    spend(t, computes, &t->parts.compute);
    spend(t, fmax(0, travels - computes - copies), &t->parts.experts);
    t->parts.link_bytes += at->experts * each;
}

/* All ranks of a model meet. */
static void meet(run *r)
{
    int stages = r->program->mesh.pipeline;
    double latest = 0,
           each = r->layout.nodes > 1 ? r->rates->node_latency : r->rates->inner_latency;

    for (int s = 0; s < stages; s++)
        latest = r->tracks[s].now > latest ? r->tracks[s].now : latest;
    for (int s = 0; s < stages; s++) {
        track *t = &r->tracks[s];

        wait_until(t, latest + t->stage->ops[t->at].rounds * each, &t->parts.bubble);
        t->meets = false;
        t->at++;
    }
}

/* Exchanges the shards of the table that the first and the last stage share. */
static bool exchange_tied(run *r, track *t, const bp_step_op *op)
{
    track *other = t == r->tracks ? &r->tracks[r->program->mesh.pipeline - 1] : r->tracks;

    t->tied = true;
    if (!other->tied)
        return false;
    double seconds = bp_message_seconds(r->rates, r->layout.pipeline, op->bytes),
           both = (t->now > other->now ? t->now : other->now) + seconds;
    wait_until(t, both, &t->parts.sums);
    wait_until(other, both, &other->parts.sums);
    t->tied = other->tied = false;
    other->at++;
    return true;
}

static void end_step(track *t)
{
    t->at = 0;
    if (++t->step < STEPS) {
        memset(&t->parts, 0, sizeof t->parts);
        t->began = t->now;
    }
}

/* Runs one operation. Returns false if it must wait for another stage. */
static bool go(run *r, int stage)
{
    track *t = &r->tracks[stage];
    const bp_step_op *op = &t->stage->ops[t->at];
    arrivals *way = &t->coming[op->backward];

    switch (op->kind) {
    case BP_STEP_COMPUTE:
        spend(t, op->flops / r->rates->flops + op->passes / r->rates->memory_bandwidth,
              &t->parts.compute);
        break;
    case BP_STEP_RECEIVE:
        if (way->taken == way->sent)
            return false;
        wait_until(t, way->seconds[way->taken++], &t->parts.bubble);
        break;
    case BP_STEP_SEND:
        send(r, stage, op);
        break;
    case BP_STEP_TENSOR:
        spend(t, tensor_seconds(r, op), &t->parts.tensor);
        break;
    case BP_STEP_EXPERTS:
        run_experts(r, t, op);
        break;
    case BP_STEP_REDUCE:
        t->last = op->group;
        begin_job(r, t, &t->sums[op->group], &t->reduced, &t->parts.sums);
        break;
    case BP_STEP_REDUCED:
        wait_for(t, &t->reduced, &t->sums[t->last], &t->parts.sums);
        break;
    case BP_STEP_TIED:
        if (!exchange_tied(r, t, op))
            return false;
        break;
    case BP_STEP_AGREE:
        t->meets = true;
        return false;
    case BP_STEP_GATHER:
        begin_job(r, t, &t->gathers[op->group], &t->gathered[op->group], &t->parts.gather);
        break;
    case BP_STEP_GATHERED:
        wait_for(t, &t->gathered[op->group], &t->gathers[op->group], &t->parts.gather);
        break;
    case BP_STEP_KINDS:
        break;
    }
    t->at++;
    return true;
}

/* Runs operations until one must wait. Returns true if it advanced. */
static bool advance(run *r, int stage)
{
    track *t = &r->tracks[stage];
    bool moved = false;

    while (t->step < STEPS && !t->meets) {
        if (t->at == t->stage->count) {
            end_step(t);
            if (t->step == STEPS)
                break;
        }
        if (!go(r, stage))
            break;
        moved = true;
    }
    return moved;
}

static bool all_meet(const run *r)
{
    for (int s = 0; s < r->program->mesh.pipeline; s++)
        if (!r->tracks[s].meets)
            return false;
    return true;
}

static void simulate(run *r)
{
    int stages = r->program->mesh.pipeline;

    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = advance(r, s) || moved;
        if (all_meet(r)) {
            meet(r);
            moved = true;
        }
    }
    for (int s = 0; s < stages; s++)
        BP_ASSERT(r->tracks[s].step == STEPS);
}

static void open_tracks(run *r)
{
    const bp_step_program *program = r->program;

    for (int s = 0; s < program->mesh.pipeline; s++) {
        track *t = &r->tracks[s];
        int groups = program->stages[s].group_count;

        t->stage = &program->stages[s];
        t->sums = bp_alloc("scale.time", groups, sizeof *t->sums);
        t->gathers = bp_alloc("scale.time", groups, sizeof *t->gathers);
        t->gathered = bp_alloc("scale.time", groups, sizeof *t->gathered);
        for (int g = 0; g < groups; g++) {
            t->sums[g] =
                bp_step_collective_of(program, &t->stage->groups[g], false, r->rates, &r->layout);
            t->gathers[g] =
                bp_step_collective_of(program, &t->stage->groups[g], true, r->rates, &r->layout);
        }
        for (int way = 0; way < 2; way++)
            t->coming[way].seconds =
                bp_alloc("scale.time", STEPS * program->messages, sizeof(double));
    }
}

static void close_tracks(run *r)
{
    for (int s = 0; s < r->program->mesh.pipeline; s++) {
        bp_free(r->tracks[s].sums);
        bp_free(r->tracks[s].gathers);
        bp_free(r->tracks[s].gathered);
        bp_free(r->tracks[s].coming[0].seconds);
        bp_free(r->tracks[s].coming[1].seconds);
    }
    bp_free(r->tracks);
}

/* ---- parts ---- */

static void sum_up(bp_step_time *out, const run *r)
{
    int stages = r->program->mesh.pipeline, busiest = 0;
    double mean = 0, first = INFINITY, last = 0;

    for (int s = 0; s < stages; s++) {
        const track *t = &r->tracks[s];

        mean += t->parts.compute / stages;
        busiest = t->parts.compute > r->tracks[busiest].parts.compute ? s : busiest;
        first = fmin(first, t->began);
        last = fmax(last, t->now);
    }
    *out = r->tracks[busiest].parts;
    out->step = r->tracks[busiest].now - r->tracks[busiest].began;
    out->cut = out->compute - mean;
    out->compute = mean;
    out->of_head = stages > 1 && busiest == stages - 1;
    out->bubble =
        out->step - out->compute - out->cut - out->tensor - out->experts - out->sums - out->gather;
    for (int s = 0; s < stages; s++)
        out->link_bytes = fmax(out->link_bytes, r->tracks[s].parts.link_bytes);
}

const char *bp_step_bound(const bp_step_time *time)
{
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"bubble", time->bubble},   {"sums", time->sums},
                 {"gather", time->gather},   {"tensor", time->tensor},
                 {"experts", time->experts}, {time->of_head ? "head" : "cut", time->cut}};
    const char *name = "compute";
    double most = time->step / 20;

    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (parts[k].seconds > most) {
            most = parts[k].seconds;
            name = parts[k].name;
        }
    return name;
}

void bp_step_time_of(bp_step_time *out, const bp_step_program *program,
                     const bp_network_rates *rates, int nodes)
{
    run r = {
        .program = program, .rates = rates, .layout = bp_node_layout_of(&program->mesh, nodes)};

    BP_ASSERT(rates->flops > 0);
    r.tracks = bp_alloc("scale.time", program->mesh.pipeline, sizeof *r.tracks);
    open_tracks(&r);
    simulate(&r);
    sum_up(out, &r);
    close_tracks(&r);
}
