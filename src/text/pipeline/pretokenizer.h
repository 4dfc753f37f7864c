/* Pre-tokenizers of tokenizer.json: normalized text to pieces, each of which the model encodes on
 * its own. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "text/unicode/regex.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_pre_kind {
    BP_PRE_SPLIT, /* by a pattern */
    BP_PRE_GPT2,
    BP_PRE_LLAMA, /* patterns with a scanner by hand (unicode/scan.h) */
    BP_PRE_SPACE, /* WhitespaceSplit */
    BP_PRE_BERT,  /* removes White_Space; each punctuation mark is a piece */
    BP_PRE_PUNCTUATION,
    BP_PRE_DIGITS, /* characters of category N */
    BP_PRE_PREFIX, /* ByteLevel's add_prefix_space */
    BP_PRE_METASPACE
} bp_pre_kind;

/* The treatment of the matches (with `invert`, of the text between them). */
typedef enum bp_behavior {
    BP_REMOVED,
    BP_ISOLATED,
    BP_MERGED_PREVIOUS,
    BP_MERGED_NEXT,
    BP_CONTIGUOUS
} bp_behavior;

typedef enum bp_scheme { BP_PREPEND_ALWAYS, BP_PREPEND_FIRST, BP_PREPEND_NEVER } bp_scheme;

typedef struct bp_pre_step {
    bp_pre_kind kind;
    bp_behavior behavior;
    bool invert;
    char *pattern; /* SPLIT by a string; METASPACE: the replacement of a space */
    size_t pattern_bytes;
    bp_regex *regex; /* SPLIT */
    int digits;      /* LLAMA: the most in a piece */
    bp_scheme scheme;
    bool split; /* METASPACE */
} bp_pre_step;

typedef struct bp_pretokenizer { /* {0}: the text is one piece */
    bp_pre_step *steps;
    int count;
    bool byte_level; /* the model sees bytes: ByteLevel ended the list */
} bp_pretokenizer;

/** Read a component and those in it; null is ignored. Errors: BP_ERR_FORMAT (an unknown component,
 * by name; its parts; one after ByteLevel). The caller always frees the result. */
bp_err bp_pretokenizer_read(bp_pretokenizer *out, const json_t *json, const char *name);
void bp_pretokenizer_clear(bp_pretokenizer *pretokenizer);

typedef struct bp_span {
    size_t start, bytes;
} bp_span;
typedef struct bp_spans { /* {0}, ends with bp_spans_clear */
    bp_span *data;
    int64_t count, capacity;
} bp_spans;
void bp_spans_add(bp_spans *spans, size_t start, size_t bytes); /* empty ones are omitted */
void bp_spans_clear(bp_spans *spans);

/** Working memory of one thread: {0}; `regex` is borrowed. */
typedef struct bp_pre_work {
    bp_regex_work *regex;
    bp_buffer text[2];
    bp_spans spans[2], found;
    bool *is_match; /* [found.capacity]: of each of `found` */
    int64_t match_capacity;
    uint32_t hidden; /* text of invalid bytes: what they are hidden as, 0 if there are none */
} bp_pre_work;
void bp_pre_work_clear(bp_pre_work *work);

/** Cut valid UTF-8. The pieces are spans of *text, which is the given one or is in `work`, until
 * the next call. `first`: the text begins its document. Errors: those of bp_regex_next. */
bp_err bp_pretokenize(const bp_pretokenizer *pretokenizer, bp_pre_work *work, bool first,
                      const char **text, size_t bytes, const bp_spans **pieces);
