/* Signals that ask a job to stop: USR1 and INT set a flag that the loops read at a step's end.
 * TERM sets the flag as well (mpirun kills ranks a second or two later: no commit is started for
 * it). */
#ifndef BP_BASE_SIGNALS_H
#define BP_BASE_SIGNALS_H

#include <stdbool.h>

void bp_signals_init(void); /* also ignores SIGPIPE and SIGXFSZ */
/** Calls the watch first, where there is one. On the thread that uses MPI alone. */
bool bp_signals_stop_asked(void);
/** The same as if USR1 had come: another rank was asked to stop. */
void bp_signals_ask_stop(void);
/** Let bp_signals_stop_asked() call `look` before it answers: loops ask it once a step, so this is
 * where a job around them hears from other ranks (and may call bp_signals_ask_stop). While `look`
 * runs, it is not called again. NULL: nothing more. */
void bp_signals_watch(void (*look)(void *context), void *context);
/** TERM came: death follows in a second or two, so that only what is quick may still be done. */
bool bp_signals_terminating(void);

#endif
