/* Only the decisions of a run folder's lock: what to do next, given what the folder shows and this
 * machine's own clock. run_lock.c carries them out on files; a simulator does so with jobs that
 * contend, stop, continue and die.
 *
 * The folder holds owner-NNNNNN, numbered from 1; the highest number is the owner. To take the lock
 * is to create the number after the highest, which link(2) allows to only one process, and then to
 * check that there is no higher one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LOCK_RECORD_HEARTBEAT_BYTES 32

/* ---- taking it ---- */

typedef enum lock_record_step {
    LOCK_RECORD_LIST,  /* which is the highest number? lock_record_listed() */
    LOCK_RECORD_ASK,   /* is the process that holds `owner` alive? lock_record_answered() */
    LOCK_RECORD_WATCH, /* its heartbeat and the highest number, after a while: lock_record_watched()
                        */
    LOCK_RECORD_LINK,  /* create `number`: lock_record_linked() */
    LOCK_RECORD_CONFIRM, /* which is the highest number now? lock_record_listed() */
    LOCK_RECORD_YIELD,   /* others are beyond `number`: remove it, lock_record_yielded() */
    LOCK_RECORD_WON,
    LOCK_RECORD_HELD,   /* by a job that lives */
    LOCK_RECORD_CROWDED /* others were first each time */
} lock_record_step;

typedef enum lock_record_answer {
    LOCK_RECORD_ALIVE,
    LOCK_RECORD_DEAD,
    LOCK_RECORD_UNKNOWN,
    LOCK_RECORD_GONE
} lock_record_answer;

typedef struct lock_record {
    lock_record_step step;
    int64_t owner;  /* the number of the owner; 0 without one */
    int64_t number; /* the number to create, then ours */
    int attempts;
    double watch_seconds, watch_end;
    bool watching;                               /* it has been seen once */
    char heartbeat[LOCK_RECORD_HEARTBEAT_BYTES]; /* the heartbeat seen then */
} lock_record;

void lock_record_begin(lock_record *self, double watch_seconds);
void lock_record_listed(lock_record *self, int64_t highest);
/** LOCK_RECORD_GONE: its file no longer exists. */
void lock_record_answered(lock_record *self, lock_record_answer answer);
/** `now`: this machine's own clock, read before the heartbeat was read. So a heartbeat counts as
 * stopped only if it was read again after the whole watch, however long this process slept in
 * between. `highest`: 0 where the folder could not be listed. */
void lock_record_watched(lock_record *self, double now, const char *heartbeat, int64_t highest);
/** made false: another process has that number. */
void lock_record_linked(lock_record *self, bool made);
void lock_record_yielded(lock_record *self);
bool lock_record_is_over(const lock_record *self);

/* ---- owning it ---- */

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

/** Is `number` still the owner? `listing` and `file` are the results of reading the folder and the
 * number's file. After a failed read the lock is not lost, but not known to be ours. */
lock_record_claim lock_record_is_own(int64_t number, lock_record_sight listing, int64_t highest,
                                     lock_record_sight file);

/** May the owner of `number` remove this name from the lock's folder? It may remove numbers before
 * its predecessor's, and drafts for numbers that are taken. The predecessor stays, so that a slow
 * challenger finds the number after it taken; drafts for the next number belong to challengers. */
bool lock_record_is_litter(const char *name, int64_t number);

/** The number in "owner-NNNNNN"; 0: another name. No job takes a number above
 * LOCK_RECORD_NUMBER_MAX: a listing rejects it. */
#define LOCK_RECORD_NUMBER_MAX INT64_C(999999999999)
int64_t lock_record_number_of(const char *name);
