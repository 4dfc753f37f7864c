/* The parts of training: a table of words with their counts becomes a tokenizer. */
#pragma once

#include "text/tokenizer/tokenizer_parts.h"
#include "text/train/tokenizer_train.h"
#include "text/unicode/strmap.h"

/** Merges, and their tokens after those that the tokenizer has: its bytes, or with `pieces` its
 * characters, which have BP_BERT_PREFIX inside a word. The most frequent pair is merged; of
 * equally frequent ones that of the smaller ids.
 *
 * Owns:   *list is the caller's, bp_free(). Errors: BP_ERR_SYSTEM, BP_ERR_STOPPED. */
typedef struct bp_learning {
    bp_tokenizer *tokenizer;
    const bp_strmap *words; /* key: bytes, value: how often */
    bool pieces;
    int64_t size;      /* of the vocabulary ... */
    int64_t reserved;  /* ... with this many tokens still to come */
    int64_t min_count; /* pairs that occur less are not merged */
    bool progress;
} bp_learning;
bp_err bp_learn_merges(bp_merge **list, int64_t *count, const bp_learning *learning);

/** BERT's normalizer and pre-tokenizer, for counting the words that the model will be given. */
typedef struct bp_word_cutter bp_word_cutter;
bp_err bp_word_cutter_new(bp_word_cutter **out, bool lowercase);
void bp_word_cutter_free(bp_word_cutter **cutter);
/** Count the words of one part of a document, but those with an invalid byte. Errors:
 * BP_ERR_SYSTEM; BP_ERR_FORMAT those of bp_hidden_hide. */
bp_err bp_word_cutter_count(bp_word_cutter *cutter, bp_strmap *words, const char *text,
                            size_t bytes);

/** Add the special tokens of options, the next ids. Errors: BP_ERR_USAGE one is already a token. */
bp_err bp_add_specials(bp_tokenizer *tokenizer, const bp_trainer_options *options);

/** A tokenizer of `size` tokens from words (key: bytes, value: how often). Errors: BP_ERR_SYSTEM.
 * Local. */
bp_err bp_build_bpe(bp_tokenizer **out, const bp_strmap *words, const bp_trainer_options *options);
/** WordPiece: words are those of bp_word_cutter_count. */
bp_err bp_build_wordpiece(bp_tokenizer **out, const bp_strmap *words,
                          const bp_trainer_options *options, int64_t *merges);
bp_err bp_build_words(bp_tokenizer **out, bp_kind kind, const bp_strmap *words,
                      const bp_trainer_options *options);

typedef struct bp_unigram_options {
    int64_t sentinels;
    const char *const *specials;
    int special_count;
    bool progress;
} bp_unigram_options;
/** The same for words between White_Space, which are normalized here. OpenMP's threads share the
 * work; the result does not depend on their number. Errors: BP_ERR_USAGE too small for the
 * characters; BP_ERR_FORMAT no words; BP_ERR_STOPPED. */
bp_err bp_build_unigram(bp_tokenizer **out, const bp_strmap *words, int64_t size,
                        const bp_unigram_options *options);

/* For bp_fail_stopped. */
#define BP_TRAINING_STOPPED                                                                        \
    "while a tokenizer was trained, of which nothing was kept; run the command again"
