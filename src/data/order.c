/* The order of an epoch, entry by entry: nothing is stored but where the pools begin. */
#include "order_priv.h"

#include "base/mem.h"

#include <stdbool.h>

void bp_order_init(bp_order *order, int64_t windows, int64_t context, uint64_t seed, int64_t member)
{
    int64_t last_token = (windows - 1) * context;
    int64_t spans = last_token / BP_SPAN_TOKENS + 1;
    int64_t pools = (spans + BP_POOL_SPANS - 1) / BP_POOL_SPANS;

    *order = (bp_order){.windows = windows,
                        .context = context,
                        .spans = spans,
                        .pools = pools,
                        .seed = seed,
                        .member = member,
                        .epoch = -1};
    order->pool_first = bp_alloc("corpus.order", pools + 1, sizeof(*order->pool_first));
}

void bp_order_clear(bp_order *order)
{
    bp_free(order->pool_first);
    order->pool_first = NULL;
}

int64_t bp_order_span_first(const bp_order *order, int64_t span)
{
    int64_t first = (span * BP_SPAN_TOKENS + order->context - 1) / order->context;

    return first < order->windows ? first : order->windows;
}

static int64_t span_windows(const bp_order *order, int64_t span)
{
    return bp_order_span_first(order, span + 1) - bp_order_span_first(order, span);
}

static void enter_epoch(bp_order *order, int64_t epoch)
{
    bp_rng_key key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 0);
    int64_t at = 0;

    for (int64_t i = 0; i < order->spans; i++) {
        if (i % BP_POOL_SPANS == 0)
            order->pool_first[i / BP_POOL_SPANS] = at;
        at += span_windows(order, bp_rng_permute(&key, i, order->spans));
    }
    order->pool_first[order->pools] = at;
    BP_ASSERT(at == order->windows);
    order->epoch = epoch;
}

void bp_order_find(bp_order *order, int64_t epoch, int64_t entry, bp_order_pool *pool)
{
    if (order->epoch != epoch)
        enter_epoch(order, epoch);

    int64_t low = 0, high = order->pools;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (order->pool_first[middle] <= entry)
            low = middle;
        else
            high = middle;
    }

    bp_rng_key key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 0);
    int64_t first_span = low * BP_POOL_SPANS;
    int64_t left = order->spans - first_span;

    pool->epoch = epoch;
    pool->number = low;
    pool->first = order->pool_first[low];
    pool->windows = order->pool_first[low + 1] - pool->first;
    pool->spans = left < BP_POOL_SPANS ? (int)left : BP_POOL_SPANS;
    for (int i = 0; i < pool->spans; i++)
        pool->span[i] = bp_rng_permute(&key, first_span + i, order->spans);
    pool->key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 1 + low);
}

int64_t bp_order_window(const bp_order *order, const bp_order_pool *pool, int64_t entry,
                        int64_t *span)
{
    int64_t place = bp_rng_permute(&pool->key, entry - pool->first, pool->windows);

    for (int i = 0; i < pool->spans; i++) {
        int64_t windows = span_windows(order, pool->span[i]);

        if (place < windows) {
            *span = pool->span[i];
            return bp_order_span_first(order, *span) + place;
        }
        place -= windows;
    }
    BP_ASSERT(false && "an entry lies in its pool");
    return -1;
}
