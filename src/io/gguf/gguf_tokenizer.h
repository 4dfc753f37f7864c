/* The tokenizer that a GGUF file holds, as tokenizer.json. */
#ifndef BP_IO_GGUF_GGUF_TOKENIZER_H
#define BP_IO_GGUF_GGUF_TOKENIZER_H

#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"

/** The tokenizer with its roles; *out NULL: the file has none.
 *
 * Owns:   *out is the caller's.
 * Errors: BP_ERR_FORMAT a kind, or a way to split text, that is not known, by name; lists that do
 *         not go together; those of bp_tokenizer_parse. */
bp_err bp_gguf_tokenizer(bp_tokenizer **out, const bp_gguf *file);
/** Its special tokens as a tokenizer_config.json names them, for bp_tokenizer_take_config. New
 * reference. */
json_t *bp_gguf_token_names(const bp_gguf *file);

/** The keys "tokenizer.ggml..." of a tokenizer, added to `keys`. Ids up to `vocab_size` that it has
 * no token for are "[PADn]" and unused: llama.cpp wants one for each row of the table.
 *
 * Errors: BP_ERR_FORMAT one that GGUF files have no keys for. */
bp_err bp_gguf_put_tokenizer(json_t *keys, const bp_tokenizer *tokenizer, int64_t vocab_size);

#endif
