/* Collectives whose bits do not depend on MPI's choice of algorithm, and messages larger than an
 * int counts. Collective over `comm` all, except for point to point; `comm` may be of one rank. MPI
 * failures end the program (BP_MPI). */
#ifndef BP_MESH_COLLECTIVE_H
#define BP_MESH_COLLECTIVE_H

#include "mesh/shard.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** Sum vectors over ranks; each rank keeps its shard of the sum in place; the rest of x is
 * undefined.
 *
 * Pairs of neighbours first, lower rank's part on the left: the binary tree of src/train/README.md.
 * With a power of two the bits are those of one rank that sums the whole list by halving; else the
 * tree of an element depends on its place. ceil(log2(size)) rounds. scratch:
 * bp_reduce_scatter_scratch floats.
 */
void bp_reduce_scatter(float *x, int64_t n, float *scratch, MPI_Comm comm);

/** The inverse: each rank's shard goes to all. In place. */
void bp_all_gather_shards(float *x, int64_t n, MPI_Comm comm);
/** The same of any elements: shards are those of `bytes` bytes. */
void bp_all_gather_bytes(void *x, int64_t bytes, MPI_Comm comm);

/** Sum over ranks, the result equal to the bit on all ranks and independent of MPI's algorithm.
 * The tree of bp_reduce_scatter. scratch: n floats. Small n goes by doubling, large by halves. */
void bp_all_sum(float *x, int64_t n, float *scratch, MPI_Comm comm);
void bp_all_sum_double(double *x, int64_t n, MPI_Comm comm);
/** Element-wise maximum; NaN wins, on all ranks. */
void bp_all_max(float *x, int64_t n, MPI_Comm comm);
int64_t bp_all_sum_int(int64_t value, MPI_Comm comm);
int64_t bp_all_max_int(int64_t value, MPI_Comm comm);

/** Wait until `is_over` is true: this rank sleeps between polls, for each takes microseconds from a
 * core that others compute on. `what` is a literal, what the watchdog says that the rank waits in.
 * Local. */
void bp_poll(const char *what, bool (*is_over)(void *context), void *context);
/** The same for an MPI request, one that is complete or MPI_REQUEST_NULL included. */
void bp_wait_asleep(const char *what, MPI_Request *request);
/** A barrier that leaves the cores of ranks that wait to others: they sleep between polls. `what`
 * is a literal, what the watchdog says they wait in. */
void bp_barrier_asleep(const char *what, MPI_Comm comm);

/** Broadcast of any size from rank `root`. */
void bp_bcast_bytes(void *data, int64_t bytes, int root, MPI_Comm comm);
/** Text of any length from the root, to a new string on the others (bp_free); `*text` may be NULL
 * on the root. */
void bp_bcast_text(char **text, int root, MPI_Comm comm);

/** Point to point, any size, blocking and started; a started one is finished by bp_wait (one
 * transfer each). A message of another length than the receiver expects is a bug of ours
 * (BP_ASSERT). */
typedef struct bp_transfer { /* {0}: nothing under way, and bp_wait returns at once */
    bool under_way;
    MPI_Request request;
    int64_t expected_bytes; /* of a receive; -1 for a send */
    int64_t bytes, began;   /* for a timeline (base/trace.h) */
} bp_transfer;
void bp_send(const void *data, int64_t bytes, int to, int tag, MPI_Comm comm);
void bp_recv(void *data, int64_t bytes, int from, int tag, MPI_Comm comm);
void bp_send_start(bp_transfer *transfer, const void *data, int64_t bytes, int to, int tag,
                   MPI_Comm comm);
void bp_recv_start(bp_transfer *transfer, void *data, int64_t bytes, int from, int tag,
                   MPI_Comm comm);
void bp_wait(bp_transfer *transfer);
/** Between two pieces of work: MPI moves what this process has under way, on any communicator.
 * Local. */
void bp_transfers_move(MPI_Comm comm);

#endif
