/* A call into a library that computes for minutes and that nothing can interrupt: it runs on a
 * thread of its own, while the calling thread asks whether to stop. */
#ifndef BP_MESH_LONG_CALL_H
#define BP_MESH_LONG_CALL_H

#include <mpi.h>
#include <stdbool.h>

typedef struct bp_long_call {
    void (*work)(void *context); /* may use MPI, but no communicator that the caller uses */
    void *context;
    /** Asked on the calling thread four times a second; true on any rank: all ranks return. NULL:
     * nobody asks. */
    bool (*stop)(void *context);
    void *stop_context;
} bp_long_call;

/** Run call->work on each rank; returns true once it is done on all of them. The calling thread
 * sleeps between two questions, so that the cores are free for the work.
 *
 * False: some rank was to stop. The work is abandoned: it goes on beside the caller, and all that
 * it uses must stay as it is until the process ends. bp_mpi_finish() then ends the process with
 * BP_ERR_STOPPED (bp_mpi_abandon).
 *
 * An MPI that allows no two threads at a time, or a system without a further thread on some rank:
 * the work is done by the calling thread, and nobody asks.
 *
 * Collective: over `comm`, which only the caller uses; `stop` is NULL on all ranks or on none.
 */
bool bp_long_call_run(MPI_Comm comm, const bp_long_call *call);

#endif
