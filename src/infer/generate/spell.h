/* What generated ids decode to. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "text/tokenizer/tokenizer.h"

/** bp_decode for a model's output: ids beyond the tokenizer's vocabulary have no text (a model may
 * have more outcomes than its tokenizer tokens). Errors: BP_ERR_SYSTEM. */
bp_err bp_spell(const bp_tokenizer *tokenizer, const int32_t *tokens, int64_t count, char **text,
                size_t *bytes);

/** Text as JSON, which holds no invalid UTF-8 (bp_text_repair); NULL is null. New reference. */
json_t *bp_spell_json(const char *text, size_t bytes);
