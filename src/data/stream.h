/* The stream from which training reads its windows: all documents of a corpus, or a bag of them
 * (src/data/README.md). Local: no MPI. */
#pragma once

#include "data/corpus.h"

#include <stdbool.h>

/** The stream: all documents of the corpus in order, each with its end-of-document token; or a bag
 * of it. */
typedef struct bp_stream bp_stream;
typedef struct bp_stream_spec {
    bp_corpus *corpus;   /* borrowed until bp_stream_free */
    bool bag;            /* documents drawn with replacement, n from n, keyed by (seed, member) */
    const char *cluster; /* of a bag: a label whose clusters are drawn, n from n, each with all its
                            documents (bp_corpus_clusters); NULL: documents are drawn */
    uint64_t seed;
    int64_t member;
    const double *weights; /* [files], borrowed for the call: each file is a separate stream; NULL:
                              all files are one stream */
} bp_stream_spec;

/** Version of the order of a bag's documents. 1: copies of a document are adjacent; 2: in passes
 * (bp_stream_new). */
#define BP_BAG_VERSION 2

/** Pass r of a bag (r = 1, 2, ...) holds, in corpus order, the documents drawn at least r times;
 * one pass follows the other. So the copies of a document are far apart.
 *
 * Owns:       *out is the caller's, bp_stream_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT a bag of fewer than 2 documents or clusters; BP_ERR_SYSTEM memory;
 * those of reading doc_start and of bp_corpus_clusters.
 */
bp_err bp_stream_new(bp_stream **out, const bp_stream_spec *spec);
void bp_stream_free(bp_stream **stream);
int64_t bp_stream_tokens(const bp_stream *stream);
int64_t bp_stream_files(const bp_stream *stream);
/** With weights, file k is tokens [*first, *first + *tokens) of the stream. */
void bp_stream_file(const bp_stream *stream, int64_t k, int64_t *first, int64_t *tokens);
/** The weights, [files]; NULL without weights. Borrowed. */
const double *bp_stream_weights(const bp_stream *stream);
/** Is there a window in the stream; with weights, in each file whose weight is above 0? Errors:
 * BP_ERR_FORMAT fewer than `context` + 1 tokens, with the file. */
bp_err bp_stream_check(const bp_stream *stream, int64_t context);
/** Windows of `context` tokens of the corpus without a bag, which is an epoch of every bag. With
 * weights, the sum over files with a weight above 0, each cut into windows by itself. */
int64_t bp_stream_corpus_windows(const bp_stream *stream, int64_t context);
/** Documents of file k, without a bag. */
int64_t bp_stream_documents(const bp_stream *stream, int64_t k);
/** Its corpus. Borrowed. */
bp_corpus *bp_stream_corpus(const bp_stream *stream);
/** The path of file k, for messages. Borrowed. */
const char *bp_stream_path(const bp_stream *stream, int64_t k);
/** How often document d (over all files, in order) was drawn; 1 without a bag. */
int64_t bp_stream_drawn(const bp_stream *stream, int64_t document);
/** How many clusters are in the bag, and *all that there are; 0 and 0 where documents are drawn. */
int64_t bp_stream_clusters(const bp_stream *stream, int64_t *all);
/** Tokens of the stream from `first` on; first + count may not be beyond its end (BP_ASSERT).
 *
 * Shapes:     tokens[count].
 * Errors:     those of bp_corpus_file_read.
 */
bp_err bp_stream_read(bp_stream *stream, int64_t first, int64_t count, int32_t *tokens);
