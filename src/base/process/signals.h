/* What asks a job to stop: USR1, INT and TERM set a flag that the loops read at a step's end, and
 * so do those who look around for it meanwhile (a halt file, the job's time limit, another rank).
 */
#ifndef BP_BASE_SIGNALS_H
#define BP_BASE_SIGNALS_H

#include <stdbool.h>

typedef enum bp_stop {
    BP_STOP_NONE,
    BP_STOP_USR1,
    BP_STOP_INT,
    BP_STOP_TERM,
    BP_STOP_HALT,  /* a file in the run folder */
    BP_STOP_LIMIT, /* the time limit of the Slurm job */
    BP_STOP_RANK,  /* another rank was asked */
    BP_STOP_LOST   /* the run folder is not this job's any more */
} bp_stop;

/** USR1 is kept from here on, for what follows: bp_signals_init, or bp_signals_default. May be
 * called before any library is initialised. */
void bp_signals_keep(void);
/** USR1 is the system's again: of a program that has nothing to stop. One that was kept kills. */
void bp_signals_default(void);
void bp_signals_init(void); /* also ignores SIGPIPE and SIGXFSZ */
/** Handlers with SA_ONSTACK get a stack of their own, on the thread that calls this (the main one),
 * for good. A stack that overflowed has no space for them, and oneDNN's products in float32 use the
 * stack pointer for their workspace at times: what a handler pushed there would overwrite memory.
 */
void bp_signals_stack(void);
/** The calling thread leaves requests to stop and to print its stack to the main one, which has a
 * stack for handlers: for threads that compute beside it. */
void bp_signals_leave(void);
/** Calls the watches first, where there are any. Only on the thread that uses MPI. */
bool bp_signals_stop_asked(void);
/** The same as if USR1 had come, for another reason. The first reason is kept, except for TERM's.
 */
void bp_signals_ask_stop(bp_stop reason);
/** Why this process was asked to stop. */
bp_stop bp_signals_stop_reason(void);
/** "USR1", "TERM", "halt", "time limit" and so on; "" for BP_STOP_NONE. */
const char *bp_stop_name(bp_stop reason);
/** Register `poll`, which bp_signals_stop_asked() calls before it answers. Loops ask it once a
 * step, so code that must poll does it there (and may call bp_signals_ask_stop). At most 8, called
 * in the order of their registration; none is called again while one of them runs. */
void bp_signals_watch(void (*poll)(void *context), void *context);
/** Remove it; does nothing if it is not registered. */
void bp_signals_unwatch(void (*poll)(void *context), void *context);
/** TERM came, from mpirun, which kills its ranks a second or two later: only what is quick may
 * still be done. Whoever else sends TERM (Slurm, a person) waits longer. */
bool bp_signals_terminating(void);

#endif
