/* Inside a corpus file: corpus_file.c and corpus_numbers.c check, open and have the public
 * functions, corpus_columns.c reads the columns of native files and, for corpus_convert.c, of
 * foreign ones. */
#pragma once

#include "corpus_chunks.h"
#include "extents.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/h5.h"

/* A dataset with one value per document (doc_start: one more), or the names of a label's codes. */
typedef struct bp_column {
    char *name; /* NULL if the file has none */
    bp_h5_shape shape;
} bp_column;

typedef struct bp_label_column {
    char *name;
    bp_column codes, names;
    uint32_t *loaded_codes; /* NULL until first used */
    char *text;             /* of the names, each ended by a zero byte */
    const char **values;
} bp_label_column;

typedef struct bp_value_column {
    char *name;
    bp_column column;
    float *loaded; /* NULL until first used */
} bp_value_column;

typedef enum bp_column_kind {
    BP_COLUMN_START,
    BP_COLUMN_BYTES,
    BP_COLUMN_WORDS,
    BP_COLUMN_WORDS_SPLIT,
    BP_COLUMN_DOC_SEGMENTS,
    BP_COLUMN_SEGMENTS, /* a value per segment */
    BP_COLUMN_SPANS,    /* BP_CORPUS_SPAN per document */
    BP_COLUMN_IDS,
    BP_COLUMN_TOKENIZER,  /* bytes of text */
    BP_COLUMN_SPAN_TEXTS, /* the same */
    BP_COLUMN_KINDS
} bp_column_kind;

struct bp_corpus_file {
    char *path;
    int fd;
    bp_corpus_info info;
    bp_column columns[BP_COLUMN_KINDS];
    int64_t *loaded[BP_COLUMN_IDS]; /* numbers; NULL until first used */
    bp_label_column *labels;        /* [info.labels] */
    bp_label_column tags;           /* a code per token */
    bp_value_column *values;        /* [info.values] */
    char *span_texts;               /* NULL until first used */
    char *ids;                      /* a run of doc_id as last read ... */
    int64_t ids_first, ids_count;   /* ... and its documents */

    bp_extents extents;
    bp_chunks *chunks;
    bp_h5 *h5; /* for a foreign file during conversion: columns are read through it; else NULL */
};

/** Files up to this size are hashed as a whole when opened; beyond it, chunks and columns as they
 * are read. 256 MiB; tests set it. */
extern int64_t bp_corpus_hash_whole_bytes;

/** Find the columns in an open HDF5 file, and check their kinds and lengths; walks them if `walk`.
 */
bp_err bp_corpus_find_columns(bp_corpus_file *file, bp_h5 *h5, bool walk);
/** vocab_size, eod_id, tokenizer_hash. */
bp_err bp_corpus_read_attributes(bp_corpus_file *file, bp_h5 *h5);

/** Values [first, first + count) of a column: int64 of numbers, zero-padded bytes for text, the
 * whole column of float32 for reals. */
bp_err bp_column_read_reals(bp_corpus_file *file, const bp_column *column, float *values);
bp_err bp_column_read_numbers(bp_corpus_file *file, const bp_column *column, int64_t first,
                              int64_t count, int64_t *values);
bp_err bp_column_read_text(bp_corpus_file *file, const bp_column *column, int64_t first,
                           int64_t count, char *text);
/** A whole column of numbers to file->loaded, if it is there and not loaded yet. */
bp_err bp_corpus_load_numbers(bp_corpus_file *file, bp_column_kind kind);
/** A whole column of bytes. */
bp_err bp_column_read_bytes(bp_corpus_file *file, const bp_column *column, char *bytes);
