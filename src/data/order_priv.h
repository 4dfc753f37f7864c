/* The order of an epoch: blocks permuted, windows permuted within a buffer of blocks. */
#pragma once

#include "base/err.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_SHUFFLE_BLOCK_TOKENS 65536
#define BP_BUFFER_BLOCKS        4 /* blocks whose windows are shuffled together */

/** A list of all windows for each epoch. Window k begins at token kT; block i holds the windows
 * that begin in tokens [i 64Ki, (i+1) 64Ki). The list takes the blocks in permuted order,
 * BP_BUFFER_BLOCKS at a time (a buffer), and the windows of a buffer in the order of a second
 * permutation. Documents (or runs) are windows of other lengths: `first` says which a block begins
 * with. In sequence (corpus.order=stream) both permutations are the identity. */
typedef struct bp_order {
    int64_t windows, context, blocks, buffers;
    uint64_t seed;
    int64_t member;
    bool in_sequence;
    int64_t epoch;         /* epoch of buffer_first; -1: not yet set */
    int64_t *first;        /* [blocks + 1] of documents; NULL: of windows */
    int64_t *buffer_first; /* [buffers + 1]: first entry of each buffer in the epoch's list */
} bp_order;

typedef struct bp_order_buffer {
    int64_t epoch, number;  /* epoch -1: no buffer */
    int64_t first, windows; /* its entries in the epoch's list */
    int blocks;
    int64_t block[BP_BUFFER_BLOCKS];
    bp_rng_key key;
} bp_order_buffer;

/** Errors: BP_ERR_SYSTEM memory. Clear with bp_order_clear, also after an error. */
void bp_order_init(bp_order *order, int64_t windows, int64_t context, uint64_t seed,
                   int64_t member);
/** The same for `count` documents that begin at tokens begins[count], ascending. */
void bp_order_init_documents(bp_order *order, const int64_t *begins, int64_t count, uint64_t seed,
                             int64_t member);
void bp_order_clear(bp_order *order);

/** First window of block i; block i holds windows [first(i), first(i+1)), maybe none. */
int64_t bp_order_block_first(const bp_order *order, int64_t block);
/** The buffer that holds entry `entry` of epoch `epoch`'s list. */
void bp_order_find(bp_order *order, int64_t epoch, int64_t entry, bp_order_buffer *buffer);
/** The window at an entry of this buffer, and its block. */
int64_t bp_order_window(const bp_order *order, const bp_order_buffer *buffer, int64_t entry,
                        int64_t *block);
