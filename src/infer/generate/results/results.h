/* The result of a unit, packed for part files. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "infer/generate/search/search.h"

/** Append the texts of a prompt, in this build's layout and byte order: their number, then for each
 * text the head, tokens, log-probabilities, statistics. */
void bp_result_add(bp_buffer *out, const bp_search *search);
/** The same for `count` texts. */
void bp_result_add_text(bp_buffer *out, const bp_search_text *texts, int64_t count);

/** Reads a packed result from beginning to end. */
typedef struct bp_result_reader {
    const char *at, *end;
} bp_result_reader;
/** Returns the number of texts of the next prompt. The caller sets reader->at and ->end; bytes are
 * borrowed.
 * Errors: BP_ERR_FORMAT the result ends here. */
bp_err bp_result_prompt(bp_result_reader *reader, int64_t *texts);
/** Read the next text of the prompt. Owns: *text's arrays are the caller's, bp_result_text_clear(),
 * after an error too. Errors: BP_ERR_FORMAT cut short, or a length that can't be. */
bp_err bp_result_text(bp_result_reader *reader, bp_search_text *text);
void bp_result_text_clear(bp_search_text *text);
