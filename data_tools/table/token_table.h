/* tokens.h5 as a table: one row per token, with its document and its text. */
#pragma once

#include "file_tool.h"
#include "text/tokenizer/tokenizer.h"

/** Is it a tokens.h5 with the ids of its tokens? Older versions did not keep them; for such a file
 * a warning says so. */
bool token_table_is(const bp_user_block *block, bp_h5 *h5);

/** Print the table as CSV. The file must be verified. Errors: BP_ERR_FORMAT another tokenizer, or a
 * damaged file; those of bp_tokenizer_load; BP_ERR_SYSTEM. */
bp_err token_table_print(bp_h5 *h5, const file_options *options);

/** Append a token's text as a field of CSV, always quoted, so that blanks at its ends are visible.
 * Local.
 * Errors: those of bp_tokenizer_token_text. */
bp_err add_token_text(bp_buffer *out, const bp_tokenizer *tokenizer, int64_t id);
