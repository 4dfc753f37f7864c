/* Only the watchdog's decisions: which rank is lost, given messages and their times. Pure;
 * watchdog_thread.c feeds it. Called by watchdog.c and watchdog_thread.c. */
#include "run/watchdog/watch_state.h"

#include "base/mem.h"
#include "base/sort.h"

#include <math.h>

#define SAMPLES          32   /* of step times, for their median */
#define STEPS_FACTOR     10.0 /* this many median steps are not a fault */
#define LONG_FACTOR      10.0 /* of spec.seconds: opening files, reading a checkpoint, a first step */
#define FIT_FACTOR       240.0 /* a single eigenvalue problem may take hours */
#define COMMIT_FACTOR    4.0   /* of the longest commit so far, and twice spec.seconds */
#define LEAP_HEARTBEATS  2.0
#define FRESH_HEARTBEATS 5.0 /* older heartbeats are not used */
#define SLOW_STEPS       20
#define SLOW_RATIO       1.5

typedef struct rank_state {
    bp_watch_heartbeat heartbeat;
    bool known, left;
    double heard_at, moved_at;
    double stepped_at;             /* when its step changed last */
    int64_t base_steps, base_busy; /* the begin of the measured period of steps */
    double mean, ratio; /* of its last measured period, and relative to the median of its peers */
    bool slow, reported;
} rank_state;

/* The latest step times of all ranks. */
typedef struct step_times {
    double seconds[SAMPLES];
    int64_t count;
} step_times;

struct bp_watch {
    bp_watch_spec spec;
    bp_watch_clock clock;
    step_times steps, batches;
    double longest_commit; /* 0: none yet */
    rank_state *ranks;
    double *sorted; /* workspace of a median */
};

double bp_watch_clock_poll(bp_watch_clock *clock, double now)
{
    double passed = clock->running ? now - clock->seen : 0;

    clock->running = true;
    clock->seen = now;
    if (passed > 0)
        clock->now += passed < clock->leap ? passed : clock->leap;
    return clock->now;
}

bp_watch *bp_watch_new(const bp_watch_spec *spec)
{
    bp_watch *watch = bp_alloc("watchdog", 1, sizeof *watch);

    watch->spec = *spec;
    watch->clock.leap = LEAP_HEARTBEATS * spec->heartbeat_seconds;
    watch->ranks = bp_alloc("watchdog", spec->size, sizeof *watch->ranks);
    watch->sorted = bp_alloc("watchdog", spec->size, sizeof *watch->sorted);
    return watch;
}

void bp_watch_free(bp_watch **watch)
{
    if (!*watch)
        return;
    bp_free((*watch)->sorted);
    bp_free((*watch)->ranks);
    bp_free(*watch);
    *watch = NULL;
}

/* ---- heartbeats ---- */

static step_times *times_of(bp_watch *watch, bp_phase phase)
{
    return phase == BP_PHASE_SCORE ? &watch->batches : &watch->steps;
}

static void add_time(step_times *times, double seconds, int64_t steps)
{
    if (steps > 0)
        times->seconds[times->count++ % SAMPLES] = seconds / (double)steps;
}

/* Records the time of the steps since the last heartbeat. Steps of a new phase are counted
 * separately. */
static void note_step(bp_watch *watch, rank_state *rank, const bp_watch_heartbeat *heartbeat,
                      double now)
{
    const bp_watch_heartbeat *before = &rank->heartbeat;
    step_times *times = times_of(watch, heartbeat->phase);

    if (heartbeat->phase != BP_PHASE_STEP && heartbeat->phase != BP_PHASE_SCORE)
        return;
    if (heartbeat->phase != before->phase) {
        int64_t begun =
            heartbeat->phase == BP_PHASE_STEP ? heartbeat->steps - before->steps : heartbeat->step;

        add_time(times, now - rank->heard_at, begun - 1);
        rank->stepped_at = now;
    } else if (heartbeat->step != before->step) {
        add_time(times, now - rank->stepped_at, heartbeat->step - before->step);
        rank->stepped_at = now;
    }
}

