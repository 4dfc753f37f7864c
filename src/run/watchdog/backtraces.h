/* Backtraces of this process in RUN/stacks/rank-N.txt: on SIGUSR2 (sent to the rank, or to mpirun,
 * which forwards it), on the watchdog's request, and on a fatal signal. Handlers are
 * async-signal-safe: they allocate nothing and take no lock. */
#pragma once

#include <stdbool.h>

#define BP_BACKTRACES_FOLDER "stacks"

/** Install the handlers. Call on the main thread, whose stack is written. `host` and `run_dir` are
 * copied; with a path that is too long no files are written. Under AddressSanitizer it keeps the
 * fatal signals. */
void bp_backtraces_start(const char *run_dir, const char *host, int rank);
/** Restore the signal handlers. */
void bp_backtraces_end(void);

/** From another thread, after bp_backtraces_start() (else a no-op): write the main thread's
 * backtrace and its state in the kernel. Waits for it a second at most. `after`: append to what
 * another rank has written about this one. */
void bp_backtraces_write(bool after);
/** Write the kernel's state of rank `rank`, process `pid` of this host, which can't respond
 * itself. */
void bp_backtraces_write_of(int rank, const char *host, int pid);

/** Is it the name of a fatal signal's file, "signal-rank-N.txt"? */
bool bp_backtraces_is_signal_file(const char *name);
