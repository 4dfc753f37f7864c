/* Words and invalid bytes of a text, counted whole or in pieces. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Number of words (maximal runs of non-White_Space) and lm-evaluation-harness's
 * len(re.split(r"\s+", text)). Invalid bytes are non-White_Space; `invalid` counts them one at a
 * time. */
typedef struct bp_text_counts {
    int64_t words, words_split, invalid_bytes;
} bp_text_counts;
void bp_text_count(bp_text_counts *counts, const char *text, size_t bytes);

/** The same in pieces (cut between code points, as bp_documents cuts): start with {0}, add pieces
 * in order, or join what ranks counted of pieces that follow each other; bp_text_tally_counts says
 * the counts of what was added so far. */
typedef struct bp_text_tally {
    int64_t words, runs, invalid_bytes, bytes; /* runs: of what re's \s matches */
    bool starts_in_word, ends_in_word; /* its first, its last character is not White_Space */
    bool starts_in_run, ends_in_run;   /* ... is matched by re's \s */
} bp_text_tally;
void bp_text_tally_add(bp_text_tally *tally, const char *text, size_t bytes);
void bp_text_tally_join(bp_text_tally *left, const bp_text_tally *right);
bp_text_counts bp_text_tally_counts(const bp_text_tally *tally);
