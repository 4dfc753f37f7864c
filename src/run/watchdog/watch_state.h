/* Only the watchdog's decisions, without threads, sockets or clocks: it takes heartbeats of ranks
 * with their arrival times, and returns a diagnosis. A pure state machine, so that tests can replay
 * thousands of histories.
 *
 * A rank in a collective is a victim. The diagnosis names the rank that it waits for, which is
 *   - a rank that sends no heartbeats any more: stopped, or its host disconnected or dead;
 *   - else a rank that computes, without progress for longer than its phase allows;
 *   - else, if all known ranks wait, a rank that never sent a heartbeat;
 *   - else, if all wait for each other, the rank that has entered the fewest collectives.
 *
 * Time during which the watching process did not run (suspended with all others by the batch
 * system, or the machine slept) does not count. Local; no MPI.
 */
#pragma once

#include "base/err.h"
#include "base/process/heartbeat.h"
#include <stdbool.h>
#include <stdint.h>

/** A clock that skips times when its own process did not run. */
typedef struct bp_watch_clock {
    double now;   /* seconds that counted */
    double seen;  /* the last real time */
    double leap;  /* the most that counts between two polls */
    bool running; /* polled at least once */
} bp_watch_clock;
/** Advance it to the real time `now`; returns the counted time. */
double bp_watch_clock_poll(bp_watch_clock *clock, double now);

typedef struct bp_watch_spec {
    int size;                 /* ranks */
    double seconds;           /* a longer silence or step is a fault */
    double heartbeat_seconds; /* between two heartbeats of a rank */
    bool only_silence;        /* look for no other fault: the others' watch of rank 0 */
} bp_watch_spec;

/** A rank's report of itself. */
typedef struct bp_watch_heartbeat {
    bp_phase phase;
    int64_t step, steps, progress, collectives, busy_ns, commit_ns;
    int peers; /* ranks with the same number do the same work; -1: does not compute */
    int waits; /* nonzero: waits for other ranks */
} bp_watch_heartbeat;

typedef enum bp_watch_reason {
    BP_WATCH_SILENT,   /* it sends nothing */
    BP_WATCH_COMPUTES, /* it is alive, waits for no rank, and makes no progress */
    BP_WATCH_WAITS     /* all wait, and it is the least advanced */
} bp_watch_reason;

typedef struct bp_watch_diagnosis {
    int rank;
    bp_watch_reason reason;
    double seconds; /* without progress */
} bp_watch_diagnosis;

typedef struct bp_watch_slow {
    int rank;
    double ratio;   /* its time for a step outside collectives, by the median of its peers */
    double seconds; /* that time */
} bp_watch_slow;

typedef struct bp_watch bp_watch;

/** The caller's, bp_watch_free(). */
bp_watch *bp_watch_new(const bp_watch_spec *spec);
void bp_watch_free(bp_watch **watch);

/** Takes a heartbeat. A rank can be silent only after its first one, or if all others wait. */
void bp_watch_receive(bp_watch *watch, int rank, const bp_watch_heartbeat *heartbeat, double now);
/** Stops watching a rank that has announced its exit. */
void bp_watch_leave(bp_watch *watch, int rank);
/** Has it sent a heartbeat? */
bool bp_watch_is_known(const bp_watch *watch, int rank);
/** The last heartbeat of a known rank. */
const bp_watch_heartbeat *bp_watch_last(const bp_watch *watch, int rank);

/** Has all progress stopped? Call at least once per heartbeat. */
bool bp_watch_diagnose(bp_watch *watch, double now, bp_watch_diagnosis *out);
/** The next rank found slow since the last call, once for each slow period. A period begins with 20
 * steps whose mean exceeds 1.5 x the median, and ends with 20 that do not. */
bool bp_watch_next_slow(bp_watch *watch, bp_watch_slow *out);
