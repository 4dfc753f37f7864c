/* Words of a line, and n-grams of them: as 64-bit hashes, of which two different ones among 10^9
 * are equal with a probability of 3 %. */
#pragma once

#include "base/buffer.h"
#include "text_metrics/text_metrics.h"

#include <stdint.h>

typedef struct bp_words { /* {0}, ends with bp_words_clear */
    uint64_t *list;
    int64_t count, capacity;
    bp_buffer text[2]; /* scratch */
    bool spans;        /* keep `places` too */
    bp_line *places;   /* [capacity]: the words' text, until the next line */
} bp_words;
void bp_words_clear(bp_words *words);

void bp_words_add(bp_words *words, uint64_t word);

/** The words of a line, in place of those before. */
void bp_words_of_bleu(bp_words *words, bp_line line, bp_bleu_words how);
void bp_words_of_rouge(bp_words *words, bp_line line);
/** SQuAD's normal form. */
void bp_words_of_answer(bp_words *words, bp_line line);
/** Characters that are not white space. */
void bp_words_of_characters(bp_words *words, bp_line line);

/** Sorted n-grams. */
typedef struct bp_grams { /* {0}, ends with bp_grams_clear */
    uint64_t *list;
    int64_t count, capacity;
} bp_grams;
void bp_grams_clear(bp_grams *grams);
void bp_grams_of(bp_grams *grams, const bp_words *words, int64_t order);

/** The number of the hypothesis's n-grams that are also in a reference, each counted at most as
 * often as in the reference that has most of it. */
int64_t bp_grams_common(const bp_grams *hypothesis, const bp_grams *references, int64_t count);
