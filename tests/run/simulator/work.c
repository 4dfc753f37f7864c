/* The queue of scoring: leads ask, work, write parts and die; work_scheduler.c says who gets what.
 * Units that are in part files are not done again, and every unit is done in the end, by the next
 * job if not by this one. */
#include "simulator.h"

#include "job/work_scheduler_priv.h"

#include <string.h>

#define UNITS  24
#define LEADS  4
#define STARTS 40

typedef struct sim_lead {
    int64_t unit; /* that it works on; -1: none */
    bool left;
} sim_lead;

typedef struct sim_queue {
    sim_random random;
    sim_break broken;
    FILE *trace;
    char *why;
    uint8_t done[UNITS], known[UNITS], handed[UNITS]; /* in parts; at this start; in this job */
    work_scheduler scheduler;
    sim_lead leads[LEADS];
    bool failed; /* a lead of this job has left early */
} sim_queue;

static void fail(sim_queue *queue, const char *what, int64_t unit)
{
    if (queue->why[0] == '\0')
        (void)snprintf(queue->why, 200, "work: %s: unit %lld", what, (long long)unit);
}

static int64_t ask(sim_queue *queue)
{
    int64_t unit;

    if (queue->broken == BREAK_CLOSE)
        queue->scheduler.closed = false;
    unit = work_scheduler_answer(&queue->scheduler, WORK_ASK, 1);
    if (queue->broken == BREAK_HAND_OUT && unit > 0 && sim_chance(&queue->random, 0.1))
        unit--;
    if (unit < 0)
        return unit;
    if (queue->known[unit])
        fail(queue, "handed out though it was done before", unit);
    if (queue->handed[unit])
        fail(queue, "handed out twice", unit);
    if (queue->failed)
        fail(queue, "handed out after somebody failed", unit);
    queue->handed[unit] = 1;
    return unit;
}

static void leave(sim_queue *queue, sim_lead *lead, bool early)
{
    (void)work_scheduler_answer(&queue->scheduler, early ? WORK_LEAVE_EARLY : WORK_LEAVE, 0);
    queue->failed = queue->failed || early;
    lead->left = true;
}

/* A lead's next unit: done and in its part file, or it fails over it. */
static void work(sim_queue *queue, sim_lead *lead)
{
    if (lead->unit >= 0 && sim_chance(&queue->random, 0.02)) {
        leave(queue, lead, true);
        return;
    }
    if (lead->unit >= 0)
        queue->done[lead->unit] = 1;
    lead->unit = ask(queue);
    if (lead->unit < 0)
        leave(queue, lead, false);
}

/* One job: true when it was not killed. */
static bool run_job(sim_queue *queue, int leads)
{
    memcpy(queue->known, queue->done, sizeof queue->known);
    memset(queue->handed, 0, sizeof queue->handed);
    queue->scheduler = (work_scheduler){.units = UNITS, .done = queue->known, .here = leads};
    queue->failed = false;
    for (int k = 0; k < leads; k++)
        queue->leads[k] = (sim_lead){.unit = -1};
    while (queue->scheduler.here > 0 && queue->why[0] == '\0') {
        sim_lead *lead = &queue->leads[sim_below(&queue->random, leads)];

        if (sim_chance(&queue->random, 0.01))
            return false;
        if (!lead->left)
            work(queue, lead);
    }
    return true;
}

static bool all_done(const sim_queue *queue)
{
    for (int k = 0; k < UNITS; k++)
        if (!queue->done[k])
            return false;
    return true;
}

bool sim_run_work(char why[200], uint64_t seed, sim_break broken, FILE *trace)
{
    sim_queue queue = {.random = {.state = seed}, .broken = broken, .trace = trace, .why = why};
    int starts = 0;

    why[0] = '\0';
    while (why[0] == '\0' && !all_done(&queue)) {
        bool through = run_job(&queue, 1 + (int)sim_below(&queue.random, LEADS));

        if (through && !queue.failed && !all_done(&queue))
            fail(&queue, "a job ends well and leaves work", -1);
        if (++starts == STARTS)
            fail(&queue, "the work does not end", -1);
    }
    if (trace != NULL && why[0] != '\0')
        (void)fprintf(trace, "%s, at start %d\n", why, starts);
    return why[0] == '\0';
}
