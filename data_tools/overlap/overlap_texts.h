/* Documents of texts and of corpora, one after another, for tools that read words. */
#ifndef BP_DATA_TOOLS_OVERLAP_TEXTS_H
#define BP_DATA_TOOLS_OVERLAP_TEXTS_H

#include "text/documents/text_source.h"

typedef struct overlap_texts {
    const char *const *paths; /* [path_count]: corpora of ours, or texts */
    int path_count;
    bp_documents_options options; /* of texts */
} overlap_texts;

/** By its name: .h5 or .hdf5. */
bool overlap_is_corpus(const char *path);

/** A part of a document; a cut is where a word ends. `document` counts over all files. */
typedef struct overlap_piece {
    const char *text;
    size_t bytes;
    int64_t document;
    int file;
    bool first;     /* of its document */
    const char *id; /* borrowed for the call */
} overlap_piece;

/** Call `take` for the documents that are this rank's: of texts every size-th, of a corpus a run of
 * them. A corpus is decoded by the tokenizer that it keeps, without the tokens that end and begin
 * its documents. *first[path_count + 1]: the number of each file's first document, of all ranks.
 *
 * Local: no MPI.
 * Owns:   *first is the caller's, bp_free(), after an error too.
 * Errors: those of `take`, of bp_documents_next and of bp_corpus_file_read; BP_ERR_FORMAT a corpus
 * without a tokenizer; BP_ERR_STOPPED. */
bp_err overlap_texts_read(const overlap_texts *texts, int rank, int size, int64_t **first,
                          bp_err (*take)(void *context, const overlap_piece *piece), void *context);

#endif