void bp_watch_receive(bp_watch *watch, int rank, const bp_watch_heartbeat *heartbeat, double now)
{
    rank_state *at = &watch->ranks[rank];

    BP_ASSERT(rank >= 0 && rank < watch->spec.size);
    now = bp_watch_clock_poll(&watch->clock, now);
    if (!at->known) {
        at->known = true;
        at->moved_at = at->stepped_at = now;
        at->base_steps = heartbeat->steps;
        at->base_busy = heartbeat->busy_ns;
    } else {
        if (heartbeat->progress != at->heartbeat.progress)
            at->moved_at = now;
        note_step(watch, at, heartbeat, now);
    }
    if ((double)heartbeat->commit_ns * 1e-9 > watch->longest_commit)
        watch->longest_commit = (double)heartbeat->commit_ns * 1e-9;
    at->heard_at = now;
    at->heartbeat = *heartbeat;
}

void bp_watch_leave(bp_watch *watch, int rank)
{
    watch->ranks[rank].left = true;
}

bool bp_watch_is_known(const bp_watch *watch, int rank)
{
    return watch->ranks[rank].known;
}

const bp_watch_heartbeat *bp_watch_last(const bp_watch *watch, int rank)
{
    return &watch->ranks[rank].heartbeat;
}

/* The lower of the two in the middle: of two ranks, the faster one is the reference. */
static double median(double *values, int count)
{
    bp_sort_reals(values, count);
    return values[(count - 1) / 2];
}

/* ---- who is slow ---- */

static bool is_peer(const rank_state *rank, int peers)
{
    return rank->known && !rank->left && rank->heartbeat.peers == peers;
}

/* Writes the peers' mean times to `sorted` once all have done enough steps; returns 0 until
 * then. */
static int measure_peers(bp_watch *watch, int peers)
{
    int count = 0;

    for (int r = 0; r < watch->spec.size; r++) {
        rank_state *rank = &watch->ranks[r];
        int64_t steps = rank->heartbeat.steps - rank->base_steps;

        if (!is_peer(rank, peers))
            continue;
        if (steps < SLOW_STEPS)
            return 0;
        rank->mean = (double)(rank->heartbeat.busy_ns - rank->base_busy) * 1e-9 / (double)steps;
        watch->sorted[count++] = rank->mean;
    }
    return count;
}

/* Compare, and begin a new period. */
static void compare_peers(bp_watch *watch, int peers)
{
    int count = measure_peers(watch, peers);
    double middle = count < 2 ? 0 : median(watch->sorted, count);

    for (int r = 0; r < watch->spec.size && middle > 0; r++) {
        rank_state *rank = &watch->ranks[r];
        bool slow;

        if (!is_peer(rank, peers))
            continue;
        rank->ratio = rank->mean / middle;
        slow = rank->ratio > SLOW_RATIO;
        if (!slow || !rank->slow) /* else it was reported when the stretch began */
            rank->reported = false;
        rank->slow = slow;
        rank->base_steps = rank->heartbeat.steps;
        rank->base_busy = rank->heartbeat.busy_ns;
    }
}

bool bp_watch_next_slow(bp_watch *watch, bp_watch_slow *out)
{
    for (int r = 0; r < watch->spec.size; r++) {
        rank_state *rank = &watch->ranks[r];

        if (!rank->slow || rank->reported)
            continue;
        rank->reported = true;
        *out = (bp_watch_slow){.rank = r, .ratio = rank->ratio, .seconds = rank->mean};
        return true;
    }
    return false;
}

/* ---- who makes no progress ---- */

static double step_limit(const bp_watch *watch, const step_times *times)
{
    double seconds = watch->spec.seconds, sorted[SAMPLES];
    int count = times->count < SAMPLES ? (int)times->count : SAMPLES;

    if (count == 0)
        return LONG_FACTOR * seconds;
    for (int k = 0; k < count; k++)
        sorted[k] = times->seconds[k];
    return fmax(seconds, STEPS_FACTOR * median(sorted, count));
}

