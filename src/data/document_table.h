/* Documents of a stream for example makers (bp_document): whole documents, or runs of their
 * sentences (src/data/README.md). Local: no MPI. */
#pragma once

#include "base/rng.h"
#include "data/document_columns.h"
#include "data/stream.h"
#include "tensor/batch.h"

typedef struct bp_document_table bp_document_table;
typedef struct bp_document_table_spec {
    bp_stream *stream;           /* borrowed until bp_document_table_free */
    bp_document_columns columns; /* {0}: no columns */
    int64_t run_tokens; /* 0: an entry is a document; else a run of its sentences, as many as fit in
                           this many tokens, at least one */
} bp_document_table_spec;

/** Entries in the order of the stream; in a bag, a document occurs as often as it was drawn.
 *
 * Owns:       *out is the caller's, bp_document_table_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT a file lacks a requested column; BP_ERR_CONFIG runs of a file without
 *             sentences; BP_ERR_SYSTEM memory; those of reading columns.
 */
bp_err bp_document_table_new(bp_document_table **out, const bp_document_table_spec *spec);
void bp_document_table_free(bp_document_table **table);
/** Bytes of one with this many entries, for the plan. */
size_t bp_document_table_bytes(int64_t entries);

int64_t bp_document_table_count(const bp_document_table *table);
/** first[count + 1]: where entries begin in the stream. Borrowed. */
const int64_t *bp_document_table_first(const bp_document_table *table);
/** The number of an entry's document, over all files. */
int64_t bp_document_table_document(const bp_document_table *table, int64_t entry);
/** Tokens of an entry that are read: at most BP_DOCUMENT_MOST. */
int64_t bp_document_table_tokens(const bp_document_table *table, int64_t entry);
/** The sort key of a document, from the tokens that fit into a context: their number. If each text
 * has its own stream (`apart`): the tokens of the longest text, and for ties those of all texts. */
int64_t bp_document_table_length(const bp_document_table *table, int64_t entry, bool apart,
                                 int64_t context);
/** With weights, entries [*first, *first + *count) are of file k. */
void bp_document_table_file(const bp_document_table *table, int64_t k, int64_t *first,
                            int64_t *count);

/** Entry `entry`, with its tokens at `tokens` (as many as are read), paired with `other` (may be
 * NULL). Valid for this and the next call. */
const bp_document *bp_document_table_describe(bp_document_table *table, int64_t entry,
                                              const int32_t *tokens, const bp_document *other);
/** The same, with tokens read from the stream; valid for this and the next call. Errors: those of
 * bp_corpus_file_read. */
bp_err bp_document_table_read(bp_document_table *table, int64_t entry, const bp_document *other,
                              const bp_document **out);
/** An entry of another document than `entry`, of entries [first, first + count): the first suitable
 * one of a few draws by `key`; -1 if there is none. */
int64_t bp_document_table_other(const bp_document_table *table, int64_t entry, int64_t first,
                                int64_t count, const bp_rng_key *key);
#define BP_OTHER_DRAWS 32 /* draws at most */
