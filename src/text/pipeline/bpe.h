/* Byte-pair merging: the table of merges, and its application to one piece of text. */
#pragma once

#include "base/err.h"
#include "text/pipeline/ids.h"

#include <stdint.h>

#define BP_NO_RANK UINT32_MAX

typedef struct bp_merge {
    uint32_t left, right, result; /* ids */
} bp_merge;

typedef struct bp_pair_slot {
    uint32_t left, right;
    uint32_t rank; /* or the number of its group; BP_NO_RANK: free */
} bp_pair_slot;

typedef struct bp_merges { /* {0} is an empty one, without even bytes */
    bp_merge *list;        /* [count], by rank */
    int64_t count;
    int64_t *groups;     /* [group_count + 1]: merges from groups[g] to groups[g + 1] have the same
                            rank, in order of left and right; NULL: each has its own */
    bp_pair_slot *slots; /* [mask + 1] */
    uint64_t mask;
    uint32_t *byte_ranks;   /* [256][256]: rank of a pair of bytes */
    uint32_t byte_ids[256]; /* id of a byte */
} bp_merges;

/** Make the tables of a list of merges; byte_ids must be set, and groups if there are any.
 *
 * Owns:   takes `list` (bp_alloc), even on failure.
 * Errors: BP_ERR_FORMAT a duplicate pair (its rank in the message); BP_ERR_SYSTEM.
 */
bp_err bp_merges_init(bp_merges *merges, bp_merge *list, int64_t count);
void bp_merges_clear(bp_merges *merges);

/** Working memory for long pieces: {0}, end with bp_bpe_scratch_clear. */
typedef struct bp_bpe_scratch {
    void *base;
    int64_t symbols;
} bp_bpe_scratch;
void bp_bpe_scratch_clear(bp_bpe_scratch *scratch);

/** Append the ids of one piece: the pair of lowest rank, the leftmost first, is merged until there
 * is none.
 *
 * O(n^2) up to BP_BPE_SHORT bytes (nothing is faster there), O(n log n) beyond.
 * Errors: BP_ERR_SYSTEM.
 * Source: Sennrich, Haddow, Birch 2016, algorithm 1; openai/gpt-2, src/encoder.py (bpe).
 */
bp_err bp_bpe_piece(const bp_merges *merges, const uint8_t *piece, size_t bytes,
                    bp_bpe_scratch *scratch, bp_ids *ids);
#define BP_BPE_SHORT 96

/** The same for a piece that is already cut into symbols (ids). */
bp_err bp_bpe_symbols(const bp_merges *merges, const uint32_t *symbols, size_t count,
                      bp_bpe_scratch *scratch, bp_ids *ids);
