/* The watchdog: a thread of every rank sends rank 0 once a second what its main thread is doing
 * (base/process/heartbeat.h), and rank 1 watches rank 0. When a rank makes no progress for too
 * long, it is named on standard error, every rank writes its stack to RUN/stacks, and all leave
 * with status 75. Ranks whose launcher has died, or that receive nothing from rank 0 any more,
 * leave by themselves.
 *
 * It begins as soon as the job knows its ranks, before anything that they wait for, and has a run
 * folder once rank 0 holds one; a diagnosis before that is only on standard error.
 *
 * What counts as too long is decided in watch_state.h. The threads speak by UDP, and call no MPI; a
 * rank that no datagram comes from (a firewall) is not watched, and one warning says so.
 *
 * Files: events no_progress and slow_rank in RUN/events.jsonl, the exit state in RUN/run.json,
 * RUN/stacks/rank-N.txt.
 *
 * Besides base and an abandoned bp_mpi_finish() (mesh/mesh.h) this is the one place in src that
 * ends the process: its main thread can't be asked.
 */
#ifndef BP_RUN_WATCHDOG_WATCHDOG_H
#define BP_RUN_WATCHDOG_WATCHDOG_H

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

/** watchdog.seconds; 0 for a job without that key; its default for a configuration that could not
 * be read (NULL). */
double bp_watchdog_seconds(const bp_config *config);

/** Begin to watch. First all ranks meet: who has not come 10 x seconds after rank 0 is named, and
 * the job ends. Where a watchdog waits for its first run, or watches one (a job within a job),
 * nothing new begins.
 *
 * Collective: over `world`, whose ranks are those of the runs to come; rank 0's `seconds` count.
 * Errors:     none come back: without memory or a thread the job ends with BP_ERR_SYSTEM.
 * If a diagnosis has fallen, what stops the thread does not come back: the process is about to
 * leave.
 */
void bp_watchdog_start(MPI_Comm world, double seconds);
/** Before the first run: its ranks have another order, in which they are named from now on.
 * Collective over `world`. */
void bp_watchdog_reorder(MPI_Comm world, double seconds);

/** A run has begun, whose folder rank 0 holds: reports go there from now on, up to
 * bp_watchdog_end(). Within a run that is watched, only the mesh counts. Local, on each rank;
 * still_owner and context are borrowed until bp_watchdog_disown(). */
void bp_watchdog_own(const bp_mesh *mesh, const bp_watchdog_spec *spec);
/** Whose the run folder is, by number; 0: nobody's, or it can't be read. Local. */
int64_t bp_watchdog_lock_number(const char *run_dir);

/** From now on nothing is written to the run folder, and still_owner is not called: the run lets it
 * go. Local; does nothing within a job within a job. */
void bp_watchdog_disown(void);

/** The run is closed, or did not open (`owned`: after bp_watchdog_own()). What is left, to the end
 * of MPI or to the next run, is watched without its folder. Local, on all ranks. */
void bp_watchdog_end(bool owned);

#endif
