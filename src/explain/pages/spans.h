/* Tokens as readable text, for pages and for words of the corpus. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/config/config.h"
#include "data/corpus.h"
#include "text/tokenizer/tokenizer.h"

typedef struct explain_speller {
    bp_tokenizer *tokenizer; /* NULL if ids are shown */
    bool *continues;         /* [vocabulary] the token continues a word */
    bool spaced, pieces;     /* words, WordPiece: a space precedes each word */
} explain_speller;

/** Open with the corpora's tokenizer, or that of tokenizer.path. Clear after an error too. Errors:
 * those of bp_score_page_tokenizer; BP_ERR_SYSTEM. */
bp_err explain_speller_open(explain_speller *out, const bp_corpus *corpus, const bp_config *config);
void explain_speller_clear(explain_speller *speller);

/** Adjacent tokens whose bytes form whole characters; most spans are one token. */
typedef struct explain_span {
    int64_t first, count; /* first token, and number of tokens */
    size_t text, bytes;   /* in explain_spans.texts */
    bool begins;          /* a word */
    bool space;           /* a space precedes it, not part of its text */
} explain_span;
typedef struct explain_spans {
    explain_span *list;
    int64_t count;
    bp_buffer texts;
} explain_spans;
/** Errors: those of bp_tokenizer_characters. Clear after an error too. */
bp_err explain_spans_of(explain_spans *out, const explain_speller *speller, const int32_t *tokens,
                        int64_t count);
void explain_spans_clear(explain_spans *spans);

/** The text of spans [first, end), without those that go beyond `most` bytes. New reference. */
json_t *explain_spans_text(const explain_spans *spans, int64_t first, int64_t end, size_t most);
/** {"text": [...], "count": [...], "begins": [0 or 1, ...], "space": [...]}. New reference. */
json_t *explain_spans_json(const explain_spans *spans);
/** The text of one token; its id if there is no tokenizer. New reference. */
json_t *explain_token_json(const explain_speller *speller, int64_t token);
/** The same for token `at` of a text, with the tokens beside it whose bytes are of the same
 * character. New reference. */
json_t *explain_joined_json(const explain_speller *speller, const int32_t *tokens, int64_t count,
                            int64_t at);
/** text: the word of spans [first, end), without its leading space. Sets *end. */
void explain_word_at(const explain_spans *spans, int64_t first, int64_t *end, bp_buffer *text);
