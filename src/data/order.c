/* The order of an epoch, entry by entry: nothing is stored but where the buffers begin. */
#include "order_priv.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdbool.h>

void bp_order_init(bp_order *order, int64_t windows, int64_t context, uint64_t seed, int64_t member)
{
    int64_t last_token = (windows - 1) * context;
    int64_t blocks = last_token / BP_SHUFFLE_BLOCK_TOKENS + 1;
    int64_t buffers = (blocks + BP_BUFFER_BLOCKS - 1) / BP_BUFFER_BLOCKS;

    *order = (bp_order){.windows = windows,
                        .context = context,
                        .blocks = blocks,
                        .buffers = buffers,
                        .seed = seed,
                        .member = member,
                        .epoch = -1};
    order->buffer_first = bp_alloc("data.order", buffers + 1, sizeof *order->buffer_first);
}

void bp_order_init_documents(bp_order *order, const int64_t *begins, int64_t count, uint64_t seed,
                             int64_t member)
{
    bp_order_init(order, begins[count - 1] - begins[0] + 1, 1, seed, member);
    order->windows = count;
    order->first = bp_alloc("data.order", order->blocks + 1, sizeof *order->first);
    for (int64_t block = 0, k = 0; block <= order->blocks; block++) {
        while (k < count && begins[k] - begins[0] < block * BP_SHUFFLE_BLOCK_TOKENS)
            k++;
        order->first[block] = k;
    }
}

void bp_order_clear(bp_order *order)
{
    bp_free(order->first);
    order->first = NULL;
    bp_free(order->buffer_first);
    order->buffer_first = NULL;
}

int64_t bp_order_block_first(const bp_order *order, int64_t block)
{
    if (order->first)
        return order->first[block];

    int64_t first = (block * BP_SHUFFLE_BLOCK_TOKENS + order->context - 1) / order->context;

    return first < order->windows ? first : order->windows;
}

/* Entry `at` of a list of n. */
static int64_t permuted(const bp_order *order, const bp_rng_key *key, int64_t at, int64_t n)
{
    return order->in_sequence ? at : bp_rng_permute(key, at, n);
}

static int64_t block_windows(const bp_order *order, int64_t block)
{
    return bp_order_block_first(order, block + 1) - bp_order_block_first(order, block);
}

static void enter_epoch(bp_order *order, int64_t epoch)
{
    bp_rng_key key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 0);
    int64_t at = 0;

    for (int64_t i = 0; i < order->blocks; i++) {
        if (i % BP_BUFFER_BLOCKS == 0)
            order->buffer_first[i / BP_BUFFER_BLOCKS] = at;
        at += block_windows(order, permuted(order, &key, i, order->blocks));
    }
    order->buffer_first[order->buffers] = at;
    BP_ASSERT(at == order->windows);
    order->epoch = epoch;
}

void bp_order_find(bp_order *order, int64_t epoch, int64_t entry, bp_order_buffer *buffer)
{
    if (order->epoch != epoch)
        enter_epoch(order, epoch);

    int64_t low = bp_stretch_of(order->buffer_first, order->buffers, entry);
    bp_rng_key key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 0);
    int64_t first_block = low * BP_BUFFER_BLOCKS;
    int64_t left = order->blocks - first_block;

    buffer->epoch = epoch;
    buffer->number = low;
    buffer->first = order->buffer_first[low];
    buffer->windows = order->buffer_first[low + 1] - buffer->first;
    buffer->blocks = left < BP_BUFFER_BLOCKS ? (int)left : BP_BUFFER_BLOCKS;
    for (int i = 0; i < buffer->blocks; i++)
        buffer->block[i] = permuted(order, &key, first_block + i, order->blocks);
    buffer->key = bp_rng_key_of(order->seed, BP_RNG_SHUFFLE, order->member, epoch, 1 + low);
}

int64_t bp_order_window(const bp_order *order, const bp_order_buffer *buffer, int64_t entry,
                        int64_t *block)
{
    int64_t place = permuted(order, &buffer->key, entry - buffer->first, buffer->windows);

    for (int i = 0; i < buffer->blocks; i++) {
        int64_t windows = block_windows(order, buffer->block[i]);

        if (place < windows) {
            *block = buffer->block[i];
            return bp_order_block_first(order, *block) + place;
        }
        place -= windows;
    }
    BP_ASSERT(false && "an entry lies in its shuffle buffer");
    return -1;
}
