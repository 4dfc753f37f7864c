/* SentencePiece's models, spiece.model and tokenizer.model: pieces with scores, as tokenizer.json.
 *
 * The text is normalized and cut by SentencePiece's rules, which Hugging Face's format expresses
 * only approximately. Components have the differences in a member "bagpipe", which other readers
 * ignore:
 *
 *     Precompiled    {"keep": [...]}: the longest match from the left, at any place, is replaced;
 *                    user-defined symbols stay
 *     Unigram        {"unknown_score": S, "hidden": [ids]}: pieces that no text has
 *     BPE            {"scores": [...], "symbols": [ids]}: of two merges that of the higher score of
 *                    the result goes first, of equal ones the leftmost; symbols are never cut
 *     added tokens   true: a symbol of the model's, which it finds itself
 *
 * Local: no MPI. Source: google/sentencepiece, src/sentencepiece_model.proto, normalizer.cc,
 * unigram_model.cc, bpe_model.cc.
 */
#pragma once

#include "text/tokenizer/tokenizer.h"

/* Numbered as in files, and in GGUF files. */
typedef enum bp_piece_type {
    BP_PIECE_NORMAL = 1,
    BP_PIECE_UNKNOWN = 2,
    BP_PIECE_CONTROL = 3,
    BP_PIECE_USER_DEFINED = 4,
    BP_PIECE_UNUSED = 5,
    BP_PIECE_BYTE = 6
} bp_piece_type;

typedef struct bp_sentencepiece_piece {
    char *text; /* valid UTF-8, not empty */
    float score;
    bp_piece_type type;
} bp_sentencepiece_piece;

typedef struct bp_sentencepiece {   /* ends with bp_sentencepiece_clear */
    bp_sentencepiece_piece *pieces; /* by id */
    int64_t count, capacity;
    bool is_bpe;           /* else unigram */
    bool dummy_prefix;     /* a text begins with a space */
    bool remove_spaces;    /* at both ends, and all but one within */
    char *charsmap;        /* compiled normalization as base64; NULL if none */
    int64_t bos, eos, pad; /* -1 if none */
} bp_sentencepiece;
void bp_sentencepiece_clear(bp_sentencepiece *model);

/** Read a model file.
 *
 * Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT damaged (with the byte), or an unsupported feature,
 * by name; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err bp_sentencepiece_load(bp_sentencepiece *out, const char *path);
/** The same from memory; `name` is for messages. */
bp_err bp_sentencepiece_parse(bp_sentencepiece *out, const void *data, size_t bytes,
                              const char *name);

/** Changes that the class of a model's tokenizer makes to the pieces. {0}: none. */
typedef struct bp_sentencepiece_class {
    const char *const *before; /* tokens of ids before those of the pieces; ended by NULL */
    int64_t from;              /* the first piece after them: earlier ones are removed */
    const char *const *after;  /* tokens after the pieces */
    const char *begin, *end;   /* the frame of a text; NULL: none */
    const char *named; /* control pieces with this prefix (">>") are found in texts; NULL: none */
} bp_sentencepiece_class;

/** The tokenizer.json of a model. Free with bp_free(). Errors: BP_ERR_FORMAT invalid pieces:
 * duplicates, no unknown one. */
bp_err bp_sentencepiece_json(char **out, const bp_sentencepiece *model,
                             const bp_sentencepiece_class *as, const char *name);
/** The tokenizer of one of Marian's model files, source.spm or target.spm, with the ids of their
 * vocab.json. *lost: number of ordinary pieces without an id, which are removed. Owns and errors:
 * as of bp_sentencepiece_tokenizer. */
bp_err bp_sentencepiece_marian(bp_tokenizer **out, const char *path, const char *vocab,
                               int64_t *lost);
/** The tokenizer of a model file. Owns: *out is the caller's. Errors: those of
 * bp_sentencepiece_load, bp_sentencepiece_json and bp_tokenizer_parse. */
bp_err bp_sentencepiece_tokenizer(bp_tokenizer **out, const char *path,
                                  const bp_sentencepiece_class *as);
