/* Encoding one piece with a model of tokenizer.json: BPE of characters, Unigram, WordPiece. */
#pragma once

#include "base/buffer.h"
#include "text/pipeline/bpe.h"
#include "text/unicode/trie.h"

#include <stdbool.h>

/* Viterbi takes this much off the lowest score for a character that no piece has. Source:
 * google/sentencepiece, src/unigram_model.cc (kUnkPenalty). */
#define BP_UNKNOWN_PENALTY 10.0

typedef struct bp_pieces {   /* {0}, ends with bp_pieces_clear */
    bp_trie whole;           /* pieces by their names; WordPiece: those that begin a word */
    bp_trie inner;           /* WordPiece: continuations, without "##" */
    bp_trie symbols;         /* BPE: pieces that are one symbol wherever they are */
    double *scores;          /* Unigram: [tokens], natural logarithms */
    double unknown_score;    /* Unigram */
    int64_t unknown;         /* id; -1: unknown characters are omitted (BPE) */
    bool fuse_unknown;       /* a run of unknown characters is one token */
    bool byte_fallback;      /* an unknown character is its bytes' tokens, if all exist */
    int64_t byte_ids[256];   /* of <0x00> to <0xFF>, -1 if none */
    int64_t most_characters; /* WordPiece: longer words are unknown */
    char *prefix, *suffix;   /* BPE: of the names of a word's characters, all but the first, and the
                                last; NULL: none */
} bp_pieces;
void bp_pieces_clear(bp_pieces *pieces);

/** Working memory of one thread: {0}. */
typedef struct bp_piece_work {
    struct bp_best *best;
    int64_t capacity;
    uint32_t *symbols;
    int64_t symbol_capacity;
    bp_buffer name;  /* of a character with its prefix and suffix */
    uint32_t hidden; /* text of invalid bytes: what they are hidden as, 0 if there are none */
} bp_piece_work;
void bp_piece_work_clear(bp_piece_work *work);

/** Append the ids of a piece of valid UTF-8.
 *
 * unigram: the split of the highest sum of scores; of equal ones the first found from the left.
 * wordpiece: the longest piece from the left, again and again. bpe: characters, then merges.
 * Errors: BP_ERR_SYSTEM (a piece beyond 4 GiB).
 * Source: huggingface/tokenizers, models/unigram/model.rs (encode_optimized),
 * models/wordpiece/mod.rs, models/bpe/model.rs (merge_word).
 */
bp_err bp_unigram_piece(const bp_pieces *pieces, const uint8_t *piece, size_t bytes,
                        bp_piece_work *work, bp_ids *ids);
void bp_wordpiece_piece(const bp_pieces *pieces, const uint8_t *piece, size_t bytes, bp_ids *ids);
bp_err bp_bpe_characters(const bp_pieces *pieces, const bp_merges *merges, const uint8_t *piece,
                         size_t bytes, bp_piece_work *work, bp_bpe_scratch *scratch, bp_ids *ids);
/** The token whose name is text[bytes]; -1 if none. */
int64_t bp_trie_whole(const bp_trie *trie, const uint8_t *text, size_t bytes);
