/* The tokenizer that a GGUF file holds, as tokenizer.json. */
#pragma once

#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"

/** The tokenizer with its roles; *out NULL if the file has none.
 *
 * Owns:   *out is the caller's.
 * Errors: BP_ERR_FORMAT an unknown kind or splitting of text, named; inconsistent lists; those of
 * bp_tokenizer_parse. */
bp_err bp_gguf_tokenizer(bp_tokenizer **out, const bp_gguf *file);
/** Its special tokens in the form of tokenizer_config.json, for bp_tokenizer_take_config. New
 * reference. */
json_t *bp_gguf_token_names(const bp_gguf *file);

/** The keys "tokenizer.ggml..." of a tokenizer, added to `keys`. Ids up to `vocab_size` without a
 * token become "[PADn]", unused: llama.cpp requires one for each row of the table.
 *
 * Errors: BP_ERR_FORMAT a tokenizer that GGUF files can't describe. */
bp_err bp_gguf_put_tokenizer(json_t *keys, const bp_tokenizer *tokenizer, int64_t vocab_size);
