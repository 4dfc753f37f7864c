/* Words of text, counted in pieces: what a perplexity per word is divided by. */
#include "text/unicode/tally.h"
#include "text/unicode/unicode.h"

void bp_text_tally_join(bp_text_tally *left, const bp_text_tally *right)
{
    if (right->bytes == 0)
        return;
    if (left->bytes == 0) {
        *left = *right;
        return;
    }
    left->words += right->words - (left->ends_in_word && right->starts_in_word);
    left->runs += right->runs - (left->ends_in_run && right->starts_in_run);
    left->invalid_bytes += right->invalid_bytes;
    left->bytes += right->bytes;
    left->ends_in_word = right->ends_in_word;
    left->ends_in_run = right->ends_in_run;
}

void bp_text_tally_add(bp_text_tally *tally, const char *text, size_t bytes)
{
    const uint8_t *classes = bp_unicode_classes();
    const uint8_t *p = (const uint8_t *)text;
    const uint8_t *end = p + bytes;
    bp_text_tally piece = {.bytes = (int64_t)bytes};
    bool in_word = false, in_run = false;

    while (p < end) {
        uint32_t code_point;
        size_t length = bp_utf8_decode(p, (size_t)(end - p), &code_point);
        unsigned class = length == 0 ? BP_CLASS_END : classes[code_point];
        bool word = (class & BP_CLASS_MASK) != BP_CLASS_SPACE;
        bool run = (class & BP_CLASS_RUN) != 0;

        if (p == (const uint8_t *)text) {
            piece.starts_in_word = word;
            piece.starts_in_run = run;
        }
        piece.words += word && !in_word;
        piece.runs += run && !in_run;
        piece.invalid_bytes += length == 0;
        in_word = word;
        in_run = run;
        p += length == 0 ? 1 : length;
    }
    piece.ends_in_word = in_word;
    piece.ends_in_run = in_run;
    bp_text_tally_join(tally, &piece);
}

bp_text_counts bp_text_tally_counts(const bp_text_tally *tally)
{
    return (bp_text_counts){.words = tally->words,
                            .words_split = tally->runs + 1,
                            .invalid_bytes = tally->invalid_bytes};
}

void bp_text_count(bp_text_counts *counts, const char *text, size_t bytes)
{
    bp_text_tally tally = {0};

    bp_text_tally_add(&tally, text, bytes);
    *counts = bp_text_tally_counts(&tally);
}
