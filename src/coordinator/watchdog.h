/* The watchdog: a thread of every rank tells rank 0 once a second where its main thread stands
 * (base/beat.h), and rank 1 watches rank 0. When a rank makes no progress for too long, it is named
 * on standard error, every rank writes its stack to RUN/stacks, and all leave with status 75. Ranks
 * whose launcher has died, or that hear nothing from rank 0 any more, leave by themselves.
 *
 * What counts as too long is decided in watch_state.h. The threads speak by UDP, and call no MPI; a
 * rank that no datagram comes from (a firewall) is not watched, and one warning says so.
 *
 * Files: events no_progress and slow_rank in RUN/events.jsonl, the exit state in RUN/run.json,
 * RUN/stacks/rank-N.txt, RUN/suspects.json (hosts whose ranks stood still, held wrong bits or were
 * killed by a fatal signal, with how often; a silence that one host alone hears counts for none).
 *
 * Besides base and an abandoned bp_mpi_finish() (mesh/mesh.h) this is the one place in src that
 * ends the process: its main thread can't be asked.
 */
#ifndef BP_COORDINATOR_WATCHDOG_H
#define BP_COORDINATOR_WATCHDOG_H

#include "base/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include <stdbool.h>

extern const bp_option bp_watchdog_options[]; /* watchdog.* */

typedef struct bp_watchdog_spec {
    const char *run_dir;
    double seconds; /* watchdog.seconds; 0: only stacks at signals, and hosts counted */
    /* On the coordinator: may it still write to the folder? Called from a thread. */
    bool (*still_owner)(void *context);
    void *context;
} bp_watchdog_spec;

/** Begin to watch. Inside a run that is watched (a job within a job) nothing new begins: the first
 * one watches for all.
 *
 * Collective: over mesh->world, but not inside a run that is watched; `spec` is equal on all ranks,
 *             but for still_owner and context, which are borrowed until the end.
 * Errors:     BP_ERR_SYSTEM no memory, no thread: the same on all ranks, and nothing has begun.
 * If a verdict has fallen, what stops the thread does not come back: the process is about to leave.
 */
bp_err bp_watchdog_start(const bp_mesh *mesh, const bp_watchdog_spec *spec);

/** One more strike for a host that certainly erred, in suspects.json of the run that is watched (of
 * the outermost one): for its owner alone. What can't be written is a warning. From any thread. */
void bp_watchdog_suspect(const char *host, const char *reason);

/** From now on nothing is written to the run folder, and still_owner is not called: the run lets it
 * go. Local; does nothing within a job within a job. */
void bp_watchdog_disown(void);

/** The run is closed. What is left, to the end of MPI or to the next run, is watched without its
 * folder. Local. */
void bp_watchdog_end(void);

#endif
