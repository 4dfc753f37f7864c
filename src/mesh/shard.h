/* How a vector is divided among ranks, and the rounds of messages in which its sum is scattered.
 * Pure: planning and simulation of a job use the same rounds as collective.c. */
#pragma once

#include <stdint.h>

/** The shard of a vector of n elements (or bytes, or units of them) that `rank` of `size` owns
 * after bp_reduce_scatter: [first, first + count).
 *
 * Shards differ by one element at most, unless `size` is not a power of two; no shard has more
 * than ceil(n / size), and rank 0 has as many as any. With a power of two they are in bit-reversed
 * order of rank: the result of recursive halving, neighbours first. Otherwise too, the ranks at
 * even places of each group have the first part.
 */
int64_t bp_shard_first(int64_t n, int rank, int size);
int64_t bp_shard_count(int64_t n, int rank, int size);

/** The scratch of bp_reduce_scatter for n elements, in elements. */
int64_t bp_reduce_scatter_scratch(int64_t n, int size);

/** A round of a reduce-scatter: elements [send, send + sent) go to `partner`, from which elements
 * [keep, keep + kept) come, to be added. Either may be empty. An all-gather has the same rounds in
 * reverse order: it sends the kept elements and receives the sent ones. */
typedef struct bp_shard_round {
    int partner;
    int64_t send, sent, keep, kept;
} bp_shard_round;

#define BP_SHARD_ROUNDS 64
/** The rounds of `rank`: how many there are; ceil(log2(size)), and at most as many again where
 * `size` is not a power of two. Shapes: rounds[BP_SHARD_ROUNDS]. */
int bp_shard_rounds(bp_shard_round *rounds, int64_t n, int rank, int size);
