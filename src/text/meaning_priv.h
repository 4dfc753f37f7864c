/* What a tokenizer.json means, however it is spelled. */
#ifndef BP_TEXT_MEANING_PRIV_H
#define BP_TEXT_MEANING_PRIV_H

#include "base/err.h"
#include "base/hash.h"
#include "base/json.h"

/** SHA-256 of a tokenizer.json's meaning: of its canonical text, in which members are in order,
 * those at their default, truncation and padding are left out, merges are pairs and scores reals.
 * Errors: BP_ERR_SYSTEM. */
bp_err bp_meaning_hash(char hash[BP_SHA256_HEX], const json_t *root);

/** From now on, the hash of a text stands for that of its meaning. */
void bp_meaning_remember(const char *text_hash, const char *meaning);

#endif
