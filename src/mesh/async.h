/* Sums and gathers beside compute: a thread works through a list of them, on a communicator of its
 * own, while the main thread goes on. It sleeps between polls, so that it takes
 * little from the cores that compute; once the main thread waits, it doesn't. */
#ifndef BP_MESH_ASYNC_H
#define BP_MESH_ASYNC_H

#include "base/err.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_async bp_async;

/** An asynchronous queue of collectives for the ranks of `comm`, with at most `jobs` that are not
 * waited for.
 *
 * beside: do them beside the caller; else, and with an MPI that allows no two threads at a time,
 * each is done at once where it is given.
 *
 * Collective: over `comm`, which is duplicated. Ranks may differ in `beside`.
 * Owns:       *out is the caller's, bp_async_free().
 * Errors:     BP_ERR_SYSTEM no memory or no thread: this rank's own, *out can be freed.
 */
bp_err bp_async_new(bp_async **out, MPI_Comm comm, int jobs, bool beside);
/** Jobs may also be over `part`, fewer of the queue's ranks, which is duplicated. Once, before the
 * first job. Collective: over `part`. */
void bp_async_add_part(bp_async *async, MPI_Comm part);
/** Sums send values in bf16 (bp_reduce_scatter_units). Equal on all ranks, before the first job.
 * Local. */
void bp_async_send_bf16(bp_async *async, bool bf16);
/** Waits for all that was given. Collective over the queue's ranks. */
void bp_async_free(bp_async **async);

/** bp_reduce_scatter and bp_all_gather_shards as jobs, with shards of whole units of `unit` floats:
 * unit k of n belongs to the rank that owns item k of bp_shard_first(n, ...). Done in the order in
 * which they are given: the same on all ranks; of_part: over the ranks of bp_async_add_part. x and
 * scratch are the queue's until the job was waited for; jobs may share scratch. The job's number is
 * returned, for bp_async_wait.
 *
 * Collective: over the queue's ranks, in the same order; neither waits for the others but where
 *             there is no thread.
 * Shapes:     x[units * unit]; scratch[bp_reduce_scatter_scratch(units, ranks) * unit].
 */
int64_t bp_async_reduce_scatter(bp_async *async, float *x, int64_t units, int64_t unit,
                                float *scratch, bool of_part);
int64_t bp_async_all_gather(bp_async *async, float *x, int64_t units, int64_t unit, bool of_part);
/** Until job `job` and all before it are done here. Reported to the watchdog
 * (base/process/heartbeat.h). Local, but they are done only when the other ranks have given them
 * too. */
void bp_async_wait(bp_async *async, int64_t job);
/** Would it return at once? Local. */
bool bp_async_is_done(bp_async *async, int64_t job);

#endif
