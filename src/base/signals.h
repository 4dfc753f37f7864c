/* Signals that ask a job to stop: USR1 and INT set a flag that the loops read at a step's end.
 * TERM sets the flag as well (mpirun kills ranks a second or two later: no commit is started for
 * it). */
#ifndef BP_BASE_SIGNALS_H
#define BP_BASE_SIGNALS_H

#include <stdbool.h>

void bp_signals_init(void); /* also ignores SIGPIPE and SIGXFSZ */
bool bp_signals_stop_asked(void);
/** TERM came: death follows in a second or two, so that only what is quick may still be done. */
bool bp_signals_terminating(void);

#endif
