/* How a vector is divided among ranks, and the rounds of messages in which its sum is scattered.
 * Pure: what plans a job, and what simulates it, goes by the same rounds as collective.c. */
#ifndef BP_MESH_SHARD_H
#define BP_MESH_SHARD_H

#include <stdint.h>

/** The shard of a vector of n elements (or bytes, or units of them) that `rank` of `size` owns
 * after bp_reduce_scatter: [first, first + count).
 *
 * Shards differ by one element at most, unless `size` is not a power of two; none has more than
 * ceil(n / size), and rank 0 has as many as any. With a power of two they are in bit-reversed order
 * of rank: what halving recursively, neighbours first, leaves. Else likewise: of each group of
 * ranks those at even places have the first part.
 */
int64_t bp_shard_first(int64_t n, int rank, int size);
int64_t bp_shard_count(int64_t n, int rank, int size);

/** What bp_reduce_scatter needs besides, of as many elements. */
int64_t bp_reduce_scatter_scratch(int64_t n, int size);

/** A round of a reduce-scatter: elements [send, send + sent) go to `partner`, from which elements
 * [keep, keep + kept) come, to be added. One of both may be none. An all-gather has the same rounds
 * in reverse order: what was kept is sent, and what was sent comes. */
typedef struct bp_shard_round {
    int partner;
    int64_t send, sent, keep, kept;
} bp_shard_round;

#define BP_SHARD_ROUNDS 64
/** The rounds of `rank`: how many there are; ceil(log2(size)), and at most as many again where
 * `size` is not a power of two. Shapes: rounds[BP_SHARD_ROUNDS]. */
int bp_shard_rounds(bp_shard_round *rounds, int64_t n, int rank, int size);

#endif
