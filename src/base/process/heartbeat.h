/* What this process is doing, in a few numbers that a watchdog's thread may read at any moment:
 * the phase, the step, how often something has moved on, and the collective it is in.
 *
 * The main thread writes; a write costs a few relaxed stores and a read of the clock. A field is
 * never torn, but two fields read together may be a moment apart. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_phase {
    BP_PHASE_START,      /* opening files, building the model */
    BP_PHASE_LOAD,       /* reading a checkpoint */
    BP_PHASE_STEP,       /* training: optimizer steps */
    BP_PHASE_VALIDATE,   /* over the validation corpus */
    BP_PHASE_CHECKPOINT, /* committing one */
    BP_PHASE_SCORE,      /* batches of a corpus */
    BP_PHASE_MERGE,      /* tables and summaries */
    BP_PHASE_FIT,        /* fits of uncertainty methods: curvature, temperatures, resamples */
    BP_PHASE_COUNT,      /* n-grams of a corpus: read, sorted, merged, made into a model */
    BP_PHASE_BENCH,      /* measuring: work of very different lengths */
    BP_PHASE_END,        /* closing */
    BP_PHASES
} bp_phase;

/** "step", "checkpoint" and so on. */
const char *bp_phase_name(bp_phase phase);

/** Enter a phase; returns the one before, to come back to. Counts as progress. */
bp_phase bp_heartbeat_phase(bp_phase phase);
/** Called when a phase begins, on the main thread; NULL: no call. */
typedef void bp_phase_listener(bp_phase phase);
void bp_heartbeat_listen(bp_phase_listener *listener);
/** The training step at work, or the batch. Counts as progress. */
void bp_heartbeat_step(int64_t step);
/** Report the total time of the checkpoint that has just ended, in BP_PHASE_CHECKPOINT or not. */
void bp_heartbeat_commit(double seconds);
/** Something has moved on. */
void bp_heartbeat_progress(void);
/** Don't count calls of the calling thread as progress or waits of its rank: for helpers that run
 * during a step and would hide that it hangs. */
void bp_heartbeat_beside(void);
/** This process enters, and leaves, a collective or a wait for another rank; `what` is a literal.
 * They may be nested: the outer one counts. Both count as progress. */
void bp_heartbeat_enter(const char *what);
void bp_heartbeat_leave(void);

typedef struct bp_heartbeat {
    bp_phase phase;
    int64_t step;
    int64_t progress;       /* only grows */
    int64_t collectives;    /* entered so far */
    const char *collective; /* the current one, or the last one; "" before the first */
    bool waits;             /* this rank is in that collective */
    int64_t waited_ns;      /* spent in completed collectives */
    int64_t steps;          /* bp_heartbeat_step() calls in BP_PHASE_STEP */
    int64_t commit_ns;      /* duration of the last checkpoint; 0 before the first */
    int64_t busy_ns;        /* spent in BP_PHASE_STEP up to the last of them, outside collectives */
} bp_heartbeat;
/** From any thread. */
void bp_heartbeat_read(bp_heartbeat *out);
