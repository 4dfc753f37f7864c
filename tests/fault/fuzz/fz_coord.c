/* The coordinator's decisions as state machines, driven by a history of events. The first byte
 * picks: the queue of work, the commit of a checkpoint, jobs that contend for a run folder, the
 * watchdog. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/checkpoint/commit_steps.h"
#include "job/work_scheduler_priv.h"
#include "run/lock/run_lock_record_priv.h"
#include "run/watchdog/watch_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the queue of work ---- */

/* No unit is handed out twice, none that was done, and none once somebody left early. */
static void try_desk(fuzz_bytes *in)
{
    uint8_t done[64] = {0}, given[64] = {0};
    bool early = false;
    work_scheduler scheduler = {.done = done};
    int64_t amount = 0;
    int left;

    left = scheduler.here = 1 + fuzz_below(in, 8);
    scheduler.units = fuzz_below(in, 65);
    for (int64_t u = 0; u < scheduler.units; u++)
        done[u] = fuzz_below(in, 3) == 0;
    while (in->left > 0 && scheduler.here > 0) {
        int what = fuzz_below(in, 8), done_now = fuzz_u8(in);
        work_question asked = what < 6 ? WORK_ASK : what == 6 ? WORK_LEAVE : WORK_LEAVE_EARLY;
        int64_t unit = work_scheduler_answer(&scheduler, asked, done_now);

        amount += done_now;
        left -= asked != WORK_ASK;
        early = early || asked == WORK_LEAVE_EARLY;
        FUZZ_CHECK(scheduler.amount == amount && scheduler.here == left);
        FUZZ_CHECK(unit >= -1 && unit < scheduler.units);
        if (unit >= 0) {
            FUZZ_CHECK(asked == WORK_ASK && !early && !done[unit] && !given[unit]);
            given[unit] = 1;
        } else if (asked == WORK_ASK && !early) { /* nothing is left that nobody has */
            for (int64_t u = 0; u < scheduler.units; u++)
                FUZZ_CHECK(done[u] || given[u]);
        }
    }
}

/* ---- the commit ---- */

/* Placed only after all writers reported and the fence was passed; done only once that is on disk;
 * always ends. */
static void try_commit(fuzz_bytes *in)
{
    bool passed[BP_COMMIT_ABANDONED + 1] = {false};
    int64_t writers = fuzz_below(in, 5), reports = 0;
    bool placed = false;
    bp_commit commit;
    int steps = 0;

    bp_commit_begin(&commit);
    while (!bp_commit_is_over(&commit)) {
        bp_commit_step step = commit.step;
        bool ok = fuzz_below(in, 8) != 0 || in->left == 0;

        FUZZ_CHECK(++steps <= 32);
        if (step == BP_COMMIT_PLAN)
            bp_commit_expect(&commit, writers);
        for (int k = 0; step == BP_COMMIT_REPORTS && k < writers; k++)
            if (fuzz_below(in, 16) != 15) {
                bp_commit_report(&commit);
                reports++;
            }
        if (step == BP_COMMIT_PLACE)
            FUZZ_CHECK(passed[BP_COMMIT_OWNER] && passed[BP_COMMIT_LIST] &&
                       passed[BP_COMMIT_RECHECK] && reports == writers);
        if (step == BP_COMMIT_REMOVE)
            FUZZ_CHECK(passed[BP_COMMIT_MAKE] && !placed); /* never what has its name */
        bp_commit_next(&commit, ok);
        passed[step] = ok;
        if (ok && step == BP_COMMIT_PLACE)
            placed = true;
    }
    if (commit.step == BP_COMMIT_DONE)
        FUZZ_CHECK(placed && passed[BP_COMMIT_SYNC_PLACED] && passed[BP_COMMIT_SYNC_MADE] &&
                   passed[BP_COMMIT_WRITE] && passed[BP_COMMIT_PLAN]);
}

/* ---- the run folder's lock ---- */

#define JOBS    4
#define NUMBERS 64

