/* Training a Unigram vocabulary: the parts. Source: Kudo 2018, section 3.2; google/sentencepiece,
 * src/unigram_model_trainer.cc. */
#pragma once

#include "text/unicode/strmap.h"
#include "text/unicode/trie.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_UNIGRAM_UNKNOWN      "\xE2\x96\x85" /* U+2585 stands for a rare character in words */
#define BP_UNIGRAM_UNKNOWN_CODE 0x2585u
#define BP_UNIGRAM_MARK_CODE    0x2581u
#define BP_UNIGRAM_LONGEST      16      /* characters of a piece */
#define BP_UNIGRAM_SEEDS        1000000 /* pieces at the start */
#define BP_UNIGRAM_SEED_SHARE   8       /* of text whose words hardly repeat: times the size */
#define BP_UNIGRAM_WORD         1000    /* characters of a word: longer ones are cut */

/* Pieces with their scores: first expected counts, then natural logarithms of probabilities. */
typedef struct bp_unigrams {
    bp_strmap names; /* entry k: piece k */
    double *scores;  /* [capacity] */
    int64_t capacity;
} bp_unigrams;
void bp_unigrams_add(bp_unigrams *pieces, const char *name, size_t bytes, double score);
void bp_unigrams_clear(bp_unigrams *pieces);

/** Characters that are pieces in any case (key: UTF-8, value: how often), in order of code points.
 */
typedef struct bp_letters {
    uint32_t *codes;
    int64_t *counts;
    int64_t count;
} bp_letters;

/** The number of a letter; -1 if it is not one. */
int64_t bp_letter_of(const bp_letters *letters, uint32_t code);

/** Can a suffix array of 32-bit numbers hold the words? */
bool bp_unigram_fits(const bp_strmap *words);
/** The pieces at the start: all letters, and the repeated substrings of words by number times
 * length, of words as they are sorted; line_ends: how often those are at the end of a line. A
 * substring counts as repeated where it goes on in two ways (an inner node of the suffix tree).
 * Scores are logarithms of their shares. At most `most`, besides the letters. */
void bp_unigram_seed(bp_unigrams *out, const bp_strmap *words, const bp_strmap *line_ends,
                     const bp_letters *letters, int64_t most);
/** How many that is for a vocabulary of `size`: BP_UNIGRAM_SEEDS; of text without blanks, most of
 * whose characters are in words of their own, less. All its words are read in each pass, so that
 * time grows faster than the text where seeds do, too. */
int64_t bp_unigram_most_seeds(const bp_strmap *words, int64_t size);

/** One step of expectation maximisation: improves scores, and removes rare pieces. */
void bp_unigram_improve(bp_unigrams *pieces, const bp_strmap *words);
/** Remove the pieces whose loss costs least likelihood, at most down to `wanted`; false if none
 * could be removed. */
bool bp_unigram_prune(bp_unigrams *pieces, const bp_strmap *words, int64_t wanted);
