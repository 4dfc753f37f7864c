/* Asynchronous sums and gathers: a progress thread works through a queue of them, on its own
 * communicator, while the main thread computes. It sleeps between polls to spare the compute
 * cores, except while the main thread waits. */
#pragma once

#include "base/err.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_async bp_async;

/** An asynchronous queue of collectives for the ranks of `comm`, with at most `jobs` outstanding
 * jobs.
 *
 * beside: use a progress thread. Otherwise, without MPI_THREAD_MULTIPLE, or with one rank, each job
 * runs immediately in the call that submits it.
 *
 * Collective: over `comm`, which is duplicated. Ranks may differ in `beside`.
 * Owns:       *out is the caller's, bp_async_free().
 * Errors:     BP_ERR_SYSTEM no memory or no thread: local to this rank, *out can be freed.
 */
bp_err bp_async_new(bp_async **out, MPI_Comm comm, int jobs, bool beside);
/** Allow jobs over `part` too, a subset of the queue's ranks; it is duplicated. Once, before the
 * first job. Collective: over `part`. */
void bp_async_add_part(bp_async *async, MPI_Comm part);
/** Sums send values in bf16 (bp_reduce_scatter_units). Equal on all ranks, before the first job.
 * Local. */
void bp_async_send_bf16(bp_async *async, bool bf16);
/** Waits for all submitted jobs. Collective over the queue's ranks. */
void bp_async_free(bp_async **async);

/** bp_reduce_scatter and bp_all_gather_shards as jobs, with shards of whole units of `unit`
 * floats: unit k of n belongs to the rank that owns item k of bp_shard_first(n, ...). Jobs run in
 * the order of submission, which is the same on all ranks. of_part: over the ranks of
 * bp_async_add_part. The queue owns x and scratch until bp_async_wait; jobs may share scratch.
 * Returns the job's number, for bp_async_wait.
 *
 * Collective: over the queue's ranks, in the same order; waits for the other ranks only without a
 *             progress thread.
 * Shapes:     x[units * unit]; scratch[bp_reduce_scatter_scratch(units, ranks) * unit].
 */
int64_t bp_async_reduce_scatter(bp_async *async, float *x, int64_t units, int64_t unit,
                                float *scratch, bool of_part);
int64_t bp_async_all_gather(bp_async *async, float *x, int64_t units, int64_t unit, bool of_part);
/** Waits until job `job` and all before it are complete on this rank. Reported to the watchdog
 * (base/process/heartbeat.h). Local, but they complete only after the other ranks have submitted
 * them too. */
void bp_async_wait(bp_async *async, int64_t job);
/** Would it return at once? Local. */
bool bp_async_is_done(bp_async *async, int64_t job);
