/* Tokens that a model's files force at certain positions, or forbid: the member "forced" of a
 * checkpoint's state, an object with Hugging Face's names. Local. */
#pragma once

#include "text/tokenizer/tokenizer.h"

typedef struct bp_forced {
    bool has_first, has_last;
    int64_t first, last; /* first token of a text; last token of a text of maximum length */
    bp_ends never;
} bp_forced;

/** From a folder's generation_config.json, or else config.json: "forced_bos_token_id",
 * "forced_eos_token_id" (a number, or the first of a list), and the single-token words in
 * "bad_words_ids". NULL if they have none. New reference. */
json_t *bp_forced_of_folder(const char *folder, int64_t vocab_size);
bp_forced bp_forced_read(const json_t *state, int64_t vocab_size);
