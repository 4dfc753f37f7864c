/* The watchdog's judgement, played through thousands of histories of a small imaginary job: steps,
 * checkpoints, lost and late heartbeats, jobs that are suspended as a whole, and one fault. */
#include "bp_test.h"

#include "run/watchdog/watch_state.h"

#define SECONDS   20.0
#define HEARTBEAT 1.0
#define TICK      0.25 /* of the imaginary time */
#define RANKS_MAX 8
#define HISTORIES 1000
#define PEACE     400.0 /* a history without a fault is as long */

/* ---- chance ---- */

static uint64_t chance_state;

static uint64_t chance(void) /* splitmix64 */
{
    uint64_t z = (chance_state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double chance_between(double low, double high)
{
    return low + (high - low) * (double)(chance() >> 11) * 0x1p-53;
}

static int chance_below(int n)
{
    return (int)(chance() % (uint64_t)n);
}

/* ---- an imaginary job ---- */

typedef enum fault_kind { NO_FAULT, STOPPED, SPINNING, DEADLOCK, FAULTS } fault_kind;

typedef struct one_rank {
    bp_watch_heartbeat now,
        under_way;                  /* as it is; as it was when the heartbeat that travels left */
    double work;                    /* seconds until it reaches the collective */
    double next_heartbeat, arrives; /* arrives < 0: no heartbeat travels */
    double progress_at;             /* when it moved on last */
} one_rank;

typedef struct job {
    int size;
    one_rank ranks[RANKS_MAX];
    double step_seconds, loss, delay, slowest;
    double time, suspended; /* `suspended`: when the whole job sleeps; < 0: never */
    fault_kind fault;
    int culprit;
    double fault_at, faulted_at; /* faulted_at < 0: not yet */
    int64_t step;
    bp_watch *coordinator, *other; /* of rank 0, of rank 1 */
} job;

static void move_on(job *j, int r)
{
    j->ranks[r].now.progress++;
    j->ranks[r].progress_at = j->time;
}

/* A step, or now and then a checkpoint that rank 0 writes while the others wait. */
static void begin_step(job *j)
{
    bool commits = j->step > 0 && chance_below(10) == 0;

    j->step++;
    for (int r = 0; r < j->size; r++) {
        one_rank *rank = &j->ranks[r];
        double part = chance_between(0.2, 1);

        rank->work =
            commits ? (r == 0 ? chance_between(0, SECONDS * 1.5) : 0) : part * j->step_seconds;
        rank->now.phase = commits ? BP_PHASE_CHECKPOINT : BP_PHASE_STEP;
        rank->now.step = j->step;
        rank->now.steps += !commits;
        rank->now.busy_ns += (int64_t)(rank->work * 1e9);
        rank->now.waits = false;
        if (rank->work > j->slowest)
            j->slowest = rank->work;
        move_on(j, r);
    }
}

static void job_init(job *j, uint64_t seed)
{
    chance_state = seed;
    *j = (job){.size = 1 + chance_below(RANKS_MAX),
               .step_seconds = chance_below(2) ? 0.5 : chance_between(0.5, 15),
               .loss = chance_between(0, 0.2),
               .delay = chance_between(0, 0.9),
               .fault = (fault_kind)chance_below(FAULTS),
               .fault_at = chance_between(10, 200), /* all have been heard */
               .faulted_at = -1};
    bp_watch_spec spec = {.size = j->size, .seconds = SECONDS, .heartbeat_seconds = HEARTBEAT};

    j->culprit = chance_below(j->size);
    j->suspended = chance_below(3) == 0 ? chance_between(0, 100) : -1;
    for (int r = 0; r < j->size; r++)
        j->ranks[r] = (one_rank){.next_heartbeat = chance_between(0, HEARTBEAT), .arrives = -1};
    j->coordinator = bp_watch_new(&spec);
    spec.size = 1;
    spec.only_silence = true;
    j->other = bp_watch_new(&spec);
    begin_step(j);
}

static void job_clear(job *j)
{
    bp_watch_free(&j->coordinator);
    bp_watch_free(&j->other);
}

static bool is_out(const job *j, int r, fault_kind kind)
{
    return j->faulted_at >= 0 && j->fault == kind && j->culprit == r;
}

/* A rank that is stopped or spins does so in its work; who waits for it waits on. */
static void run_rank(job *j, int r)
{
    one_rank *rank = &j->ranks[r];

    if (rank->now.waits || is_out(j, r, STOPPED) || is_out(j, r, SPINNING))
        return;
    rank->work -= TICK;
    if (rank->work > 0)
        return;
    rank->now.waits = true;
    rank->now.collectives++;
    move_on(j, r);
}

static bool all_wait(const job *j)
{
    for (int r = 0; r < j->size; r++)
        if (!j->ranks[r].now.waits)
            return false;
    return true;
}

static void try_fault(job *j)
{
    if (j->fault == NO_FAULT || j->faulted_at >= 0 || j->time < j->fault_at)
        return;
    if (j->fault == SPINNING && j->ranks[j->culprit].now.waits)
        return; /* it begins to spin in its work */
    if (j->fault == DEADLOCK) {
        if (!all_wait(j))
            return;
        j->ranks[j->culprit].now.collectives--; /* it waits somewhere else */
    }
    j->faulted_at = j->time;
}

static void run_job(job *j)
{
    for (int r = 0; r < j->size; r++)
        run_rank(j, r);
    try_fault(j);
    if (all_wait(j) && !(j->faulted_at >= 0 && j->fault == DEADLOCK))
        begin_step(j);
}

/* Beats of all to rank 0, and its answers to rank 1, some lost, some late. */
static void send_heartbeats(job *j)
{
    for (int r = 0; r < j->size; r++) {
        one_rank *rank = &j->ranks[r];

        if (!is_out(j, r, STOPPED) && j->time >= rank->next_heartbeat) {
            rank->next_heartbeat += HEARTBEAT;
            if (chance_between(0, 1) >= j->loss && rank->arrives < 0) {
                rank->under_way = rank->now;
                rank->arrives = r == 0 ? j->time : j->time + chance_between(0, j->delay);
            }
        }
        if (rank->arrives >= 0 && j->time >= rank->arrives) {
            rank->arrives = -1;
            bp_watch_receive(j->coordinator, r, &rank->under_way, j->time);
            if (r == 0)
                bp_watch_receive(j->other, r, &rank->under_way, j->time);
        }
    }
}

static void suspend_all(job *j)
{
    if (j->suspended < 0 || j->time < j->suspended)
        return;
    j->suspended = -1;
    j->time += 5000;
    j->fault_at += 5000;
    if (j->faulted_at >= 0)
        j->faulted_at += 5000;
    for (int r = 0; r < j->size; r++) {
        j->ranks[r].next_heartbeat += 5000;
        j->ranks[r].progress_at += 5000;
        if (j->ranks[r].arrives >= 0)
            j->ranks[r].arrives += 5000;
    }
}

/* What the job may take at most until the fault is seen: a limit of its phase, and two heartbeats,
 * and what heartbeats may be lost or late, and a commit under way. */
static double patience(const job *j)
{
    double step = 10 * (2 * j->slowest + 4 * HEARTBEAT);
    double limit =
        step > 10 * SECONDS ? step : 10 * SECONDS; /* of a first step, or a first commit */

    return j->fault == STOPPED ? SECONDS + 2 * HEARTBEAT + 1 : limit + 10 * HEARTBEAT;
}

/* One history; true: a diagnosis fell. */
static bool play(job *j, bp_watch_diagnosis *diagnosis, double *took)
{
    for (;;) {
        bool watcher_stopped = is_out(j, 0, STOPPED);

        suspend_all(j);
        run_job(j);
        send_heartbeats(j);
        if (!watcher_stopped && bp_watch_diagnose(j->coordinator, j->time, diagnosis))
            break;
        if (j->size > 1 && !is_out(j, 1, STOPPED) &&
            bp_watch_diagnose(j->other, j->time, diagnosis))
            break;
        *took = j->time - j->faulted_at;
        if (j->faulted_at < 0 ? j->time > PEACE + 5000 : *took > patience(j))
            return false;
        j->time += TICK;
    }
    *took = j->time - j->faulted_at;
    return true;
}

static void check_history(uint64_t seed)
{
    static const bp_watch_reason REASONS[FAULTS] = {
        [STOPPED] = BP_WATCH_SILENT, [SPINNING] = BP_WATCH_COMPUTES, [DEADLOCK] = BP_WATCH_WAITS};
    bp_watch_diagnosis diagnosis = {.rank = -1};
    double took = 0;
    job j;
    bool fell, right;

    job_init(&j, seed);
    fell = play(&j, &diagnosis, &took);
    if (j.faulted_at < 0 || (j.fault == STOPPED && j.size == 1))
        right = !fell; /* nobody is left to say so */
    else if (!fell)
        right = false;
    else
        right = diagnosis.rank == j.culprit && diagnosis.reason == REASONS[j.fault];
    if (!right)
        print_error("history %llu: %d ranks, fault %d of rank %d after %.2f s (a step of %.2f s): "
                    "%s rank %d, reason %d, after %.2f s\n",
                    (unsigned long long)seed, j.size, (int)j.fault, j.culprit, j.faulted_at,
                    j.step_seconds, fell ? "named" : "nobody, not", diagnosis.rank,
                    (int)diagnosis.reason, took);
    job_clear(&j);
    assert_true(right);
}

static void culprits_are_named_and_nobody_else(void **state)
{
    (void)state;
    const char *more = getenv("BAGPIPE_TEST_HISTORIES");
    uint64_t histories = more == NULL ? HISTORIES : strtoull(more, NULL, 10);

    for (uint64_t seed = 1; seed <= histories; seed++)
        check_history(seed);
}

/* ---- single claims ---- */

static bp_watch *watch_of(int size)
{
    bp_watch_spec spec = {.size = size, .seconds = SECONDS, .heartbeat_seconds = HEARTBEAT};
    bp_watch *watch;

    watch = bp_watch_new(&spec);
    return watch;
}

static void time_that_nobody_saw_does_not_count(void **state)
{
    (void)state;
    bp_watch_clock clock = {.leap = 2};

    assert_true(bp_watch_clock_poll(&clock, 100) == 0);
    assert_true(bp_watch_clock_poll(&clock, 101) == 1);
    assert_true(bp_watch_clock_poll(&clock, 5000) == 3);
    assert_true(bp_watch_clock_poll(&clock, 4000) == 3); /* nor does it run backwards */
}

/* It may be that a firewall keeps its heartbeats: then the others go on. */
static void rank_that_was_never_heard_is_named_once_nobody_goes_on(void **state)
{
    (void)state;
    bp_watch *watch = watch_of(3);
    bp_watch_heartbeat waits = {.phase = BP_PHASE_START, .waits = true};
    bp_watch_diagnosis diagnosis;
    double now = 0, moved = 0;
    bool stuck = false;

    for (; now < 100 * SECONDS; now += HEARTBEAT) {
        if ((int)now % (int)SECONDS == 0) {
            waits.progress++;
            moved = now;
        }
        bp_watch_receive(watch, 0, &waits, now);
        bp_watch_receive(watch, 2, &waits, now);
        assert_false(bp_watch_diagnose(watch, now, &diagnosis));
    }
    for (; !stuck && now < 200 * SECONDS; now += HEARTBEAT) {
        bp_watch_receive(watch, 0, &waits, now);
        bp_watch_receive(watch, 2, &waits, now);
        stuck = bp_watch_diagnose(watch, now, &diagnosis);
    }
    assert_true(stuck);
    assert_int_equal(diagnosis.rank, 1);
    assert_int_equal(diagnosis.reason, BP_WATCH_SILENT);
    assert_true(now - moved < 11 * SECONDS);
    assert_false(bp_watch_is_known(watch, 1));
    bp_watch_free(&watch);
}

static void rank_that_left_is_not_missed(void **state)
{
    (void)state;
    bp_watch *watch = watch_of(2);
    bp_watch_heartbeat heartbeat = {.phase = BP_PHASE_END};
    bp_watch_diagnosis diagnosis;

    bp_watch_receive(watch, 1, &heartbeat, 0);
    bp_watch_leave(watch, 1);
    for (double now = 0; now < 10 * SECONDS; now += HEARTBEAT) {
        heartbeat.progress++;
        bp_watch_receive(watch, 0, &heartbeat, now);
        assert_false(bp_watch_diagnose(watch, now, &diagnosis));
    }
    bp_watch_free(&watch);
}

/* What other ranks ask of rank 0: that it is there, however long it computes. */
static void only_silence_is_looked_for(void **state)
{
    (void)state;
    bp_watch_spec spec = {
        .size = 1, .seconds = SECONDS, .heartbeat_seconds = HEARTBEAT, .only_silence = true};
    bp_watch *watch;
    bp_watch_heartbeat heartbeat = {.phase = BP_PHASE_STEP};
    bp_watch_diagnosis diagnosis;
    double now = 0;
    bool silent = false;

    watch = bp_watch_new(&spec);
    for (; now < 50 * SECONDS; now += HEARTBEAT) {
        heartbeat.waits = now > 20 * SECONDS;
        bp_watch_receive(watch, 0, &heartbeat, now);
        assert_false(bp_watch_diagnose(watch, now, &diagnosis));
    }
    for (; !silent && now < 60 * SECONDS; now += HEARTBEAT)
        silent = bp_watch_diagnose(watch, now, &diagnosis);
    assert_true(silent && now < 51.1 * SECONDS);
    assert_int_equal(diagnosis.rank, 0);
    assert_int_equal(diagnosis.reason, BP_WATCH_SILENT);
    bp_watch_free(&watch);
}

/* Steps of 100 s: a rank may take ten of them, and 60 s of silence are too long all the same. */
static void long_steps_are_waited_for(void **state)
{
    (void)state;
    bp_watch *watch = watch_of(1);
    bp_watch_heartbeat heartbeat = {.phase = BP_PHASE_STEP};
    bp_watch_diagnosis diagnosis;
    double now = 0, moved = 0;
    bool stuck = false;

    for (; now < 600 && !stuck; now += HEARTBEAT) {
        if ((int)now % 100 == 0) {
            heartbeat.step = ++heartbeat.steps;
            heartbeat.progress++;
            moved = now;
        }
        bp_watch_receive(watch, 0, &heartbeat, now);
        stuck = bp_watch_diagnose(watch, now, &diagnosis);
    }
    assert_false(stuck);
    for (; !stuck; now += HEARTBEAT) {
        bp_watch_receive(watch, 0, &heartbeat, now);
        stuck = bp_watch_diagnose(watch, now, &diagnosis);
    }
    assert_true(now - moved > 900 && now - moved < 1100);
    bp_watch_free(&watch);
}

/* 25 steps of all ranks; rank `slow` takes `factor` times as long as the others' 10 ms. */
static void walk(bp_watch *watch, bp_watch_heartbeat heartbeats[], int size, int slow,
                 double factor, double *now)
{
    bp_watch_diagnosis diagnosis;

    for (int r = 0; r < size; r++) {
        heartbeats[r].phase = BP_PHASE_STEP;
        heartbeats[r].step = heartbeats[r].steps += 25;
        heartbeats[r].progress += 25;
        heartbeats[r].busy_ns += (int64_t)(25 * 1e7 * (r == slow ? factor : 1));
        bp_watch_receive(watch, r, &heartbeats[r], *now);
    }
    assert_false(bp_watch_diagnose(watch, *now, &diagnosis));
    *now += HEARTBEAT;
}

static void slow_rank_is_reported_once_a_stretch(void **state)
{
    (void)state;
    bp_watch *watch = watch_of(4);
    bp_watch_heartbeat heartbeats[4] = {{.peers = 0}};
    bp_watch_slow slow;
    double now = 0;

    walk(watch, heartbeats, 4, -1, 1, &now);
    walk(watch, heartbeats, 4, 2, 1.4, &now);
    assert_false(bp_watch_next_slow(watch, &slow));
    for (int stretch = 0; stretch < 2; stretch++) {
        walk(watch, heartbeats, 4, 2, 2, &now);
        assert_true(bp_watch_next_slow(watch, &slow));
        assert_int_equal(slow.rank, 2);
        assert_true(slow.ratio > 1.99 && slow.ratio < 2.01);
        assert_true(slow.seconds > 0.0199 && slow.seconds < 0.0201);
        walk(watch, heartbeats, 4, 2, 3, &now);
        assert_false(bp_watch_next_slow(watch, &slow));
        walk(watch, heartbeats, 4, -1, 1, &now);
        assert_false(bp_watch_next_slow(watch, &slow));
    }
    bp_watch_free(&watch);
}

/* A stage of a pipeline may have more to do than another; a coordinator computes nothing. */
static void only_peers_are_compared(void **state)
{
    (void)state;
    bp_watch *watch = watch_of(4);
    bp_watch_heartbeat heartbeats[4] = {{.peers = -1}, {.peers = 0}, {.peers = 0}, {.peers = 1}};
    bp_watch_slow slow;
    double now = 0;

    for (int k = 0; k < 4; k++)
        walk(watch, heartbeats, 4, 3, 5, &now);
    assert_false(bp_watch_next_slow(watch, &slow));
    for (int k = 0; k < 2; k++)
        walk(watch, heartbeats, 4, 2, 5, &now);
    assert_true(bp_watch_next_slow(watch, &slow));
    assert_int_equal(slow.rank, 2);
    bp_watch_free(&watch);
}

/* ---- many ranks ---- */

/* A thousand that say whatever: nothing is named that was not received, or has left, and what is
 * reported of a rank is a number. */
static void thousand_ranks_may_say_anything(void **state)
{
    enum { MANY = 1000, TICKS = 200, SILENT = 700 };
    bp_watch_spec spec = {.size = MANY, .seconds = SECONDS, .heartbeat_seconds = HEARTBEAT};
    bp_watch_diagnosis diagnosis = {.rank = 0};
    bp_watch *watch;
    int diagnoses = 0;

    (void)state;
    chance_state = 1000;
    watch = bp_watch_new(&spec);
    for (int tick = 0; tick < TICKS; tick++) {
        double now = tick * HEARTBEAT;
        bp_watch_slow slow;

        for (int r = 0; r < MANY; r++) {
            bp_watch_heartbeat heartbeat = {.phase = (bp_phase)chance_below(BP_PHASES),
                                            .step = chance_below(1000),
                                            .steps = chance_below(1000),
                                            .progress = chance_below(3),
                                            .collectives = chance_below(100),
                                            .busy_ns = (int64_t)(chance() >> 2),
                                            .commit_ns = chance_below(1000000000),
                                            .peers = chance_below(6) - 1,
                                            .waits = chance_below(2) == 1};

            if (chance_below(10) > 0 && (r != SILENT || tick < 10))
                bp_watch_receive(watch, r, &heartbeat, now);
        }
        if (tick == 20)
            bp_watch_leave(watch, 999);
        if (bp_watch_diagnose(watch, now, &diagnosis)) {
            assert_in_range(diagnosis.rank, 0, MANY - 2);
            diagnoses++;
        }
        while (bp_watch_next_slow(watch, &slow))
            assert_in_range(slow.rank, 0, MANY - 1);
    }
    assert_true(diagnoses > 0);
    assert_int_equal(diagnosis.rank, SILENT);
    assert_int_equal(diagnosis.reason, BP_WATCH_SILENT);
    bp_watch_free(&watch);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(culprits_are_named_and_nobody_else),
        cmocka_unit_test(time_that_nobody_saw_does_not_count),
        cmocka_unit_test(rank_that_was_never_heard_is_named_once_nobody_goes_on),
        cmocka_unit_test(rank_that_left_is_not_missed),
        cmocka_unit_test(only_silence_is_looked_for),
        cmocka_unit_test(long_steps_are_waited_for),
        cmocka_unit_test(slow_rank_is_reported_once_a_stretch),
        cmocka_unit_test(only_peers_are_compared),
        cmocka_unit_test(thousand_ranks_may_say_anything),
    };
    return BP_TEST_RUN(tests);
}
