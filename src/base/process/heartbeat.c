/* What this rank does now (phase, step, the call that it waits in), in shared memory of the
 * process: written throughout the code, read by the watchdog's thread. */
#include "base/process/heartbeat.h"
#include "base/err.h"
#include "base/trace.h"

#include <stdatomic.h>
#include <string.h>

/* One writer: a load and a store are enough, without a locked instruction. */
static _Atomic int phase;
static _Atomic int64_t step, progress, collectives, waited, steps, busy, commit;
static _Atomic(const char *) collective = "";
static _Atomic int depth;
static _Thread_local bool is_beside;
static bp_phase_listener *phase_listener;
static int64_t entered_at;             /* the outermost collective at work */
static int64_t marked_at, marked_wait; /* what precedes them is counted in `busy`, or not at all */

static const char *const PHASE_NAMES[BP_PHASES] = {"start",      "load",  "step",  "validate",
                                                   "checkpoint", "score", "merge", "fit",
                                                   "count",      "bench", "end"};

const char *bp_phase_name(bp_phase of)
{
    BP_ASSERT(of >= 0 && of < BP_PHASES);
    return PHASE_NAMES[of];
}

static void add(_Atomic int64_t *count, int64_t more)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* Count the time since the last mark as work, if it was in a step and not in a wait. */
static void mark(void)
{
    int64_t now = bp_trace_clock(), wait = atomic_load_explicit(&waited, memory_order_relaxed);

    if (atomic_load_explicit(&phase, memory_order_relaxed) == BP_PHASE_STEP)
        add(&busy, now - marked_at - (wait - marked_wait));
    marked_at = now;
    marked_wait = wait;
}

void bp_heartbeat_progress(void)
{
    if (!is_beside)
        add(&progress, 1);
}

void bp_heartbeat_beside(void)
{
    is_beside = true;
}

bp_phase bp_heartbeat_phase(bp_phase now)
{
    int before = atomic_load_explicit(&phase, memory_order_relaxed);

    if (before == BP_PHASE_CHECKPOINT)
        atomic_store_explicit(&commit, bp_trace_clock() - marked_at, memory_order_relaxed);
    mark();
    atomic_store_explicit(&phase, (int)now, memory_order_relaxed);
    add(&progress, 1);
    if (phase_listener && (int)now != before && !is_beside)
        phase_listener(now);
    return (bp_phase)before;
}

void bp_heartbeat_listen(bp_phase_listener *listener)
{
    phase_listener = listener;
}

void bp_heartbeat_commit(double seconds)
{
    atomic_store_explicit(&commit, (int64_t)(seconds * 1e9), memory_order_relaxed);
}

void bp_heartbeat_step(int64_t now)
{
    mark();
    if (atomic_load_explicit(&phase, memory_order_relaxed) == BP_PHASE_STEP)
        add(&steps, 1);
    atomic_store_explicit(&step, now, memory_order_relaxed);
    add(&progress, 1);
}

/* The profile's name for a wait. */
static bp_trace_kind kind_of(const char *what)
{
    static const struct {
        const char *what;
        bp_trace_kind kind;
    } KINDS[] = {{"reduce_scatter", BP_TRACE_REDUCE},
                 {"all_sum", BP_TRACE_REDUCE},
                 {"all_gather", BP_TRACE_GATHER},
                 {"send", BP_TRACE_SEND},
                 {"recv", BP_TRACE_RECEIVE}};

    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        if (strcmp(what, KINDS[k].what) == 0)
            return KINDS[k].kind;
    return BP_TRACE_AGREE;
}

void bp_heartbeat_enter(const char *what)
{
    int before = atomic_load_explicit(&depth, memory_order_relaxed);

    if (is_beside) /* the main thread may be in a wait of its own */
        return;
    if (before == 0) {
        atomic_store_explicit(&collective, what, memory_order_relaxed);
        add(&collectives, 1);
        add(&progress, 1);
        entered_at = bp_trace_clock();
        if (bp_trace_here)
            bp_trace_enter(kind_of(what), 0, 0);
    }
    atomic_store_explicit(&depth, before + 1, memory_order_relaxed);
}

void bp_heartbeat_leave(void)
{
    int before = atomic_load_explicit(&depth, memory_order_relaxed);

    if (is_beside)
        return;
    BP_ASSERT(before > 0);
    atomic_store_explicit(&depth, before - 1, memory_order_relaxed);
    if (before == 1) {
        add(&waited, bp_trace_clock() - entered_at);
        bp_trace_end();
        add(&progress, 1);
    }
}

void bp_heartbeat_read(bp_heartbeat *out)
{
    *out = (bp_heartbeat){
        .phase = (bp_phase)atomic_load_explicit(&phase, memory_order_relaxed),
        .step = atomic_load_explicit(&step, memory_order_relaxed),
        .progress = atomic_load_explicit(&progress, memory_order_relaxed),
        .collectives = atomic_load_explicit(&collectives, memory_order_relaxed),
        .collective = atomic_load_explicit(&collective, memory_order_relaxed),
        .waits = atomic_load_explicit(&depth, memory_order_relaxed) > 0,
        .waited_ns = atomic_load_explicit(&waited, memory_order_relaxed),
        .steps = atomic_load_explicit(&steps, memory_order_relaxed),
        .commit_ns = atomic_load_explicit(&commit, memory_order_relaxed),
        .busy_ns = atomic_load_explicit(&busy, memory_order_relaxed),
    };
}
