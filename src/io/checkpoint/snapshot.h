/* A copy of a checkpoint's data, taken between two steps, so that training continues while it is
 * written. A writer reads the copies of all ranks of its node without their help, and without MPI.
 */
#pragma once

#include "io/checkpoint/checkpoint.h"

typedef struct bp_snapshot bp_snapshot;

/** Allocate memory for a copy of `floats` values, and touch every page of it now.
 *
 * Collective: over `comm`; `floats` differ from rank to rank, and may be 0.
 * Owns:       *out is the caller's, bp_snapshot_free(); NULL on failure.
 * Errors:     BP_ERR_SYSTEM memory: the same on all ranks.
 */
bp_err bp_snapshot_new(bp_snapshot **out, MPI_Comm comm, int64_t floats);
void bp_snapshot_free(bp_snapshot **snapshot);

/** Copy the slices, by all threads: from here on their `data` is the copy. Local.
 *
 * digests[count]: output, of each slice in the ranks' memory, so that damage to the copy before it
 * is written is detected. Returns the first slice with a value that is not finite, -1 if there is
 * none.
 */
int64_t bp_snapshot_take(bp_snapshot *snapshot, bp_slice *slices, int64_t count,
                         bp_digest *digests);

/** The number of floats of all slices, and of a copy of them. */
int64_t bp_slices_floats(const bp_slice *slices, int64_t count);
/** The first slice with a value that is not finite, -1 if there is none; uses all threads. */
int64_t bp_slices_not_finite(const bp_slice *slices, int64_t count);

/* ---- for checkpoint_save.c and checkpoint_write.c ---- */

/** Rank 0 of the ranks of a node (MPI_COMM_TYPE_SHARED, in the order of the communicator) can read
 * all their copies, on every node. Else each rank reads only its own. Equal on all ranks. */
bool bp_snapshot_is_shared(const bp_snapshot *snapshot);
/** The place in the copy of `data`, a pointer from bp_snapshot_take. */
int64_t bp_snapshot_place(const bp_snapshot *snapshot, const float *data);
/** `count` values from `place` on of the copy of rank `rank` of the node: a pointer into this
 * rank's own copy, or `scratch`, filled. From any thread.
 *
 * Errors: BP_ERR_SYSTEM another rank's copy is unreadable.
 */
bp_err bp_snapshot_read(const bp_snapshot *snapshot, int rank, int64_t place, int64_t count,
                        float *scratch, const float **values);
