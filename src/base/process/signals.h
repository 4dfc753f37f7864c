/* Stop requests: USR1, INT and TERM set a flag that the loops read at the end of a step. So do
 * pollers (a halt file, the job's time limit, another rank).
 */
#pragma once

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

/** Record USR1 from here on, for bp_signals_init or bp_signals_default. May be called before any
 * library is initialised. */
void bp_signals_keep(void);
/** Restore the default of USR1, for a program with nothing to stop. A recorded USR1 kills the
 * program. */
void bp_signals_default(void);
void bp_signals_init(void); /* also ignores SIGPIPE and SIGXFSZ */
/** Give handlers with SA_ONSTACK their own stack, permanently, on the calling (main) thread. An
 * overflowed stack has no space for them, and oneDNN's float32 kernels sometimes use the stack
 * pointer for their workspace: a handler on that stack would overwrite memory.
 */
void bp_signals_stack(void);
/** Leave requests to stop and to print a stack to the main thread, which has a stack for handlers.
 * Called on other threads that compute. */
void bp_signals_leave(void);
/** Calls the registered pollers first. Only on the thread that uses MPI. */
bool bp_signals_stop_asked(void);
/** As if USR1 had arrived, for another reason. The first reason is kept, except that TERM replaces
 * it.
 */
void bp_signals_ask_stop(bp_stop reason);
/** Why this process was asked to stop. */
bp_stop bp_signals_stop_reason(void);
/** "USR1", "TERM", "halt", "time limit" and so on; "" for BP_STOP_NONE. */
const char *bp_stop_name(bp_stop reason);
/** Register `poll`, which bp_signals_stop_asked() calls before it returns. Loops call that once a
 * step, so code that must poll does it there (and may call bp_signals_ask_stop). At most 8, called
 * in the order of their registration; not called recursively. */
void bp_signals_watch(void (*poll)(void *context), void *context);
/** Remove it; does nothing if it is not registered. */
void bp_signals_unwatch(void (*poll)(void *context), void *context);
/** TERM came from mpirun, which kills its ranks a second or two later: only quick work may still
 * be done. Other senders of TERM (Slurm, a person) wait longer. */
bool bp_signals_terminating(void);
