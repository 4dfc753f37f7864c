/* Decoded blocks: read once, kept while a batch slot's buffer needs them. */
#include "block_cache_priv.h"

#include "base/mem.h"

#include <string.h>

bp_err bp_block_cache_init(bp_block_cache *cache, bp_stream *stream, int64_t first,
                           const bp_order *order, int64_t holders)
{
    bool wide = bp_stream_vocab_size(stream) > 65536;
    int64_t per_block = (BP_SHUFFLE_BLOCK_TOKENS + order->context - 1) / order->context;
    int64_t most = per_block < order->windows ? per_block : order->windows;
    int64_t wanted = holders * BP_BUFFER_BLOCKS;

    *cache = (bp_block_cache){.stream = stream, .first = first, .order = order, .wide = wide};
    cache->capacity = wanted < order->blocks ? wanted : order->blocks;
    cache->entry_tokens = most * order->context + 1;
    cache->slab = bp_try_alloc("data.spans", cache->capacity * cache->entry_tokens,
                               wide ? sizeof(int32_t) : sizeof(uint16_t));
    cache->raw = bp_try_alloc("data.spans", cache->entry_tokens, sizeof(*cache->raw));
    cache->block_of = bp_try_alloc("data.spans", cache->capacity, sizeof(*cache->block_of));
    cache->entry_of = bp_try_alloc("data.spans", order->blocks, sizeof(*cache->entry_of));
    cache->holders = bp_try_alloc("data.spans", order->blocks, sizeof(*cache->holders));
    if (!cache->slab || !cache->raw || !cache->block_of || !cache->entry_of || !cache->holders)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for the shuffle blocks; use a smaller train.batch "
                                      "or more data ranks");
    for (int64_t i = 0; i < cache->capacity; i++)
        cache->block_of[i] = -1;
    for (int64_t i = 0; i < order->blocks; i++)
        cache->entry_of[i] = -1;
    return BP_OK;
}

size_t bp_block_cache_bytes(int64_t tokens, int64_t holders, int64_t context, bool wide)
{
    int64_t blocks = tokens / BP_SHUFFLE_BLOCK_TOKENS + 1, wanted = holders * BP_BUFFER_BLOCKS;
    int64_t entry_tokens =
        (BP_SHUFFLE_BLOCK_TOKENS < tokens ? BP_SHUFFLE_BLOCK_TOKENS : tokens) + context + 1;
    int64_t entries = wanted < blocks ? wanted : blocks;

    return (size_t)(entries * entry_tokens) * (wide ? sizeof(int32_t) : sizeof(uint16_t)) +
           (size_t)entry_tokens * sizeof(int32_t);
}

void bp_block_cache_clear(bp_block_cache *cache)
{
    bp_free(cache->holders);
    bp_free(cache->entry_of);
    bp_free(cache->block_of);
    bp_free(cache->raw);
    bp_free(cache->slab);
    *cache = (bp_block_cache){0};
}

void bp_block_cache_hold(bp_block_cache *cache, const bp_order_buffer *buffer)
{
    for (int i = 0; i < buffer->blocks; i++)
        cache->holders[buffer->block[i]]++;
}

void bp_block_cache_leave(bp_block_cache *cache, const bp_order_buffer *buffer)
{
    for (int i = 0; i < buffer->blocks; i++)
        cache->holders[buffer->block[i]]--;
}

/* An empty entry, or that of a block which no batch slot holds. There is one: the buffers of all
 * loader together have no more blocks than the cache has entries. */
static int64_t free_entry(bp_block_cache *cache)
{
    for (int64_t tries = 0; tries < cache->capacity; tries++) {
        int64_t entry = cache->hand;

        cache->hand = (cache->hand + 1) % cache->capacity;
        if (cache->block_of[entry] < 0)
            return entry;
        if (cache->holders[cache->block_of[entry]] == 0) {
            cache->entry_of[cache->block_of[entry]] = -1;
            cache->block_of[entry] = -1;
            return entry;
        }
    }
    BP_ASSERT(false && "a block that no batch slot holds");
    return -1;
}

static bp_err decode(bp_block_cache *cache, int64_t block)
{
    int64_t entry = free_entry(cache);
    int64_t begin = bp_order_block_first(cache->order, block);
    int64_t end = bp_order_block_first(cache->order, block + 1);
    int64_t tokens = (end - begin) * cache->order->context + 1;
    bp_err err = bp_stream_read(cache->stream, cache->first + begin * cache->order->context, tokens,
                                cache->raw);

    if (err != BP_OK)
        return err;
    if (cache->wide) {
        memcpy((int32_t *)cache->slab + entry * cache->entry_tokens, cache->raw,
               (size_t)tokens * sizeof(int32_t));
    } else {
        uint16_t *to = (uint16_t *)cache->slab + entry * cache->entry_tokens;

        for (int64_t i = 0; i < tokens; i++)
            to[i] = (uint16_t)cache->raw[i];
    }
    cache->block_of[entry] = block;
    cache->entry_of[block] = (int32_t)entry;
    cache->reads++;
    return BP_OK;
}

bp_err bp_block_cache_window(bp_block_cache *cache, int64_t block, int64_t window, int32_t *tokens)
{
    int64_t count = cache->order->context + 1;

    if (cache->entry_of[block] < 0) {
        bp_err err = decode(cache, block);

        if (err != BP_OK)
            return err;
    }

    int64_t inside = window - bp_order_block_first(cache->order, block);
    int64_t at = cache->entry_of[block] * cache->entry_tokens + inside * cache->order->context;
    if (cache->wide) {
        memcpy(tokens, (const int32_t *)cache->slab + at, (size_t)count * sizeof(*tokens));
    } else {
        const uint16_t *from = (const uint16_t *)cache->slab + at;

        for (int64_t i = 0; i < count; i++)
            tokens[i] = from[i];
    }
    return BP_OK;
}
