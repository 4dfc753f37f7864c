/* N-grams of words as two hashes, and the table of those of the test texts. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OVERLAP_WORDS_MOST 100

/** Two hashes of 64 bits: two n-grams share both with a probability of 2^-128. */
typedef struct overlap_gram {
    uint64_t key, check;
} overlap_gram;

/** The words of a text, and the n-gram that ends with the last one: each hash is a polynomial of
 * the words' hashes modulo 2^64. Adding a word and removing one take constant time (Karp and Rabin
 * 1987). */
typedef struct overlap_reader {
    int words;                            /* n */
    uint64_t ring[2][OVERLAP_WORDS_MOST]; /* hashes of the last n words */
    uint64_t sum[2], highest[2];          /* factor^(n - 1) */
    int64_t seen;                         /* words of the document */
    bp_buffer word;
} overlap_reader;

void overlap_reader_init(overlap_reader *reader, int words);
void overlap_reader_clear(overlap_reader *reader);
void overlap_reader_begin(overlap_reader *reader); /* a document */
/** The next word at *at; false if there is none. *whole: it ends an n-gram, *gram. */
bool overlap_reader_next(overlap_reader *reader, const char *text, size_t bytes, size_t *at,
                         bool *whole, overlap_gram *gram);

#define OVERLAP_NOWHERE INT64_MAX

/** The n-grams of the test texts, and the first training document of each; OVERLAP_NOWHERE if there
 * is none.
 */
typedef struct overlap_table {
    uint64_t *keys, *checks; /* [mask + 1]; key 0: a free entry */
    int64_t *first;          /* [mask + 1] */
    int64_t mask, count;
} overlap_table;

#define OVERLAP_ENTRY_BYTES 24

/** Allocate for up to `grams` n-grams. Errors: BP_ERR_SYSTEM memory. */
bp_err overlap_table_init(overlap_table *table, int64_t grams);
void overlap_table_clear(overlap_table *table);
void overlap_table_add(overlap_table *table, overlap_gram gram);
/** Index of an n-gram; -1 if it is not in the table. */
int64_t overlap_table_find(const overlap_table *table, overlap_gram gram);

/** Which of `parts` an n-gram belongs to. */
static inline int overlap_part(overlap_gram gram, int parts)
{
    return parts == 1 ? 0 : (int)(gram.check % (uint64_t)parts);
}
