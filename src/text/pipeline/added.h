/* Added tokens: names found in text before all other steps. */
#pragma once

#include "base/config/json.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pretokenizer.h"
#include "text/unicode/trie.h"

typedef struct bp_added_token {
    int64_t id;
    bool special, single_word, lstrip, rstrip;
} bp_added_token;

typedef struct bp_added_set {
    bp_trie trie;        /* of contents; a value is a place in bp_added.tokens */
    bool starts[256];    /* bytes that a content begins with */
    bool any, any_plain; /* tokens at all, and such that are not special */
} bp_added_set;

typedef struct bp_added { /* {0} if there are none */
    bp_added_token *tokens;
    int count;
    bp_added_set raw, normalized; /* found in the original text, and in normalized text */
} bp_added;

/** Read "added_tokens" (ids were checked); contents of the normalized ones are normalized.
 * Errors: BP_ERR_FORMAT a flag is not a boolean; those of bp_normalize. */
bp_err bp_added_read(bp_added *out, const json_t *json, const bp_normalizer *normalizer,
                     const char *name);
void bp_added_clear(bp_added *added);

/** Cut text at the tokens of a set: sections in order, ids[k] the token of section k, -1 for text.
 * Without `specials`, special tokens are text. Finds the longest content at the leftmost place.
 * Source: huggingface/tokenizers, tokenizer/added_vocabulary.rs (find_matches). */
typedef struct bp_sections {
    bp_spans spans;
    int64_t *ids;
    int64_t capacity;
} bp_sections;
void bp_sections_clear(bp_sections *sections);
void bp_added_cut(const bp_added *added, const bp_added_set *set, bool specials, const char *text,
                  size_t bytes, bp_sections *out);