/* How long may a rank in this phase make no progress? */
static double limit_of(bp_watch *watch, bp_phase phase)
{
    double seconds = watch->spec.seconds;

    switch (phase) {
    case BP_PHASE_STEP:
    case BP_PHASE_VALIDATE:
    case BP_PHASE_SCORE:
        return step_limit(watch, times_of(watch, phase));
    case BP_PHASE_CHECKPOINT:
        return watch->longest_commit > 0 ? COMMIT_FACTOR * watch->longest_commit + 2 * seconds
                                         : LONG_FACTOR * seconds;
    case BP_PHASE_FIT:
        return FIT_FACTOR * seconds;
    default:
        return LONG_FACTOR * seconds;
    }
}

static bool is_fresh(const bp_watch *watch, const rank_state *rank)
{
    return watch->clock.now - rank->heard_at < FRESH_HEARTBEATS * watch->spec.heartbeat_seconds;
}

/* Among ranks with the same reason, the one that stopped first. */
static void accuse(bp_watch_diagnosis *out, bool *found, int rank, bp_watch_reason reason,
                   double seconds)
{
    if (*found && (out->reason < reason || (out->reason == reason && out->seconds >= seconds)))
        return;
    *out = (bp_watch_diagnosis){.rank = rank, .reason = reason, .seconds = seconds};
    *found = true;
}

/* All known ranks wait: does it last, and which is the least advanced? A rank that never sent a
 * heartbeat may compute behind a firewall; then other ranks progress from time to time. If none
 * does, they wait for that rank. */
static bool diagnose_waiting(bp_watch *watch, bp_watch_diagnosis *out)
{
    double now = watch->clock.now, limit = 0, least = -1;
    int at = -1, unheard = -1;

    for (int r = 0; r < watch->spec.size; r++) {
        const rank_state *rank = &watch->ranks[r];

        if (rank->left)
            continue;
        if (!rank->known) {
            unheard = unheard < 0 ? r : unheard;
            continue;
        }
        if (!rank->heartbeat.waits || !is_fresh(watch, rank))
            return false; /* it may well compute */
        limit = fmax(limit, limit_of(watch, rank->heartbeat.phase));
        if (least < 0 || now - rank->moved_at < least)
            least = now - rank->moved_at;
        if (at < 0 || rank->heartbeat.collectives < watch->ranks[at].heartbeat.collectives)
            at = r;
    }
    if (at < 0 || least <= limit)
        return false;
    *out = (bp_watch_diagnosis){.rank = at, .reason = BP_WATCH_WAITS, .seconds = least};
    if (unheard >= 0)
        *out = (bp_watch_diagnosis){.rank = unheard, .reason = BP_WATCH_SILENT, .seconds = least};
    return true;
}

bool bp_watch_diagnose(bp_watch *watch, double now, bp_watch_diagnosis *out)
{
    bool found = false, only_silence = watch->spec.only_silence;
    int peers = -1;

    now = bp_watch_clock_poll(&watch->clock, now);
    for (int r = 0; r < watch->spec.size && !only_silence; r++)
        if (watch->ranks[r].known && watch->ranks[r].heartbeat.peers > peers)
            peers = watch->ranks[r].heartbeat.peers;
    for (; peers >= 0; peers--)
        compare_peers(watch, peers);
    for (int r = 0; r < watch->spec.size; r++) {
        const rank_state *rank = &watch->ranks[r];

        if (!rank->known || rank->left)
            continue;
        if (now - rank->heard_at > watch->spec.seconds)
            accuse(out, &found, r, BP_WATCH_SILENT, now - rank->heard_at);
        else if (!only_silence && !rank->heartbeat.waits && is_fresh(watch, rank) &&
                 now - rank->moved_at > limit_of(watch, rank->heartbeat.phase))
            accuse(out, &found, r, BP_WATCH_COMPUTES, now - rank->moved_at);
    }
    return found || (!only_silence && diagnose_waiting(watch, out));
}
