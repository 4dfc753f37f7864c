/* What the watchdog decides, without threads, sockets or clocks: heartbeats of ranks come in with
 * the time at which they came, and a diagnosis comes out. A pure state machine, so that thousands
 * of histories can be played through it.
 *
 * A rank that is in a collective is a victim: the diagnosis names the rank that it waits for, which
 * is
 *   - a rank that no heartbeat comes from any more: stopped, or its host cut off or dead;
 *   - else a rank that computes, and has not moved on for as long as its phase allows;
 *   - else, where all that are heard wait, a rank of which nothing was ever heard;
 *   - else, where all wait for each other, the rank that has entered the fewest collectives.
 * Time that the watching process did not run (stopped with all others by the batch system, or the
 * machine slept) does not count. Local; no MPI.
 */
#ifndef BP_RUN_WATCHDOG_WATCH_STATE_H
#define BP_RUN_WATCHDOG_WATCH_STATE_H

#include "base/err.h"
#include "base/process/heartbeat.h"
#include <stdbool.h>
#include <stdint.h>

/** A clock that passes over its owner's own absences. */
typedef struct bp_watch_clock {
    double now;   /* seconds that counted */
    double seen;  /* the real time that came last */
    double leap;  /* no more than this counts between two looks */
    bool running; /* there was a first look */
} bp_watch_clock;
/** Bring it to the real time `now`; returns the time that counts. */
double bp_watch_clock_poll(bp_watch_clock *clock, double now);

typedef struct bp_watch_spec {
    int size;                 /* ranks */
    double seconds;           /* silence, or a step, that lasts longer is a fault */
    double heartbeat_seconds; /* between two heartbeats of a rank */
    bool only_silence;        /* no other fault is looked for: the watch of rank 0 by the others */
} bp_watch_spec;

/** What a rank says of itself. */
typedef struct bp_watch_heartbeat {
    bp_phase phase;
    int64_t step, steps, progress, collectives, busy_ns, commit_ns;
    int peers; /* ranks with the same number do the same work; -1: this one computes nothing */
    int waits; /* for other ranks: 0 or not */
} bp_watch_heartbeat;

typedef enum bp_watch_reason {
    BP_WATCH_SILENT,   /* nothing comes from it */
    BP_WATCH_COMPUTES, /* it is there, waits for nobody, and does not move on */
    BP_WATCH_WAITS     /* all wait, and it has come least far */
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

/** A heartbeat has come. A rank is missed from its first one on; before, where all others wait. */
void bp_watch_receive(bp_watch *watch, int rank, const bp_watch_heartbeat *heartbeat, double now);
/** This rank has said that it leaves: it is not watched any more. */
void bp_watch_leave(bp_watch *watch, int rank);
/** Has a heartbeat of it come? */
bool bp_watch_is_known(const bp_watch *watch, int rank);
/** The last heartbeat of a known rank. */
const bp_watch_heartbeat *bp_watch_last(const bp_watch *watch, int rank);

/** Does nobody move on? To be asked once a heartbeat or more often. */
bool bp_watch_diagnose(bp_watch *watch, double now, bp_watch_diagnosis *out);
/** The next rank found slow since the last call, once for each stretch of being slow. A stretch
 * begins and ends with 20 steps whose mean is, or is no longer, beyond 1.5 of the median. */
bool bp_watch_next_slow(bp_watch *watch, bp_watch_slow *out);

#endif
