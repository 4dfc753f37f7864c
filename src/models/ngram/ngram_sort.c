/* Sorting n-grams: from the highest byte of the key downwards, until a bucket fits a cache. */
#include "models/ngram/ngram_key_priv.h"

#include <string.h>

#define DIGIT_BITS 8
#define BUCKETS    (1 << DIGIT_BITS)
#define FEW        24 /* items that insertion sorts fastest */

static void insert(ngram_item *items, int64_t count)
{
    for (int64_t k = 1; k < count; k++) {
        ngram_item item = items[k];
        int64_t at = k;

        for (; at > 0 && ngram_compare_items(&items[at - 1], &item) > 0; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

static inline int digit_of(const ngram_item *item, int shift)
{
    uint64_t word = shift >= 64 ? item->high >> (shift - 64) : item->low >> shift;

    return (int)(word & (BUCKETS - 1));
}

/* The digit at `shift` and all below it. Digits are of 8 bits from bit 0 on: none crosses bit
 * 64. */
static void sort(ngram_item *items, ngram_item *scratch, int64_t count, int shift)
{
    int64_t ends[BUCKETS] = {0}, begin = 0;

    while (count > FEW && shift >= 0) { /* a digit shared by all items splits nothing */
        memset(ends, 0, sizeof ends);
        for (int64_t k = 0; k < count; k++)
            ends[digit_of(&items[k], shift)]++;
        if (ends[digit_of(&items[0], shift)] < count)
            break;
        shift -= DIGIT_BITS;
    }
    if (count <= FEW || shift < 0) {
        if (shift >= 0 || count <= FEW)
            insert(items, count);
        return;
    }
    for (int b = 1; b < BUCKETS; b++)
        ends[b] += ends[b - 1];
    for (int64_t k = count - 1; k >= 0; k--)
        scratch[--ends[digit_of(&items[k], shift)]] = items[k];
    memcpy(items, scratch, (size_t)count * sizeof *items);
    for (int b = 1; b <= BUCKETS; b++) { /* ends[] now holds where each bucket begins */
        int64_t end = b < BUCKETS ? ends[b] : count;

        if (end - begin > 1)
            sort(items + begin, scratch + begin, end - begin, shift - DIGIT_BITS);
        begin = end;
    }
}

void ngram_sort(ngram_item *items, ngram_item *scratch, int64_t count, int key_bits)
{
    sort(items, scratch, count, (key_bits - 1) / DIGIT_BITS * DIGIT_BITS);
}

int64_t ngram_combine(ngram_item *items, int64_t count)
{
    int64_t kept = 0;

    for (int64_t k = 0; k < count; k++)
        if (kept > 0 && ngram_compare_items(&items[kept - 1], &items[k]) == 0)
            items[kept - 1].value += items[k].value;
        else
            items[kept++] = items[k];
    return kept;
}
