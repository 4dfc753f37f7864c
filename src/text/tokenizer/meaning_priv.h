/* The meaning of a tokenizer.json, independent of its spelling. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "base/files/hash.h"

#include <limits.h>
#include <stdbool.h>

/** SHA-256 of a tokenizer.json's meaning: of its canonical text, in which members are in order,
 * defaults, truncation and padding are omitted, merges are pairs and scores reals. Errors:
 * BP_ERR_SYSTEM. */
bp_err bp_meaning_hash(char hash[BP_SHA256_HEX], const json_t *root);

/** The text of the tokenizer.json that a file keeps, to *text (bp_free); NULL if none. */
typedef bp_err bp_meaning_source(const char *path, char **text, size_t *bytes);

/** What is known of a hash. */
typedef struct bp_known_hash {
    char hash[BP_SHA256_HEX], meaning[BP_SHA256_HEX]; /* meaning "": not looked for yet */
    char path[PATH_MAX];
    bp_meaning_source *read;
} bp_known_hash;
/** false: nothing. */
bool bp_meaning_find(bp_known_hash *out, const char *hash);
/** Record that the file at `path` has a tokenizer with this hash. */
void bp_meaning_is_in(const char *hash, const char *path, bp_meaning_source *read);

/** From now on, the hash of a text stands for that of its meaning. */
void bp_meaning_remember(const char *text_hash, const char *meaning);
