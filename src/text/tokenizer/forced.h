/* Tokens that a model's files say it writes in certain places, or nowhere: the member "forced" of a
 * checkpoint's state, an object with Hugging Face's names. Local. */
#ifndef BP_TEXT_TOKENIZER_FORCED_H
#define BP_TEXT_TOKENIZER_FORCED_H

#include "text/tokenizer/tokenizer.h"

typedef struct bp_forced {
    bool has_first, has_last;
    int64_t first, last; /* what a text begins with; what ends one of the most tokens */
    bp_ends never;
} bp_forced;

/** Of a folder's generation_config.json, or where there is none of config.json:
 * "forced_bos_token_id", "forced_eos_token_id" (a number, or a list, of which the first is taken),
 * and the words of one token in "bad_words_ids". NULL: they say nothing. New reference. */
json_t *bp_forced_of_folder(const char *folder, int64_t vocab_size);
bp_forced bp_forced_read(const json_t *state, int64_t vocab_size);

#endif
