/* Training tokenizers on text: the same bytes at any number of ranks. */
#pragma once

#include "base/err.h"
#include "text/documents/text_source.h"
#include "text/tokenizer/tokenizer.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define BP_BPE_MIN_COUNT 2 /* pairs that occur less are not merged; wordpiece: the default */
#define BP_TOKEN_LIMIT_BYTES                                                                       \
    1024 /* of a token as JSON spells it: nor pairs that would make a longer one */
#define BP_TRAINER_BPE_SIZE     257   /* the smallest vocabularies: bytes and <|endoftext|>, ... */
#define BP_TRAINER_WORD_SIZE    3     /* ... <unk>, <|endoftext|> and a word */
#define BP_TRAINER_PIECE_SIZE   6     /* ... BERT's special tokens and a character */
#define BP_TRAINER_UNIGRAM_SIZE 5     /* ... <pad>, </s>, <unk>, U+2581 and a character */
#define BP_TRAINER_SENTINELS    10000 /* the most */

typedef struct bp_trainer_options {
    const char *kind;  /* "bpe", "word", "char", "unigram", "wordpiece" */
    int64_t size;      /* tokens, special ones counted; fewer come out where the text has no more;
                          0 (word, char): as many as there are */
    int64_t min_count; /* word, char: those that occur less are left out; wordpiece: pairs that
                          occur less are not merged (0: BP_BPE_MIN_COUNT) */
    bp_text_format format;
    const char *text_field;      /* as in bp_documents_options */
    const char *separator;       /* likewise */
    bool progress;               /* bp_log_progress now and then */
    size_t piece_bytes;          /* as in bp_documents_options */
    int64_t sentinels;           /* unigram: <extra_id_0> is the last id, ... */
    bool cased;                  /* wordpiece: keep case and accents */
    const char *const *specials; /* [special_count] more special tokens: the ids before
                                    <|endoftext|>, before the sentinels, or the last ones */
    int special_count;
} bp_trainer_options;

typedef struct bp_trainer_report {
    int64_t size, merges;
    int64_t words; /* different pieces (bpe), words or characters */
    int64_t documents, skipped_lines, text_bytes;
    double count_seconds, build_seconds;
} bp_trainer_report;

/** Train on files.
 *
 * bpe:   the 256 bytes in GPT-2's order, then merges by rank, then <|endoftext|>. The most frequent
 * pair within a piece of GPT-2's pattern is merged; of equally frequent ones that of the smaller
 * ids. word, char: <unk> is 0; then the most frequent words (of White_Space-separated ones) or code
 * points, equally frequent ones in order of their bytes; then <|endoftext|>. Text <unk> and
 * <|endoftext|> are not words; what JSON can't spell as a key (invalid UTF-8, U+0000) is left out.
 *
 * unigram: <pad>, </s>, <unk>, then pieces by probability, then sentinels; words between
 * White_Space after NFKC, each with U+2581 before it. Characters that make up 99.95 % of the text
 * are pieces.
 *
 * wordpiece: [PAD] [UNK] [CLS] [SEP] [MASK], then all characters of the words of BERT's normalizer
 * and pre-tokenizer and, with ##, those that go on in a word, both in order of code points; then
 * merges as those of bpe.
 *
 * Collective: over `comm`; paths and options are equal on all ranks, and the files are there on
 * all; BP_TEXT_STDIN is for one rank. Owns:   *out is the caller's on every rank. Errors:
 * BP_ERR_USAGE the kind, or a size below the smallest (unigram, wordpiece: below the characters of
 * the text), a special token that is a token anyway; those of bp_documents; BP_ERR_FORMAT no text
 * at all; BP_ERR_SYSTEM: the same on all ranks, *out NULL. Source: Sennrich, Haddow, Birch 2016,
 * algorithm 1; ties as in Hugging Face's tokenizers (BpeTrainer, WordPieceTrainer:
 * src/models/wordpiece/trainer.rs wraps the former). Kudo 2018, section 3.2, as
 * google/sentencepiece, src/unigram_model_trainer.cc does it.
 */
bp_err bp_tokenizer_train(bp_tokenizer **out, MPI_Comm comm, const char *const *paths, int count,
                          const bp_trainer_options *options, bp_trainer_report *report);
