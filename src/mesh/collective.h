/* Collectives whose bits do not depend on MPI's choice of algorithm, and messages longer than an
 * int can count. All are collective over `comm`, except for point to point; `comm` may have one
 * rank. MPI failures end the program (BP_MPI). */
#pragma once

#include "mesh/shard.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** Sum vectors over ranks; each rank keeps its shard of the sum in place; the rest of x is
 * undefined.
 *
 * Pairs of neighbours first, lower rank's part on the left: the binary tree of
 * src/train/README.md. With a power of two ranks, the bits equal those of one rank that sums the
 * whole list by halving; otherwise the tree of an element depends on its place. ceil(log2(size))
 * rounds. scratch: bp_reduce_scatter_scratch floats.
 */
void bp_reduce_scatter(float *x, int64_t n, float *scratch, MPI_Comm comm);

/** The inverse: all ranks get each rank's shard. In place. */
void bp_all_gather_shards(float *x, int64_t n, MPI_Comm comm);
/** The same for any elements: shards are those of `bytes` bytes. */
void bp_all_gather_bytes(void *x, int64_t bytes, MPI_Comm comm);

/** Sum over ranks; the result is bitwise equal on all ranks and independent of MPI's algorithm.
 * The tree of bp_reduce_scatter. scratch: n floats. Small n uses recursive doubling, large n
 * recursive halving. */
void bp_all_sum(float *x, int64_t n, float *scratch, MPI_Comm comm);
void bp_all_sum_double(double *x, int64_t n, MPI_Comm comm);
/** Element-wise maximum; NaN wins, on all ranks. */
void bp_all_max(float *x, int64_t n, MPI_Comm comm);
int64_t bp_all_sum_int(int64_t value, MPI_Comm comm);
int64_t bp_all_max_int(int64_t value, MPI_Comm comm);

/** Wait until `is_over` is true: this rank sleeps between polls, since each steals microseconds
 * from a compute core. `what` is a literal, the watchdog's name for the wait. Local. */
void bp_poll(const char *what, bool (*is_over)(void *context), void *context);
/** The same for an MPI request, which may be complete or MPI_REQUEST_NULL. */
void bp_wait_asleep(const char *what, MPI_Request *request);
/** A barrier in which waiting ranks sleep between polls and free their cores. `what` is a literal,
 * the watchdog's name for the wait. */
void bp_barrier_asleep(const char *what, MPI_Comm comm);

/** Broadcast of any size from rank `root`. */
void bp_bcast_bytes(void *data, int64_t bytes, int root, MPI_Comm comm);
/** Broadcast text of any length to a new string on the other ranks (bp_free); `*text` may be NULL
 * on the root. */
void bp_bcast_text(char **text, int root, MPI_Comm comm);

/** Point to point, any size, blocking and nonblocking; bp_wait completes a nonblocking transfer. A
 * message with a length that the receiver does not expect is our bug (BP_ASSERT). */
typedef struct bp_transfer { /* {0}: no transfer; bp_wait returns immediately */
    bool under_way;
    MPI_Request request;
    int64_t expected_bytes; /* for a receive; -1 for a send */
    int64_t bytes, began;   /* for a timeline (base/trace.h) */
} bp_transfer;
void bp_send(const void *data, int64_t bytes, int to, int tag, MPI_Comm comm);
void bp_recv(void *data, int64_t bytes, int from, int tag, MPI_Comm comm);
void bp_send_start(bp_transfer *transfer, const void *data, int64_t bytes, int to, int tag,
                   MPI_Comm comm);
void bp_recv_start(bp_transfer *transfer, void *data, int64_t bytes, int from, int tag,
                   MPI_Comm comm);
void bp_wait(bp_transfer *transfer);
/** Called between two pieces of work: lets MPI progress this process's transfers on any
 * communicator. Local. */
void bp_transfers_move(MPI_Comm comm);
