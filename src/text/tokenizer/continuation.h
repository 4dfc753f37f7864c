/* Tokens of a continuation, encoded like lm-evaluation-harness's pairs. Local: no MPI. */
#pragma once

#include "text/tokenizer/tokenizer.h"

/** A context. White space at its end belongs to the continuation. */
typedef struct bp_context_text {
    const char *text; /* borrowed */
    size_t bytes, kept;
    int64_t tokens; /* of what is kept, encoded by itself */
} bp_context_text;

/** The first two are the caller's, the others are found; the ids of what is kept are appended.
 * Errors: those of bp_encode. */
bp_err bp_context_text_encode(bp_context_text *context, bp_encoder *encoder, bp_ids *ids);

/** Append the ids of a text after a context: encodes both together, and skips as many tokens as the
 * context alone has. If none remain, encodes the text separately.
 *
 * Errors:     those of bp_encode.
 * Source:     lm-evaluation-harness, lm_eval/api/model.py, TemplateLM._encode_pair. */
bp_err bp_continuation_encode(bp_encoder *encoder, const bp_context_text *context, const char *text,
                              size_t bytes, bp_ids *ids);
