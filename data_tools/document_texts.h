/* Documents of texts and of corpora, one after another, for tools that read words. */
#pragma once

#include "text/documents/text_source.h"

typedef struct document_texts {
    const char *const *paths; /* [path_count]: corpora of ours, or texts */
    int path_count;
    bp_documents_options options; /* of texts */
    bool every_piece; /* for files that are one document each, a rank gets all pieces; every size-th
                         is its own */
} document_texts;

/** By its name: .h5 or .hdf5. */
bool document_is_corpus(const char *path);

/** A part of a document; cuts are at the ends of words. `document` counts over all files. */
typedef struct document_piece {
    const char *text;
    size_t bytes;
    int64_t document;
    int file;
    size_t at;        /* its first byte in the document's text */
    bool first, last; /* of its document; last: only for texts */
    bool is_mine;     /* this rank's, if all pieces are passed */
    const char *id;   /* borrowed for the call */
} document_piece;

/** Parse --format and its --text-field; `option`: the name of the latter. Errors: BP_ERR_USAGE. */
bp_err document_texts_format(document_texts *texts, const char *format, const char *field,
                             const char *option);
/** Warn about files that look like records but were not declared so: each becomes a single
 * document. */
void document_texts_warn(const document_texts *texts);

/** Call `take` for this rank's documents: every size-th of texts, a contiguous run of a corpus. A
 * corpus is decoded by its tokenizer, without the tokens that begin and end documents.
 * *first[path_count + 1]: the number of each file's first document, over all ranks.
 *
 * Local: no MPI.
 * Owns:   *first is the caller's, bp_free(), after an error too.
 * Errors: those of `take`, of bp_documents_next and of bp_corpus_file_read; BP_ERR_FORMAT a corpus
 * without a tokenizer; BP_ERR_STOPPED. */
bp_err document_texts_read(const document_texts *texts, int rank, int size, int64_t **first,
                           bp_err (*take)(void *context, const document_piece *piece),
                           void *context);
