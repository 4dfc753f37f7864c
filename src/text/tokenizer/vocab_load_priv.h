/* Reading the vocabulary and the merges of tokenizer.json. */
#pragma once

#include "base/config/json.h"
#include "text/tokenizer/tokenizer_parts.h"

/** Tokens that a file's vocabulary may have: 2^22; tests set it. */
extern int64_t bp_tokenizer_size_limit;

/** Add the tokens of a JSON object {token: id}, and those of an added_tokens list that are not in
 * it, in order of id.
 *
 * Errors: BP_ERR_FORMAT (`name` is the file in the message), BP_ERR_SYSTEM.
 */
bp_err bp_read_vocab(bp_tokenizer *tokenizer, json_t *vocab, const json_t *added, const char *name);

/** Check "added_tokens". Errors: BP_ERR_FORMAT. */
bp_err bp_check_added(const json_t *added, const char *name);
/** Check for unsupported settings of a BPE model. Errors: BP_ERR_FORMAT. */
bp_err bp_check_bpe_settings(const json_t *model, const char *name);
/** "merges": strings or pairs, to *out (bp_alloc). Errors: BP_ERR_FORMAT. */
bp_err bp_read_merges(bp_tokenizer *tokenizer, const json_t *merges, bp_merge **out,
                      const char *name);

/** The merge "left right" whose space is at text[split]. Errors: BP_ERR_FORMAT a part or the
 * result is not a token; BP_ERR_SYSTEM. */
bp_err bp_read_merge(const bp_tokenizer *tokenizer, bp_merge *out, const char *text, size_t bytes,
                     size_t split);