typedef struct world {
    int made_by[NUMBERS]; /* 1 + the job that made the number; 0: it is not there */
    int highest_ever;
    lock_record jobs[JOBS];
    bool begun[JOBS], dead[JOBS];
    int heartbeats[JOBS];
    double now;
} world;

static int64_t highest(const world *w)
{
    for (int n = NUMBERS - 1; n > 0; n--)
        if (w->made_by[n] != 0)
            return n;
    return 0;
}

static lock_record_answer answer_of(const world *w, int64_t number, fuzz_bytes *in)
{
    int maker = w->made_by[number] - 1;

    if (maker < 0)
        return LOCK_RECORD_GONE;
    if (fuzz_below(in, 2) == 0)
        return LOCK_RECORD_UNKNOWN; /* its host can't be asked */
    return w->dead[maker] ? LOCK_RECORD_DEAD : LOCK_RECORD_ALIVE;
}

static void move(world *w, int j, fuzz_bytes *in)
{
    lock_record *job = &w->jobs[j];
    char heartbeat[LOCK_RECORD_HEARTBEAT_BYTES] = "";
    int maker;

    switch (job->step) {
    case LOCK_RECORD_LIST:
    case LOCK_RECORD_CONFIRM:
        lock_record_listed(job, highest(w));
        break;
    case LOCK_RECORD_ASK:
        lock_record_answered(job, answer_of(w, job->owner, in));
        break;
    case LOCK_RECORD_WATCH:
        maker = w->made_by[job->owner] - 1;
        if (maker >= 0)
            (void)snprintf(heartbeat, sizeof heartbeat, "%d", w->heartbeats[maker]);
        lock_record_watched(job, w->now, heartbeat, highest(w));
        break;
    case LOCK_RECORD_LINK:
        FUZZ_CHECK(job->number > 0);
        if (job->number >= NUMBERS)
            lock_record_linked(job, false);
        else {
            bool free_place = w->made_by[job->number] == 0;

            if (free_place)
                w->made_by[job->number] = j + 1;
            lock_record_linked(job, free_place);
        }
        break;
    case LOCK_RECORD_YIELD:
        FUZZ_CHECK(w->made_by[job->number] == j + 1);
        w->made_by[job->number] = 0;
        lock_record_yielded(job);
        break;
    case LOCK_RECORD_WON:
        w->heartbeats[j]++;
        break;
    case LOCK_RECORD_HELD:
    case LOCK_RECORD_CROWDED:
        break;
    }
}

/* At every moment no more than one job that asks learns that the run is its own. */
static void check_owner(const world *w)
{
    int owners = 0;

    for (int j = 0; j < JOBS; j++) {
        const lock_record *job = &w->jobs[j];
        lock_record_sight file;

        if (!w->begun[j] || job->step != LOCK_RECORD_WON)
            continue;
        file = w->made_by[job->number] == 0       ? LOCK_RECORD_MISSING
               : w->made_by[job->number] == j + 1 ? LOCK_RECORD_SEEN
                                                  : LOCK_RECORD_ANOTHERS;
        owners +=
            lock_record_is_own(job->number, LOCK_RECORD_SEEN, highest(w), file) == LOCK_RECORD_OURS;
        FUZZ_CHECK(lock_record_is_own(job->number, LOCK_RECORD_UNREADABLE, 0, file) ==
                   LOCK_RECORD_UNSURE);
    }
    FUZZ_CHECK(owners <= 1);
}

static void try_lock_record(fuzz_bytes *in)
{
    world w = {.now = 0};

    while (in->left > 0) {
        int j = fuzz_below(in, JOBS), what = fuzz_below(in, 16);

        if (what == 0) {
            w.dead[j] = true;
        } else if (what == 1) {
            w.now += fuzz_below(in, 100);
        } else if (!w.begun[j]) {
            lock_record_begin(&w.jobs[j], 60);
            w.begun[j] = true;
        } else if (!w.dead[j]) {
            move(&w, j, in);
        }
        check_owner(&w);
    }
}

/* Names in the lock's folder: numbers are read as they are written, and no job's own number is
 * litter. */
