/* Counts words by sorting them. Called by surprisal.c. */
#include "word_counts.h"

#include "base/mem.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const void *a, const void *b)
{
    const word_text *one = a, *other = b;
    size_t least = one->bytes < other->bytes ? one->bytes : other->bytes;
    int order = least > 0 ? memcmp(one->data, other->data, least) : 0;

    return order ? order : (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

void word_counts_add(word_counts *counts, const char *text, size_t bytes)
{
    counts->sorted = bp_grow("tool.words", counts->sorted, &counts->capacity, counts->words + 1,
                             sizeof *counts->sorted);
    counts->sorted[counts->words++] = (word_text){NULL, counts->texts.bytes, bytes};
    bp_buffer_add(&counts->texts, text, bytes);
}

void word_counts_sort(word_counts *counts)
{
    for (int64_t w = 0; w < counts->words; w++)
        counts->sorted[w].data = counts->texts.data + counts->sorted[w].at;
    if (counts->words > 0)
        qsort(counts->sorted, (size_t)counts->words, sizeof *counts->sorted, compare_texts);
}

/* How many sorted words come before `text`, those that equal it too if `equal`. */
static int64_t count_before(const word_counts *self, const word_text *text, bool equal)
{
    int64_t low = 0, high = self->words;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = compare_texts(&self->sorted[middle], text);

        if (order < 0 || (equal && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The words of a piece of another text: runs of characters that are not white space. */
static bp_err count_piece(void *context, const document_piece *piece)
{
    word_counts *self = context;
    size_t begin = 0, at = 0;

    while (at <= piece->bytes) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)piece->text + at, piece->bytes - at, &c);

        if (length == 0) { /* a byte that is not UTF-8, and no blank */
            length = 1;
            c = 0;
        }
        if (at == piece->bytes || bp_character_is_space(c)) {
            const word_text word = {piece->text + begin, 0, at - begin};
            int64_t found = word.bytes > 0 ? count_before(self, &word, false) : self->words;

            if (found < self->words && compare_texts(&self->sorted[found], &word) == 0)
                self->others[found]++;
            begin = at + length;
        }
        at += length;
    }
    return BP_OK;
}

bp_err word_counts_take(word_counts *counts, document_texts *texts)
{
    int64_t *first = NULL;
    bp_err err;

    counts->others = bp_alloc("tool.words", counts->words, sizeof *counts->others);
    err = document_texts_read(texts, 0, 1, &first, count_piece, counts);
    bp_free(first);
    return err;
}

int64_t word_counts_of(const word_counts *counts, const char *text, size_t bytes)
{
    const word_text word = {text, 0, bytes};
    int64_t first = count_before(counts, &word, false);

    return counts->others ? counts->others[first] : count_before(counts, &word, true) - first;
}

void word_counts_clear(word_counts *counts)
{
    bp_free(counts->sorted);
    bp_free(counts->others);
    bp_buffer_clear(&counts->texts);
    *counts = (word_counts){0};
}
