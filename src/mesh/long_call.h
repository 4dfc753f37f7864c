/* A library call that runs for minutes and can't be interrupted. It runs on its own thread, while
 * the calling thread polls for stop requests. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

typedef struct bp_long_call {
    void (*work)(void *context); /* may use MPI, but none of the caller's communicators */
    void *context;
    /** Called on the calling thread four times a second; if true on any rank, all ranks return.
     * NULL: never stops, and the calling thread does the work. */
    bool (*stop)(void *context);
    void *stop_context;
} bp_long_call;

/** Run call->work on each rank; returns true once it is done on all of them. The calling thread
 * sleeps between polls, so that the cores are free for the work.
 *
 * False: some rank had to stop. The work is abandoned: it continues on its thread, and everything
 * it uses must stay valid until the process ends. bp_mpi_finish() then ends the process with
 * BP_ERR_STOPPED (bp_mpi_abandon).
 *
 * Without MPI_THREAD_MULTIPLE, or if some rank can't create a thread, the calling thread does the
 * work without polling.
 *
 * Collective: over `comm`, which only the caller uses; `stop` is NULL on all ranks or on no rank.
 */
bool bp_long_call_run(MPI_Comm comm, const bp_long_call *call);
