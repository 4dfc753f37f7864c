/* N-grams of words: rolling hashes and a table of open addressing. */
#include "overlap_grams.h"

#include "base/files/hash.h"
#include "base/mem.h"
#include "text/unicode/plain_words.h"

#include <string.h>

static const uint64_t FACTORS[2] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u}; /* odd */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
}

void overlap_reader_init(overlap_reader *reader, int words)
{
    memset(reader, 0, sizeof *reader);
    reader->words = words;
    for (int k = 0; k < 2; k++) {
        reader->highest[k] = 1;
        for (int power = 1; power < words; power++)
            reader->highest[k] *= FACTORS[k];
    }
}

void overlap_reader_clear(overlap_reader *reader)
{
    bp_buffer_clear(&reader->word);
}

void overlap_reader_begin(overlap_reader *reader)
{
    memset(reader->ring, 0, sizeof reader->ring);
    reader->sum[0] = reader->sum[1] = 0;
    reader->seen = 0;
}

bool overlap_reader_next(overlap_reader *reader, const char *text, size_t bytes, size_t *at,
                         bool *whole, overlap_gram *gram)
{
    if (!bp_plain_word(text, bytes, at, &reader->word))
        return false;
    uint64_t hash[2] = {bp_xxh3(reader->word.data, reader->word.bytes)};
    int place = (int)(reader->seen++ % reader->words);

    hash[1] = mix(hash[0] ^ FACTORS[1]);
    for (int k = 0; k < 2; k++) {
        reader->sum[k] =
            (reader->sum[k] - reader->ring[k][place] * reader->highest[k]) * FACTORS[k] + hash[k];
        reader->ring[k][place] = hash[k];
    }
    *whole = reader->seen >= reader->words;
    *gram = (overlap_gram){mix(reader->sum[0]), mix(reader->sum[1])};
    gram->key += gram->key == 0;
    return true;
}

bp_err overlap_table_init(overlap_table *table, int64_t grams)
{
    int64_t slots = 16;

    while (slots < 2 * grams)
        slots *= 2;
    *table = (overlap_table){.mask = slots - 1};
    table->keys = bp_try_alloc("tool.overlap", slots, sizeof *table->keys);
    table->checks = bp_try_alloc("tool.overlap", slots, sizeof *table->checks);
    table->first = bp_try_alloc("tool.overlap", slots, sizeof *table->first);
    if (!table->keys || !table->checks || !table->first)
        return bp_fail_memory("n-grams (see --memory)", slots, OVERLAP_ENTRY_BYTES);
    return BP_OK;
}

void overlap_table_clear(overlap_table *table)
{
    bp_free(table->keys);
    bp_free(table->checks);
    bp_free(table->first);
    *table = (overlap_table){0};
}

/* The slot of an n-gram, or the free one where it belongs. */
static int64_t slot_of(const overlap_table *table, overlap_gram gram)
{
    int64_t slot = (int64_t)(gram.key & (uint64_t)table->mask);

    while (table->keys[slot] != 0 &&
           (table->keys[slot] != gram.key || table->checks[slot] != gram.check))
        slot = (slot + 1) & table->mask;
    return slot;
}

void overlap_table_add(overlap_table *table, overlap_gram gram)
{
    int64_t slot = slot_of(table, gram);

    if (table->keys[slot] != 0)
        return;
    BP_ASSERT(table->count < table->mask);
    table->keys[slot] = gram.key;
    table->checks[slot] = gram.check;
    table->first[slot] = OVERLAP_NOWHERE;
    table->count++;
}

int64_t overlap_table_find(const overlap_table *table, overlap_gram gram)
{
    int64_t slot = slot_of(table, gram);

    return table->keys[slot] != 0 ? slot : -1;
}
