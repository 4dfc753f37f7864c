/* Stacks of this process in RUN/stacks/rank-N.txt, for those who ask what a rank is doing: at
 * SIGUSR2 (to the rank, or to mpirun, which hands it on), on the watchdog's word, and when a fatal
 * signal comes. What a handler does is safe at any moment: nothing is allocated, no lock is taken.
 */
#ifndef BP_RUN_WATCHDOG_BACKTRACES_H
#define BP_RUN_WATCHDOG_BACKTRACES_H

#include <stdbool.h>

#define BP_BACKTRACES_FOLDER "stacks"

/** Take the signals; to be called on the main thread, whose stack it is about. `host` and `run_dir`
 * are copied; a path that is too long leaves the files away. Under AddressSanitizer the fatal
 * signals stay its own. */
void bp_backtraces_start(const char *run_dir, const char *host, int rank);
/** Give the signals back. */
void bp_backtraces_end(void);

/** From another thread, after bp_backtraces_start() (else nothing is written): write what the main
 * thread is doing, as it says itself and as the kernel says. Waits a second at most for it.
 * `after`: after what another rank has written of this one. */
void bp_backtraces_write(bool after);
/** What the kernel says of rank `rank`, process `pid` of this host, which can't speak for itself.
 */
void bp_backtraces_write_of(int rank, const char *host, int pid);

/** Is it the name of the file that a fatal signal leaves: "signal-rank-N.txt"? */
bool bp_backtraces_is_signal_file(const char *name);

#endif
