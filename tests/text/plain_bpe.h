/* Byte-pair encoding as the paper's algorithm 1 reads: everything is counted and looked at anew for
 * each merge. The twin of src/text/pipeline/bpe.c and text/train/train_bpe.c. */
#pragma once

#include "text/pipeline/bpe.h"
#include <string.h>

/** Merge symbols[count] in place with merges in order of rank, each from left to right; the new
 * count.
 *
 * Lowest rank first and leftmost first, looked for over the whole list each time. */
static inline int64_t plain_bpe_encode(const bp_merge *merges, int64_t merge_count,
                                       uint32_t *symbols, int64_t count)
{
    for (;;) {
        int64_t best = -1, best_rank = merge_count;

        for (int64_t k = 0; k + 1 < count; k++)
            for (int64_t rank = 0; rank < best_rank; rank++)
                if (merges[rank].left == symbols[k] && merges[rank].right == symbols[k + 1]) {
                    best = k;
                    best_rank = rank;
                }
        if (best < 0)
            return count;
        symbols[best] = merges[best_rank].result;
        memmove(symbols + best + 1, symbols + best + 2,
                (size_t)(count - best - 2) * sizeof *symbols);
        count--;
    }
}

#define PLAIN_SYMBOLS 400 /* ids stay below */

/** The most frequent pair of neighbours in words[count], the smaller one where several are; its
 * count. */
static inline int64_t plain_bpe_best(uint32_t *const *words, const int64_t *lengths,
                                     const int64_t *counts, int64_t count, bp_merge *best)
{
    static int64_t pairs[PLAIN_SYMBOLS][PLAIN_SYMBOLS];
    int64_t most = 0;

    memset(pairs, 0, sizeof pairs);
    for (int64_t w = 0; w < count; w++)
        for (int64_t k = 0; k + 1 < lengths[w]; k++)
            pairs[words[w][k]][words[w][k + 1]] += counts[w];
    for (uint32_t left = 0; left < PLAIN_SYMBOLS; left++)
        for (uint32_t right = 0; right < PLAIN_SYMBOLS; right++)
            if (pairs[left][right] > most) {
                most = pairs[left][right];
                *best = (bp_merge){left, right, 0};
            }
    return most;
}

/** Replace a pair in one word, from left to right; the new length. */
static inline int64_t plain_bpe_apply(const bp_merge *merge, uint32_t *word, int64_t length)
{
    int64_t kept = 0;

    for (int64_t k = 0; k < length; k++) {
        bool here = k + 1 < length && word[k] == merge->left && word[k + 1] == merge->right;

        word[kept++] = here ? merge->result : word[k];
        k += here;
    }
    return kept;
}
