/* What this process is doing, in a few numbers that a watchdog's thread may read at any moment: the
 * phase, the step, how often something has moved on, and the collective it is in.
 *
 * The main thread writes, and pays a few relaxed stores and a look at the clock for it; what it
 * writes is never torn, but two fields read together may be a moment apart. */
#ifndef BP_BASE_HEARTBEAT_H
#define BP_BASE_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_phase {
    BP_PHASE_START,      /* opening files, building the model */
    BP_PHASE_LOAD,       /* reading a checkpoint */
    BP_PHASE_STEP,       /* training: one optimizer step after another */
    BP_PHASE_VALIDATE,   /* over the validation corpus */
    BP_PHASE_CHECKPOINT, /* committing one */
    BP_PHASE_SCORE,      /* batches of a corpus */
    BP_PHASE_MERGE,      /* tables and summaries */
    BP_PHASE_FIT,        /* what uncertainty fits: curvature, temperatures, resamples */
    BP_PHASE_COUNT,      /* n-grams of a corpus: read, sorted, merged, made into a model */
    BP_PHASE_BENCH,      /* measuring: work of very different lengths, one after another */
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
/** The checkpoint that is over now took that long in all, however little of it in
 * BP_PHASE_CHECKPOINT. */
void bp_heartbeat_commit(double seconds);
/** Something has moved on. */
void bp_heartbeat_progress(void);
/** What the calling thread does is no progress of its rank, and no wait: for helpers that work
 * beside a step, lest they hide that it hangs. */
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
    const char *collective; /* the one at work, or the last one; "" before the first */
    bool waits;             /* this rank is in that collective */
    int64_t waited_ns;      /* spent in collectives that are over */
    int64_t steps;          /* bp_heartbeat_step() calls in BP_PHASE_STEP */
    int64_t commit_ns;      /* that the last checkpoint took; 0: none yet */
    int64_t busy_ns;        /* spent in BP_PHASE_STEP up to the last of them, outside collectives */
} bp_heartbeat;
/** From any thread. */
void bp_heartbeat_read(bp_heartbeat *out);

#endif