static void try_names(fuzz_bytes *in)
{
    char name[64] = "";
    size_t bytes = in->left < sizeof name - 1 ? in->left : sizeof name - 1;
    int64_t number = 1 + fuzz_u16(in), found;

    (void)snprintf(name, sizeof name, "owner-%06lld", (long long)number);
    FUZZ_CHECK(lock_record_number_of(name) == number && !lock_record_is_litter(name, number));
    memset(name, 0, sizeof name);
    bytes = bytes > in->left ? in->left : bytes;
    memcpy(name, in->data, bytes);
    found = lock_record_number_of(name);
    FUZZ_CHECK(found >= 0);
    if (found > 0)
        FUZZ_CHECK(strncmp(name, "owner-", 6) == 0 && !lock_record_is_litter(name, found));
}

/* ---- the watchdog ---- */

/* A diagnosis names a rank that is watched, and one that has something against it. */
static void try_watch(fuzz_bytes *in)
{
    bp_watch_spec spec = {.size = 1 + fuzz_below(in, 6),
                          .seconds = 60,
                          .heartbeat_seconds = 1,
                          .only_silence = fuzz_below(in, 4) == 3};
    bool left[8] = {false};
    bp_watch_diagnosis diagnosis;
    bp_watch_slow slow;
    bp_watch_heartbeat heartbeats[8] = {{.steps = 0}};
    bp_watch *watch;
    double now = 1000;

    watch = bp_watch_new(&spec);
    while (in->left > 0) {
        int rank = fuzz_below(in, spec.size), what = fuzz_below(in, 16);
        bp_watch_heartbeat *heartbeat = &heartbeats[rank];

        now += fuzz_below(in, 8) == 7 ? fuzz_below(in, 200) : 0.5;
        heartbeat->phase = what == 1 ? (bp_phase)fuzz_below(in, BP_PHASES) : heartbeat->phase;
        heartbeat->step += what == 2 ? (int8_t)fuzz_u8(in) : 0;
        heartbeat->steps += what == 2;
        heartbeat->collectives += what == 3;
        heartbeat->progress += what <= 4;
        heartbeat->busy_ns =
            what == 5 ? fuzz_u16(in) * INT64_C(100000000) : heartbeat->busy_ns + 1000000;
        heartbeat->peers = what == 6 ? fuzz_below(in, 3) - 1 : heartbeat->peers;
        heartbeat->waits = what == 7 ? !heartbeat->waits : heartbeat->waits;
        if (what == 8 && fuzz_below(in, 16) == 0) {
            left[rank] = true;
            bp_watch_leave(watch, rank);
        } else {
            bp_watch_receive(watch, rank, heartbeat, now);
            FUZZ_CHECK(bp_watch_is_known(watch, rank));
            FUZZ_CHECK(bp_watch_last(watch, rank)->progress == heartbeat->progress);
        }
        if (bp_watch_diagnose(watch, now, &diagnosis)) {
            FUZZ_CHECK(diagnosis.rank >= 0 && diagnosis.rank < spec.size);
            FUZZ_CHECK(bp_watch_is_known(watch, diagnosis.rank) && !left[diagnosis.rank]);
            FUZZ_CHECK(isfinite(diagnosis.seconds) && diagnosis.seconds >= 0);
            FUZZ_CHECK(!spec.only_silence || diagnosis.reason == BP_WATCH_SILENT);
        }
        for (int k = 0; bp_watch_next_slow(watch, &slow); k++) {
            FUZZ_CHECK(k < spec.size && slow.rank >= 0 && slow.rank < spec.size);
            FUZZ_CHECK(slow.ratio > 1 && slow.seconds > 0);
        }
    }
    bp_watch_free(&watch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const tries[])(fuzz_bytes * in) = {try_desk, try_commit, try_lock_record,
                                                     try_names, try_watch};
    fuzz_bytes in = {data, bytes};
    int which = fuzz_below(&in, 5);

    fuzz_begin();
    tries[which](&in);
    fuzz_end();
    return 0;
}
