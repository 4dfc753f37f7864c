/* The watchdog: a thread of every rank reports its main thread's state to rank 0 once a second
 * (base/process/heartbeat.h), and rank 1 watches rank 0. When a rank makes no progress for too
 * long, the watchdog names it on standard error, every rank writes its backtrace to RUN/stacks, and
 * all exit with status 75. Ranks whose launcher has died, or that receive nothing from rank 0 any
 * more, exit by themselves.
 *
 * It starts as soon as the job knows its ranks, before they wait for anything. It uses the run
 * folder once rank 0 holds it; an earlier diagnosis goes only to standard error.
 *
 * What counts as too long is decided in watch_state.h. The threads communicate by UDP, and call no
 * MPI; a rank whose datagrams do not arrive (a firewall) is not watched, with one warning.
 *
 * Files: events no_progress and slow_rank in RUN/events.jsonl, the exit state in RUN/run.json,
 * RUN/stacks/rank-N.txt.
 *
 * Except for base and an abandoned bp_mpi_finish() (mesh/mesh.h), only the watchdog in src
 * ends a rank's process: its main thread hangs.
 */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include <stdbool.h>

extern const bp_option bp_watchdog_options[]; /* watchdog.* */

/** Values of bp_watchdog_options (docs: --help). */
typedef struct bp_watchdog_keys {
    double seconds;
} bp_watchdog_keys;

static inline const bp_watchdog_keys *bp_watchdog_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_watchdog_options);
}

typedef struct bp_watchdog_spec {
    const char *run_dir;
    int64_t lock_number; /* of the folder's lock: bp_watchdog_lock_number() of rank 0 */
    /* On the coordinator: may it still write to the folder? Called from a thread. */
    bool (*still_owner)(void *context);
    void *context;
} bp_watchdog_spec;

/** watchdog.seconds; 0 for a job without that key; the default for an unreadable configuration
 * (NULL). */
double bp_watchdog_seconds(const bp_config *config);

/** Start watching. First all ranks meet: a rank that has not come 10 x seconds after rank 0 is
 * named, and the job ends. A no-op if a watchdog already waits for its first run or watches one (a
 * job within a job).
 *
 * Collective: over `world`, whose ranks are those of the runs to come; rank 0's `seconds` count.
 * Errors:     none returned: without memory or a thread the job ends with BP_ERR_SYSTEM. After a
 *             diagnosis, calls that stop the thread do not return: the process is about to exit.
 */
void bp_watchdog_start(MPI_Comm world, double seconds);
/** Before the first run: its ranks have another order; diagnoses use it from now on. Collective
 * over `world`. */
void bp_watchdog_reorder(MPI_Comm world, double seconds);

/** Call when a run has begun whose folder rank 0 holds: reports go there until bp_watchdog_end().
 * Within a watched run, only the mesh is used. Local, on each rank; still_owner and context are
 * borrowed until bp_watchdog_disown(). */
void bp_watchdog_own(const bp_mesh *mesh, const bp_watchdog_spec *spec);
/** The lock number of the run folder's owner; 0 without an owner or if it can't be read. Local. */
int64_t bp_watchdog_lock_number(const char *run_dir);

/** From now on write nothing to the run folder, and do not call still_owner: the run releases it.
 * Local; a no-op in a job within a job. */
void bp_watchdog_disown(void);

/** Call when the run is closed, or did not open (`owned`: after bp_watchdog_own()). The watch
 * continues without its folder until MPI ends or the next run begins. Local, on all ranks. */
void bp_watchdog_end(bool owned);
