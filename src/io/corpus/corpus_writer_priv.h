/* Inside the corpus writer: corpus_writer.c takes tokens and documents in, corpus_commit.c makes
 * the file of them. */
#ifndef BP_IO_CORPUS_CORPUS_WRITER_PRIV_H
#define BP_IO_CORPUS_CORPUS_WRITER_PRIV_H

#include "dictionary.h"
#include "extents.h"
#include "io/corpus/corpus_writer.h"
#include "io/corpus/spill.h"
#include "io/h5/h5_priv.h"

typedef struct label_column {
    char *name;
    bp_dictionary values;
    bp_spill *codes; /* uint32 a document */
    bool seen;       /* a value that is not "" */
} label_column;

typedef struct text_list {
    char *name;
    char **values;
    int64_t count;
} text_list;

struct bp_corpus_writer {
    char *path, *temporary, *folder;
    int lock; /* the temporary file, open and locked */
    bp_h5 *h5;
    hid_t tokens; /* the dataset */
    bool committed, finished;

    int64_t vocab_size, eod_id;
    char *tokenizer_hash, *tokenizer; /* tokenizer: NULL where there is none */
    bool has_ids, ends_as_given, without_bytes, without_words, without_words_split;
    uint32_t last_id;  /* of the tokens so far */
    int64_t open_ends; /* documents without the end-of-document token */
    label_column *labels;
    int label_count;
    text_list *sources;
    int source_count;
    bp_err (*pack)(void *context, int64_t number, const void *raw);
    void *context;

    size_t token_bytes;
    void *raw;          /* the chunk being filled */
    int64_t raw_tokens; /* in it */
    int64_t token_count, document_start, document_count;
    int64_t chunks_out, chunks_in; /* handed to be packed; written */
    bp_packer *packer;             /* where spec.pack is NULL */

    bp_spill *starts, *bytes, *words, *words_split; /* uint64 a document */
    bp_spill *ids;                                  /* uint16 length and the bytes, a document */
    size_t id_width;

    bp_extent *extents; /* [extent_count]: hashes of the chunks, then rows of the columns */
    int64_t extent_count, extent_room;
};

/** A row at the end of the table. */
void bp_corpus_writer_add_extent(bp_corpus_writer *writer, const bp_extent *extent);

#endif
