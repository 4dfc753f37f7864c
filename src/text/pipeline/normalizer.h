/* Normalizers of tokenizer.json: applied to text before it is cut into pieces. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "text/pipeline/charsmap_priv.h"
#include "text/unicode/regex.h"

#include <stdbool.h>

typedef enum bp_norm_kind {
    BP_NORM_FORM,      /* NFC, NFD, NFKC, NFKD */
    BP_NORM_LOWERCASE, /* each character on its own */
    BP_NORM_STRIP,     /* White_Space at the ends */
    BP_NORM_ACCENTS,   /* StripAccents: all marks go */
    BP_NORM_BERT,
    BP_NORM_PREPEND,
    BP_NORM_REPLACE,
    BP_NORM_CHARSMAP, /* Precompiled */
    BP_NORM_NMT
} bp_norm_kind;

typedef struct bp_norm_step {
    bp_norm_kind kind;
    int form;                                   /* utf8proc's options */
    bool left, right;                           /* STRIP */
    bool clean, chinese, lowercase, no_accents; /* BERT */
    char *content, *pattern;                    /* PREPEND, REPLACE */
    size_t content_bytes, pattern_bytes;
    bp_regex *regex; /* REPLACE; NULL: `pattern` is the string */
    bp_charsmap *map;
    bool longest; /* CHARSMAP: as SentencePiece applies it, */
    bp_trie keep; /* but to these texts */
} bp_norm_step;

typedef struct bp_normalizer { /* {0} leaves text unchanged */
    bp_norm_step *steps;
    int count;
} bp_normalizer;

/** Read a component and those in it ("Sequence"); null is ignored. Errors: BP_ERR_FORMAT (an
 * unknown component, by name; its parts), BP_ERR_SYSTEM. The caller always frees the result. */
bp_err bp_normalizer_read(bp_normalizer *out, const json_t *json, const char *name);
void bp_normalizer_clear(bp_normalizer *normalizer);

/** Normalize valid UTF-8. The result is `text` itself or is in one of `scratch`, until the next
 * call. *first, the text begins its document, becomes false where its first characters were taken
 * away (Strip; Replace with nothing): Metaspace's "first" counts original places. Errors: those of
 * bp_regex_next; BP_ERR_FORMAT more than BP_NORM_GROWTH times the text; BP_ERR_SYSTEM. */
bp_err bp_normalize(const bp_normalizer *normalizer, bp_regex_work *regex, bp_buffer scratch[2],
                    const char **text, size_t *bytes, bool *first);

/** What it removes from letters: "letter case", "accents", "letter case and accents",
 * "compatibility characters"; NULL if nothing. */
const char *bp_normalizer_loses(const bp_normalizer *normalizer);

/* Normalizers may make a text at most this many times longer, and 64 KiB. */
#define BP_NORM_GROWTH 32
static inline size_t bp_norm_most(size_t bytes)
{
    return BP_NORM_GROWTH * bytes + ((size_t)64 << 10);
}
/** The error for `bytes` of text. */
bp_err bp_norm_grew(size_t bytes);

/** One whole step. Errors: as above. */
bp_err bp_norm_apply(const bp_norm_step *step, bp_regex_work *regex, const char *text, size_t bytes,
                     bp_buffer *out);

/** One of the four forms; `drop` are categories (bits 1 << utf8proc_category_t) that go. */
bp_err bp_norm_form(int form, unsigned drop, const char *text, size_t bytes, bp_buffer *out);
