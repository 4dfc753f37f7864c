/* Decoded blocks of a stream: those that loader hold, and some that they have left. */
#ifndef BP_DATA_BLOCK_CACHE_PRIV_H
#define BP_DATA_BLOCK_CACHE_PRIV_H

#include "data/stream.h"
#include "order_priv.h"

typedef struct bp_block_cache {
    bp_stream *stream;
    int64_t first; /* token of the stream that the first window begins with */
    const bp_order *order;
    int64_t capacity;     /* entries */
    int64_t entry_tokens; /* of an entry: windows of a block and the target of the last */
    bool wide;            /* token ids need 32 bits */
    void *slab;           /* [capacity][entry_tokens] of uint16_t or int32_t */
    int32_t *raw;         /* [entry_tokens]: a block as read, before it is narrowed */
    int64_t *block_of;    /* [capacity], -1: empty */
    int32_t *entry_of;    /* [blocks], -1: not decoded */
    int32_t *holders;     /* [blocks]: loader in whose buffer a block is */
    int64_t hand;         /* where the search for an entry to give away goes on */
    int64_t reads;
} bp_block_cache;

/** A cache of the stream from token `first` on, in which `holders` buffers can be held at once.
 * Clear after an error too. Errors: BP_ERR_SYSTEM. */
bp_err bp_block_cache_init(bp_block_cache *cache, bp_stream *stream, int64_t first,
                           const bp_order *order, int64_t holders);
void bp_block_cache_clear(bp_block_cache *cache);
/** Bytes of one over a stream of so many tokens, about. */
size_t bp_block_cache_bytes(int64_t tokens, int64_t holders, int64_t context, bool wide);
/** A batch slot enters or leaves a buffer: its blocks stay, or may go. */
void bp_block_cache_hold(bp_block_cache *cache, const bp_order_buffer *buffer);
void bp_block_cache_leave(bp_block_cache *cache, const bp_order_buffer *buffer);
/** Copy the T+1 tokens of a window of a held block, decoding the block if need be. */
bp_err bp_block_cache_window(bp_block_cache *cache, int64_t block, int64_t window, int32_t *tokens);

#endif
