/* The key of an n-gram: its ids in one integer, so that n-grams sort like integers.
 *
 * Each id takes `bits` bits as id + 1, so that "no word" is 0 and sorts first. In suffix order the
 * last word is the highest; in context order the first one. The id of <s> is vocab_size.
 *
 * Local: no MPI. */
#pragma once

#include <stdint.h>

#define NGRAM_ORDER_MOST 7
#define NGRAM_KEY_BITS   128

__extension__ typedef unsigned __int128 ngram_key;

/** What is sorted: an n-gram and its count, or its place. */
typedef struct ngram_item {
    uint64_t high, low;
    int64_t value;
} ngram_item;

static inline ngram_key ngram_item_key(const ngram_item *item)
{
    return ((ngram_key)item->high << 64) | item->low;
}

static inline ngram_item ngram_item_of(ngram_key key, int64_t value)
{
    return (ngram_item){(uint64_t)(key >> 64), (uint64_t)key, value};
}

static inline int ngram_compare_items(const ngram_item *a, const ngram_item *b)
{
    return a->high != b->high ? (a->high > b->high) - (a->high < b->high)
                              : (a->low > b->low) - (a->low < b->low);
}

/** Bits of an id of a vocabulary: vocab_size + 1 ids, and "no word". */
static inline int ngram_bits(int64_t vocab_size)
{
    int bits = 1;

    while (((int64_t)1 << bits) < vocab_size + 2)
        bits++;
    return bits;
}

/** The slot `at` (0: the lowest) of a key. */
static inline uint64_t ngram_slot(ngram_key key, int bits, int at)
{
    return (uint64_t)(key >> (bits * at)) & (((uint64_t)1 << bits) - 1);
}

/** Convert a key of `words` words from one order to the other. */
static inline ngram_key ngram_reverse(ngram_key key, int bits, int words)
{
    ngram_key out = 0;

    for (int k = 0; k < words; k++)
        out = (out << bits) | ngram_slot(key, bits, k);
    return out;
}

/** Sort by key; `scratch` is as large. The sort is not stable. */
void ngram_sort(ngram_item *items, ngram_item *scratch, int64_t count, int key_bits);
/** Combine items of one key into one, with the sum of their values; returns the number left. */
int64_t ngram_combine(ngram_item *items, int64_t count);
