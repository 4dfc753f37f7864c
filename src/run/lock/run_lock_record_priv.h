/* The lock of a run folder, only its decisions: what to do next, given what the folder shows and
 * what this machine's own clock says. run_lock.c does it on files; a simulator does it with jobs
 * that contend, stop, go on and die.
 *
 * The folder holds owner-NNNNNN, numbered from 1; the highest number is the owner. To take the lock
 * is to create the number after the highest, which link(2) grants to only one process, and to see
 * afterwards that no higher one is there.
 */
#ifndef BP_RUN_LOCK_RUN_LOCK_RECORD_PRIV_H
#define BP_RUN_LOCK_RUN_LOCK_RECORD_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#define LOCK_RECORD_HEARTBEAT_BYTES 32

/* ---- taking it ---- */

typedef enum lock_record_step {
    LOCK_RECORD_LIST,  /* which is the highest number? lock_record_listed() */
    LOCK_RECORD_ASK,   /* what of the process that holds `owner`? lock_record_answered() */
    LOCK_RECORD_WATCH, /* its heartbeat and the highest number, after a while: lock_record_watched()
                        */
    LOCK_RECORD_LINK,  /* create `number`: lock_record_linked() */
    LOCK_RECORD_CONFIRM, /* which is the highest number now? lock_record_listed() */
    LOCK_RECORD_YIELD,   /* others are beyond `number`: remove it, lock_record_yielded() */
    LOCK_RECORD_WON,
    LOCK_RECORD_HELD,   /* by a job that lives */
    LOCK_RECORD_CROWDED /* others were first again and again */
} lock_record_step;

typedef enum lock_record_answer {
    LOCK_RECORD_ALIVE,
    LOCK_RECORD_DEAD,
    LOCK_RECORD_UNKNOWN,
    LOCK_RECORD_GONE
} lock_record_answer;

typedef struct lock_record {
    lock_record_step step;
    int64_t owner;  /* the number that is held, 0: none */
    int64_t number; /* the one that is tried, then ours */
    int attempts;
    double watch_seconds, watch_end;
    bool watching;                               /* it has been seen once */
    char heartbeat[LOCK_RECORD_HEARTBEAT_BYTES]; /* what was seen then */
} lock_record;

void lock_record_begin(lock_record *self, double watch_seconds);
void lock_record_listed(lock_record *self, int64_t highest);
/** LOCK_RECORD_GONE: its file is not there any more. */
void lock_record_answered(lock_record *self, lock_record_answer answer);
/** `now`: this machine's own clock, read before the heartbeat was read. So a heartbeat counts as
 * stopped only if it was read again after the whole watch, however long this process slept in
 * between. `highest`: 0 where the folder could not be listed. */
void lock_record_watched(lock_record *self, double now, const char *heartbeat, int64_t highest);
/** False: another has that number. */
void lock_record_linked(lock_record *self, bool made);
void lock_record_yielded(lock_record *self);
bool lock_record_is_over(const lock_record *self);

/* ---- having it ---- */

typedef enum lock_record_claim {
    LOCK_RECORD_OURS,
    LOCK_RECORD_LOST,
    LOCK_RECORD_UNSURE
} lock_record_claim;
typedef enum lock_record_sight {
    LOCK_RECORD_SEEN,
    LOCK_RECORD_ANOTHERS,
    LOCK_RECORD_MISSING,
    LOCK_RECORD_UNREADABLE
} lock_record_sight;

/** Is `number` still the owner? `listing` and `file` say how it went to look at the folder and at
 * the number's file. What can't be read for a moment is not lost, but not known to be ours. */
lock_record_claim lock_record_is_own(int64_t number, lock_record_sight listing, int64_t highest,
                                     lock_record_sight file);

/** May the owner of `number` remove this name from the lock's folder? Numbers before the one it
 * followed (a challenger that still looks at that one is to find the number after it taken), and
 * drafts for numbers that are taken: not those of challengers who go for the next. */
bool lock_record_is_litter(const char *name, int64_t number);

/** The number in "owner-NNNNNN"; 0: another name. Beyond LOCK_RECORD_NUMBER_MAX it is none that a
 * job took: a listing refuses it. */
#define LOCK_RECORD_NUMBER_MAX INT64_C(999999999999)
int64_t lock_record_number_of(const char *name);

#endif
