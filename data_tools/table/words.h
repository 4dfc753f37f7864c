/* Words of scored documents, as in the text: the pieces of each word are joined, and their
 * log-probabilities added. */
#pragma once

#include "base/buffer.h"
#include "io/h5/h5.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct scored_word {
    size_t at, bytes; /* in scored_words.text */
    int64_t pieces;   /* tokens */
    double logprob;   /* NaN if a piece was not scored; 0 pieces: part of the preceding word */
    double ends;      /* log P(a word begins after it) - log P(one begins where it does), or NaN */
    double entropy;   /* of the next token before its first piece, nats; NaN if unknown */
    int64_t sentence; /* from 1; a sentence ends with a word that ends with . ! ? or the like, but
                         not of an abbreviation, and with the words of such marks after it */
    int64_t characters;
    bool unknown; /* a piece is the unknown token */
} scored_word;

/** tokens.h5 of a score run, and the words of one of its documents at a time. */
typedef struct scored_words {
    bp_h5 *h5;
    bp_tokenizer *tokenizer;
    bool *continues, *special; /* [vocabulary] */
    int64_t unknown;           /* the unknown token; -1 if there is none */
    bool boundaries;           /* the file has the data for `ends` */
    const char *entropy;       /* the dataset of entropies; NULL: the file has none */
    int64_t documents;
    int64_t *start; /* [documents + 1] */
    char *ids;      /* [documents][id_bytes], without a terminating zero */
    size_t id_bytes;

    bp_buffer text; /* of the current document */
    int64_t *owner; /* [text bytes]: the token of a byte; -1 if the byte separates two words */
    int64_t owner_capacity, owned;
    scored_word *words;
    int64_t word_count, word_capacity;
    bool ended; /* the last word ends a sentence */
} scored_words;

/** Open score/tokens.h5 of a run folder; every byte is checked first. Clear after an error too.
 *
 * Errors:     BP_ERR_INPUT no scores of tokens; BP_ERR_FORMAT damaged, of an older version, or
 *             without a tokenizer. */
bp_err scored_words_open(scored_words *words, const char *folder);
void scored_words_clear(scored_words *words);

/** Fill words[word_count] of a document. Errors: those of bp_h5_read. */
bp_err scored_words_read(scored_words *words, int64_t document);
