/* Decoded spans of a stream: those that lanes hold, and some that they have left. */
#ifndef BP_DATA_SPAN_CACHE_PRIV_H
#define BP_DATA_SPAN_CACHE_PRIV_H

#include "data/lanes.h"
#include "order_priv.h"

typedef struct bp_span_cache {
    bp_stream *stream;
    int64_t first; /* token of the stream that the first window begins with */
    const bp_order *order;
    int64_t capacity;     /* entries */
    int64_t entry_tokens; /* of an entry: windows of a span and the target of the last */
    bool wide;            /* token ids need 32 bits */
    void *slab;           /* [capacity][entry_tokens] of uint16_t or int32_t */
    int32_t *raw;         /* [entry_tokens]: a span as read, before it is narrowed */
    int64_t *span_of;     /* [capacity], -1: empty */
    int32_t *entry_of;    /* [spans], -1: not decoded */
    int32_t *holders;     /* [spans]: lanes in whose pool a span is */
    int64_t hand;         /* where the search for an entry to give away goes on */
    int64_t reads;
} bp_span_cache;

/** A cache of the stream from token `first` on, in which `holders` pools can be held at once. Clear
 * after an error too. Errors: BP_ERR_SYSTEM. */
bp_err bp_span_cache_init(bp_span_cache *cache, bp_stream *stream, int64_t first,
                          const bp_order *order, int64_t holders);
void bp_span_cache_clear(bp_span_cache *cache);
/** Bytes of one over a stream of so many tokens, about. */
size_t bp_span_cache_bytes(int64_t tokens, int64_t holders, int64_t context, bool wide);
/** A lane enters or leaves a pool: its spans stay, or may go. */
void bp_span_cache_hold(bp_span_cache *cache, const bp_order_pool *pool);
void bp_span_cache_leave(bp_span_cache *cache, const bp_order_pool *pool);
/** Copy the T+1 tokens of a window of a held span, decoding the span if need be. */
bp_err bp_span_cache_window(bp_span_cache *cache, int64_t span, int64_t window, int32_t *tokens);

#endif
