/* The order of an epoch: spans permuted, windows permuted within a pool of spans. */
#ifndef BP_DATA_ORDER_PRIV_H
#define BP_DATA_ORDER_PRIV_H

#include "base/err.h"
#include "base/rng.h"

#include <stdint.h>

#define BP_SPAN_TOKENS 65536
#define BP_POOL_SPANS  4 /* spans whose windows are shuffled together */

/** A list of all windows for each epoch. Window k begins at token kT; span i holds the windows that
 * begin in tokens [i 64Ki, (i+1) 64Ki). The list takes the spans as a permutation has them,
 * BP_POOL_SPANS at a time (a pool), and the windows of a pool as a second permutation has them. */
typedef struct bp_order {
    int64_t windows, context, spans, pools;
    uint64_t seed;
    int64_t member;
    int64_t epoch;       /* that pool_first is of; -1: none yet */
    int64_t *pool_first; /* [pools + 1]: first entry of each pool in the epoch's list */
} bp_order;

typedef struct bp_order_pool {
    int64_t epoch, number;  /* epoch -1: none */
    int64_t first, windows; /* its entries in the epoch's list */
    int spans;
    int64_t span[BP_POOL_SPANS];
    bp_rng_key key;
} bp_order_pool;

/** Errors: BP_ERR_SYSTEM memory. Clear with bp_order_clear, after an error too. */
void bp_order_init(bp_order *order, int64_t windows, int64_t context, uint64_t seed,
                   int64_t member);
void bp_order_clear(bp_order *order);

/** First window of span i; span i holds windows [first(i), first(i+1)), maybe none. */
int64_t bp_order_span_first(const bp_order *order, int64_t span);
/** The pool that holds entry `entry` of epoch `epoch`'s list. */
void bp_order_find(bp_order *order, int64_t epoch, int64_t entry, bp_order_pool *pool);
/** The window at an entry of this pool, and its span. */
int64_t bp_order_window(const bp_order *order, const bp_order_pool *pool, int64_t entry,
                        int64_t *span);

#endif
