/* The parts of training: a table of words with their counts becomes a tokenizer. */
#ifndef BP_TEXT_TRAINER_PRIV_H
#define BP_TEXT_TRAINER_PRIV_H

#include "text/strmap_priv.h"
#include "text/tokenizer_priv.h"
#include "text/trainer.h"

/** Count the pieces, words or characters of one part of a document. Errors: BP_ERR_SYSTEM. */
bp_err bp_count_words(bp_strmap *words, bp_kind kind, const char *text, size_t bytes);

/** A tokenizer of `size` tokens from words (key: bytes, value: how often). Errors: BP_ERR_SYSTEM.
 * Local. */
bp_err bp_build_bpe(bp_tokenizer **out, const bp_strmap *words, int64_t size, bool progress);
bp_err bp_build_words(bp_tokenizer **out, bp_kind kind, const bp_strmap *words, int64_t size);

/** BP_ERR_STOPPED. */
bp_err bp_training_stopped(void);

#endif
