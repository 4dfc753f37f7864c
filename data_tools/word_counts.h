/* How often words occur in texts. */
#pragma once

#include "base/buffer.h"
#include "document_texts.h"

/* A word, which may have bytes of 0. */
typedef struct word_text {
    const char *data;
    size_t at, bytes; /* in `texts`, until that is whole */
} word_text;

/** Words that were added, to count them, or in other texts. {0} at first. */
typedef struct word_counts {
    bp_buffer texts;
    word_text *sorted; /* [words] */
    int64_t words, capacity;
    int64_t *others; /* [words]: how often the first of equal words is in other texts; NULL: there
                        are none */
} word_counts;

void word_counts_add(word_counts *counts, const char *text, size_t bytes);
/** After all are added, before the rest. */
void word_counts_sort(word_counts *counts);
/** Count in these texts, and not among the words. Errors: those of document_texts_read. */
bp_err word_counts_take(word_counts *counts, document_texts *texts);
int64_t word_counts_of(const word_counts *counts, const char *text, size_t bytes);
void word_counts_clear(word_counts *counts);
