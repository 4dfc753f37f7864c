/* The parts of training: a table of words with their counts becomes a tokenizer. */
#ifndef BP_TEXT_TRAINER_PRIV_H
#define BP_TEXT_TRAINER_PRIV_H

#include "text/strmap_priv.h"
#include "text/tokenizer_priv.h"
#include "text/trainer.h"

/** Count the pieces, words or characters of one part of a document, its last one or not; unigram:
 * words at the end of a line with a newline behind them. Errors: BP_ERR_SYSTEM. */
bp_err bp_count_words(bp_strmap *words, bp_kind kind, const char *text, size_t bytes, bool last);

/** A tokenizer of `size` tokens from words (key: bytes, value: how often). Errors: BP_ERR_SYSTEM.
 * Local. */
bp_err bp_build_bpe(bp_tokenizer **out, const bp_strmap *words, int64_t size, bool progress);
bp_err bp_build_words(bp_tokenizer **out, bp_kind kind, const bp_strmap *words,
                      const bp_trainer_options *options);

typedef struct bp_unigram_options {
    int64_t sentinels;
    bool progress;
} bp_unigram_options;
/** The same for words between White_Space, which are normalized here. OpenMP's threads share the
 * work; the result does not depend on their number. Errors: BP_ERR_USAGE no room for the
 * characters; BP_ERR_FORMAT no words; BP_ERR_STOPPED. */
bp_err bp_build_unigram(bp_tokenizer **out, const bp_strmap *words, int64_t size,
                        const bp_unigram_options *options);

/** BP_ERR_STOPPED. */
bp_err bp_training_stopped(void);

#endif
