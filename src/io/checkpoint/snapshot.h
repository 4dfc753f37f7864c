/* A copy of what a checkpoint saves, taken between two steps, so that training goes on while it is
 * written. Whoever writes for all ranks of a node reads the others' copies without them, and
 * without MPI. */
#ifndef BP_IO_CHECKPOINT_SNAPSHOT_H
#define BP_IO_CHECKPOINT_SNAPSHOT_H

#include "io/checkpoint/checkpoint.h"

typedef struct bp_snapshot bp_snapshot;

/** Allocate memory for a copy of `floats` values, and touch every page of it now.
 *
 * Collective: over `comm`; `floats` differ from rank to rank, and may be 0.
 * Owns:       *out is the caller's, bp_snapshot_free(); NULL on failure.
 * Errors:     BP_ERR_SYSTEM memory is short: the same on all ranks.
 */
bp_err bp_snapshot_new(bp_snapshot **out, MPI_Comm comm, int64_t floats);
void bp_snapshot_free(bp_snapshot **snapshot);

/** Copy the slices, by all threads: from here on their `data` is the copy. Local.
 *
 * digests[count]: set, of each slice as it is in the ranks' memory, so that a copy that is
 * damaged before it is written is found when it is read. Returns the first slice with a value that
 * is not finite, -1 where there is none.
 */
int64_t bp_snapshot_take(bp_snapshot *snapshot, bp_slice *slices, int64_t count,
                         bp_digest *digests);

/** All floats of the slices, which is what a copy of them takes. */
int64_t bp_slices_floats(const bp_slice *slices, int64_t count);
/** The first slice with a value that is not finite, -1 where there is none; looked for by all
 * threads. */
int64_t bp_slices_not_finite(const bp_slice *slices, int64_t count);

/* ---- for checkpoint_save.c and checkpoint_write.c ---- */

/** Rank 0 of the ranks of a node (MPI_COMM_TYPE_SHARED, in the order of the communicator) reads all
 * of theirs, on every node. Else each rank reads only its own. Equal on all ranks. */
bool bp_snapshot_is_shared(const bp_snapshot *snapshot);
/** Where `data` is in the copy, as bp_snapshot_take gave it. */
int64_t bp_snapshot_place(const bp_snapshot *snapshot, const float *data);
/** `count` values from `place` on of the copy of rank `rank` of the node: a pointer into this
 * rank's own copy, or `scratch`, filled. From any thread.
 *
 * Errors: BP_ERR_SYSTEM another's copy can't be read.
 */
bp_err bp_snapshot_read(const bp_snapshot *snapshot, int rank, int64_t place, int64_t count,
                        float *scratch, const float **values);

#endif
