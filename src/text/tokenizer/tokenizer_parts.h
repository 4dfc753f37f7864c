/* The parts of a tokenizer. */
#pragma once

#include "base/config/json.h"
#include "text/pipeline/bpe.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/alphabet.h"
#include "text/unicode/strmap.h"

#include <stdbool.h>

/* Every code point a piece of its own, in a regular expression that Oniguruma, Rust and JavaScript
 * agree on. */
#define BP_CHAR_PATTERN "[\\s\\S]"

typedef enum bp_kind {
    BP_KIND_BPE,
    BP_KIND_WORD,
    BP_KIND_CHAR,
    BP_KIND_UNIGRAM,
    BP_KIND_WORDPIECE
} bp_kind;

/* The value in `names` of an id without a token: it is never found in text, and its text is empty.
 */
#define BP_HOLE 2

struct bp_pipeline;

struct bp_tokenizer {
    bp_kind kind;

    bp_strmap
        names; /* entry k is the token of id k, as JSON spells it; its value: 1 special, 0 not */
    bp_merges merges;          /* bpe, like everything below */
    bool add_prefix_space;     /* a document that does not start with a space gets one */
    bool use_regex;            /* false: a document is one piece */
    size_t merge_prefix_bytes; /* of a merge's right part that its result lacks */
    bool ignore_merges;        /* a piece that is a token is that token, whatever the merges */
    json_t *added;             /* added_tokens, by id, with seven fields each */
    int64_t roles[BP_ROLES];
    bp_ends ends;
    int64_t before;   /* the token that the template puts before a text, the first; -1 if none */
    int before_count; /* number of tokens that it puts there */
    bool has_end;     /* it puts one after it too */
    char *disagreement[BP_DISAGREEMENTS];
    char *unread; /* what a file beside it has that names no token, for a warning; or NULL */
    struct bp_pipeline *pipeline; /* NULL: byte-level BPE with GPT-2's pattern, words, characters */
    bool framed;                  /* its post-processor was put back */
    bool truncates, pads;         /* its file asks for it: ignored */
    int64_t holes, first_hole;    /* ids without a token: entries of value BP_HOLE */
    char hash[BP_SHA256_HEX];
};

/** An empty tokenizer of a kind. Errors: BP_ERR_SYSTEM. */
bp_err bp_tokenizer_new(bp_tokenizer **out, bp_kind kind);

/** Give the next id to the token called `name`. Errors: BP_ERR_FORMAT it has one; BP_ERR_SYSTEM. */
bp_err bp_tokenizer_add(bp_tokenizer *tokenizer, const char *name, size_t bytes);

/** Name the special token that is already in the vocabulary. Errors: BP_ERR_SYSTEM. */
bp_err bp_tokenizer_add_special(bp_tokenizer *tokenizer, int64_t id);

/** All tokens are there: check them, take the merges (bp_alloc, even on failure; NULL except for
 * bpe), find <|endoftext|> and <unk>, make the hash.
 *
 * Errors: BP_ERR_FORMAT, `name` in the message; BP_ERR_SYSTEM.
 */
bp_err bp_tokenizer_finish(bp_tokenizer *tokenizer, bp_merge *merges, int64_t count,
                           const char *name);

/** Take the merges, as bp_tokenizer_finish does. */
bp_err bp_tokenizer_take_merges(bp_tokenizer *tokenizer, bp_merge *merges, int64_t count,
                                bool byte_level, const char *name);
/** The hash of what it means; `root`: the tokenizer.json where it is kept as it came, else NULL.
 * Errors: BP_ERR_SYSTEM. */
bp_err bp_tokenizer_make_hash(bp_tokenizer *tokenizer, const json_t *root);
/** Roles by the template and the names of special tokens, if nothing else set them; the end of a
 * document. */
void bp_tokenizer_name_roles(bp_tokenizer *tokenizer);
/** What the template puts before a text and means as its beginning; -1: nothing. A template of
 * masked models frames texts, and has no such token. */
int64_t bp_tokenizer_template_bos(const bp_tokenizer *tokenizer);

/** Bytes of the longest name. */
size_t bp_tokenizer_longest(const bp_tokenizer *tokenizer);

/** Warn if truncation or padding of a file is ignored, or ids have no token. */
void bp_tokenizer_warn(const bp_tokenizer *tokenizer, const char *path);
