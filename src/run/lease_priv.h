/* The lock of a run folder as decisions alone: what to do next, given what the folder shows and
 * what this machine's own clock says. run_lock.c does it on files; a simulator does it with jobs
 * that contend, stop, go on and die. Private to src/coordinator.
 *
 * The folder holds owner-NNNNNN, numbered from 1; the highest number is the owner. To take the lock
 * is to create the number after the highest, which link(2) grants to one process alone, and to see
 * afterwards that no higher one is there.
 */
#ifndef BP_RUN_LEASE_PRIV_H
#define BP_RUN_LEASE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#define LEASE_BEAT_BYTES 32

/* ---- taking it ---- */

typedef enum lease_step {
    LEASE_LIST,    /* which is the highest number? lease_listed() */
    LEASE_ASK,     /* what of the process that holds `holder`? lease_judged() */
    LEASE_WATCH,   /* its beat and the highest number, after a while: lease_watched() */
    LEASE_LINK,    /* create `number`: lease_linked() */
    LEASE_CONFIRM, /* which is the highest number now? lease_listed() */
    LEASE_YIELD,   /* others are beyond `number`: remove it, lease_yielded() */
    LEASE_WON,
    LEASE_HELD,   /* by a job that lives */
    LEASE_CROWDED /* others were first again and again */
} lease_step;

typedef enum lease_answer { LEASE_ALIVE, LEASE_DEAD, LEASE_UNKNOWN, LEASE_GONE } lease_answer;

typedef struct lease {
    lease_step step;
    int64_t holder; /* the number that is held, 0: none */
    int64_t number; /* the one that is tried, then ours */
    int attempts;
    double watch_seconds, watch_end;
    bool watching;               /* it has been seen once */
    char beat[LEASE_BEAT_BYTES]; /* what was seen then */
} lease;

void lease_begin(lease *self, double watch_seconds);
void lease_listed(lease *self, int64_t highest);
/** LEASE_GONE: its file is not there any more. */
void lease_judged(lease *self, lease_answer answer);
/** `now`: of this machine's own clock, read before the beat was: so the verdict that a beat stood
 * still rests on a look that came after the whole time, however long this process slept between.
 * `highest`: 0 where the folder could not be listed. */
void lease_watched(lease *self, double now, const char *beat, int64_t highest);
/** False: another has that number. */
void lease_linked(lease *self, bool made);
void lease_yielded(lease *self);
bool lease_is_over(const lease *self);

/* ---- having it ---- */

typedef enum lease_claim { LEASE_OURS, LEASE_LOST, LEASE_UNSURE } lease_claim;
typedef enum lease_sight {
    LEASE_SEEN,
    LEASE_ANOTHERS,
    LEASE_MISSING,
    LEASE_UNREADABLE
} lease_sight;

/** Is `number` still the owner? `listing` and `file` say how it went to look at the folder and at
 * the number's file. What can't be read for a moment is not lost, but not known to be ours. */
lease_claim lease_still_ours(int64_t number, lease_sight listing, int64_t highest,
                             lease_sight file);

/** May the owner of `number` remove this name from the lock's folder? Numbers before the one it
 * followed (a challenger that still looks at that one is to find the number after it taken), and
 * drafts for numbers that are taken: not those of challengers who go for the next. */
bool lease_is_litter(const char *name, int64_t number);

/** The number in "owner-NNNNNN"; 0: another name. Beyond LEASE_NUMBER_MAX it is none that a job
 * took: whoever lists it refuses it. */
#define LEASE_NUMBER_MAX INT64_C(999999999999)
int64_t lease_number_of(const char *name);

#endif
