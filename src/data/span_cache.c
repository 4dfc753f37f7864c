/* Decoded spans: read once, kept while a lane's pool needs them. */
#include "span_cache_priv.h"

#include "base/mem.h"

#include <string.h>

bp_err bp_span_cache_init(bp_span_cache *cache, bp_stream *stream, int64_t first,
                          const bp_order *order, int64_t holders)
{
    bool wide = bp_stream_vocab_size(stream) > 65536;
    int64_t per_span = (BP_SPAN_TOKENS + order->context - 1) / order->context;
    int64_t most = per_span < order->windows ? per_span : order->windows;
    int64_t wanted = holders * BP_POOL_SPANS;

    *cache = (bp_span_cache){.stream = stream, .first = first, .order = order, .wide = wide};
    cache->capacity = wanted < order->spans ? wanted : order->spans;
    cache->entry_tokens = most * order->context + 1;
    cache->slab = bp_try_alloc("corpus.spans", cache->capacity * cache->entry_tokens,
                               wide ? sizeof(int32_t) : sizeof(uint16_t));
    cache->raw = bp_try_alloc("corpus.spans", cache->entry_tokens, sizeof(*cache->raw));
    cache->span_of = bp_try_alloc("corpus.spans", cache->capacity, sizeof(*cache->span_of));
    cache->entry_of = bp_try_alloc("corpus.spans", order->spans, sizeof(*cache->entry_of));
    cache->holders = bp_try_alloc("corpus.spans", order->spans, sizeof(*cache->holders));
    if (!cache->slab || !cache->raw || !cache->span_of || !cache->entry_of || !cache->holders)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "no memory for the spans of the lanes; use a smaller train.batch "
                       "or more data ranks");
    for (int64_t i = 0; i < cache->capacity; i++)
        cache->span_of[i] = -1;
    for (int64_t i = 0; i < order->spans; i++)
        cache->entry_of[i] = -1;
    return BP_OK;
}

size_t bp_span_cache_bytes(int64_t tokens, int64_t holders, int64_t context, bool wide)
{
    int64_t spans = tokens / BP_SPAN_TOKENS + 1, wanted = holders * BP_POOL_SPANS;
    int64_t entry_tokens = (BP_SPAN_TOKENS < tokens ? BP_SPAN_TOKENS : tokens) + context + 1;
    int64_t entries = wanted < spans ? wanted : spans;

    return (size_t)(entries * entry_tokens) * (wide ? sizeof(int32_t) : sizeof(uint16_t)) +
           (size_t)entry_tokens * sizeof(int32_t);
}

void bp_span_cache_clear(bp_span_cache *cache)
{
    bp_free(cache->holders);
    bp_free(cache->entry_of);
    bp_free(cache->span_of);
    bp_free(cache->raw);
    bp_free(cache->slab);
    *cache = (bp_span_cache){0};
}

void bp_span_cache_hold(bp_span_cache *cache, const bp_order_pool *pool)
{
    for (int i = 0; i < pool->spans; i++)
        cache->holders[pool->span[i]]++;
}

void bp_span_cache_leave(bp_span_cache *cache, const bp_order_pool *pool)
{
    for (int i = 0; i < pool->spans; i++)
        cache->holders[pool->span[i]]--;
}

/* An empty entry, or that of a span which no lane holds. There is one: the pools of all lanes
 * together have no more spans than the cache has entries. */
static int64_t free_entry(bp_span_cache *cache)
{
    for (int64_t tries = 0; tries < cache->capacity; tries++) {
        int64_t entry = cache->hand;

        cache->hand = (cache->hand + 1) % cache->capacity;
        if (cache->span_of[entry] < 0)
            return entry;
        if (cache->holders[cache->span_of[entry]] == 0) {
            cache->entry_of[cache->span_of[entry]] = -1;
            cache->span_of[entry] = -1;
            return entry;
        }
    }
    BP_ASSERT(false && "a span that no lane holds");
    return -1;
}

static bp_err decode(bp_span_cache *cache, int64_t span)
{
    int64_t entry = free_entry(cache);
    int64_t begin = bp_order_span_first(cache->order, span);
    int64_t end = bp_order_span_first(cache->order, span + 1);
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
    cache->span_of[entry] = span;
    cache->entry_of[span] = (int32_t)entry;
    cache->reads++;
    return BP_OK;
}

bp_err bp_span_cache_window(bp_span_cache *cache, int64_t span, int64_t window, int32_t *tokens)
{
    int64_t count = cache->order->context + 1;

    if (cache->entry_of[span] < 0) {
        bp_err err = decode(cache, span);

        if (err != BP_OK)
            return err;
    }

    int64_t inside = window - bp_order_span_first(cache->order, span);
    int64_t at = cache->entry_of[span] * cache->entry_tokens + inside * cache->order->context;
    if (cache->wide) {
        memcpy(tokens, (const int32_t *)cache->slab + at, (size_t)count * sizeof(*tokens));
    } else {
        const uint16_t *from = (const uint16_t *)cache->slab + at;

        for (int64_t i = 0; i < count; i++)
            tokens[i] = from[i];
    }
    return BP_OK;
}
