/* The decisions of the queue of work: which unit a lead gets, given its reports. work_queue.c sends
 * requests and answers over MPI; a simulator replaces MPI in tests. Used only by src/job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum work_question {
    WORK_ASK,
    WORK_LEAVE,
    WORK_LEAVE_EARLY /* work is left undone: hand out nothing more */
} work_question;

typedef struct work_scheduler {
    int64_t units;
    const uint8_t *done; /* [units]; borrowed */
    int64_t next;        /* units before it are done or handed out */
    int64_t amount;      /* reported so far */
    int here;            /* leads that have not left */
    bool closed;         /* nothing more is handed out */
} work_scheduler;

/** Returns a unit; -1 if there is none, or the lead has left. */
int64_t work_scheduler_answer(work_scheduler *scheduler, work_question question, int64_t amount);
