/* Writing a corpus file: tokens and documents in order, in memory that does not grow with the
 * corpus.
 *
 *     err = bp_corpus_writer_new(&writer, "corpus.h5", &spec);
 *     for each document:
 *         err = bp_corpus_writer_tokens(writer, ids, count);       (as often as one likes)
 *         err = bp_corpus_writer_end(writer, &row);                (adds the end-of-document token)
 *     err = bp_corpus_writer_commit(writer);
 *     bp_corpus_writer_free(&writer);
 *
 * The same calls give the same bytes. The commit puts the file in place, whole and fsynced.
 * Without a commit nothing remains; the leftovers of a killed process are removed when the output
 * is written again. Chunks may be compressed elsewhere (spec.pack). Local: no MPI.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BP_CORPUS_KIND         "corpus" /* of the user block */
#define BP_CORPUS_VERSION      1
#define BP_CORPUS_CHUNK_TOKENS 65536
#define BP_CORPUS_ID_BYTES     1024               /* the longest doc_id; as BP_TEXT_FIELD_BYTES */
#define BP_CORPUS_LABEL_BYTES  1024               /* the longest label value */
#define BP_CORPUS_LABEL_VALUES ((int64_t)1 << 20) /* distinct values of one label */

typedef struct bp_corpus_writer bp_corpus_writer;

/** A dataset /source/NAME of text: the origin of the corpus, without time, machine or ranks. */
typedef struct bp_corpus_source {
    const char *name;
    const char *const *values;
    int64_t count;
} bp_corpus_source;

typedef struct bp_corpus_spec {
    int64_t vocab_size;
    int64_t eod_id;             /* -1: none */
    const int64_t *roles;       /* ids of other roles [BP_ROLES], -1: none; NULL: not known */
    bool has_bos;               /* each document begins with the token of BP_ROLE_BOS, which the
                                   writer adds, unless ends_as_given */
    bool ends_as_given;         /* no end-of-document token is added: documents end as they are */
    const char *tokenizer_hash; /* 64 hexadecimal digits; "": not known */
    const char *tokenizer;     /* text of tokenizer.json, kept as /source/tokenizer; NULL if none */
    const char *const *labels; /* names of the label columns [label_count] ... */
    const char *const *values; /* ... and of those of numbers [value_count] */
    int label_count, value_count;
    bool has_segments; /* bp_corpus_writer_segment is called */
    bool has_tags;     /* bp_corpus_writer_tag is called */
    bool has_spans;    /* rows have answers */
    bool has_ids;
    bool without_bytes, without_words,
        without_words_split; /* these counts of the original text are not known */
    const bp_corpus_source *sources;
    int source_count;
    /* Compress chunk `number` elsewhere: `raw` (bp_corpus_chunk_bytes) is borrowed for the call;
     * pass the result to bp_corpus_writer_put, in ascending order. NULL: the writer compresses. */
    bp_err (*pack)(void *context, int64_t number, const void *raw);
    void *context;
} bp_corpus_spec;

/** Errors: BP_ERR_CREATE no such folder, or `path` is not a regular file; BP_ERR_DENIED; BP_ERR_IO;
 * BP_ERR_USAGE a label name that HDF5 can't hold, or a duplicate. What the spec points at is
 * borrowed until bp_corpus_writer_free. */
bp_err bp_corpus_writer_new(bp_corpus_writer **out, const char *path, const bp_corpus_spec *spec);
/** Without an earlier commit, also removes the temporary file. NULL is accepted. */
void bp_corpus_writer_free(bp_corpus_writer **writer);

/** Append ids to the document that is open. Errors: BP_ERR_FORMAT an id beyond vocab_size;
 * BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_corpus_writer_tokens(bp_corpus_writer *writer, const uint32_t *ids, int64_t count);

/** Begin a segment of the open document (a text of a task, a sentence) with the next token. Without
 * such a call before its first token, a document's first segment begins with the document. Errors:
 * as above. */
bp_err bp_corpus_writer_segment(bp_corpus_writer *writer);

/** Numbers of a document in /spans: the answer's first token and the one after its last, counted
 * from the document's first; where in /span_texts its context and its answers begin. */
#define BP_CORPUS_SPAN 4
enum { BP_SPAN_FIRST, BP_SPAN_END, BP_SPAN_CONTEXT, BP_SPAN_ANSWERS };

#define BP_CORPUS_TAG_NAMES 4096
#define BP_CORPUS_NO_TAG    UINT32_MAX /* of a token without a tag */

/** Give the next token, which must follow, this tag. Errors: BP_ERR_FORMAT more than
 * BP_CORPUS_TAG_NAMES of them; BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_corpus_writer_tag(bp_corpus_writer *writer, const char *tag);

typedef struct bp_corpus_row {
    int64_t bytes, words, words_split; /* of the original text */
    const char *id;                    /* if spec.has_ids */
    const char *const *labels;         /* values [label_count] */
    const float *values;               /* finite [value_count] */
    /* If spec.has_spans: tokens [answer[0], answer[1]) of the document, 0 and 0 for none; its
     * context, and a JSON list of answers. */
    const int64_t *answer;
    const char *context, *answers;
} bp_corpus_row;

/** End the open document: the end-of-document token (if there is one, and not ends_as_given) and
 * its row. Errors: BP_ERR_FORMAT an id or a label value too long, too many values; BP_ERR_IO,
 * BP_ERR_SYSTEM. */
bp_err bp_corpus_writer_end(bp_corpus_writer *writer, const bp_corpus_row *row);

/** Send the last chunk to be compressed; no more tokens or documents afterwards. Only needed with
 * spec.pack; otherwise the commit calls it. */
bp_err bp_corpus_writer_finish(bp_corpus_writer *writer);

/** Write the rest, seal the user block, fsync, rename. Afterwards call only bp_corpus_writer_free.
 *  Errors: BP_ERR_IO disk full; BP_ERR_FORMAT no document, or a label that no document has. */
bp_err bp_corpus_writer_commit(bp_corpus_writer *writer);

/** Documents so far that do not end with the end-of-document token (ends_as_given). */
int64_t bp_corpus_writer_open_ends(const bp_corpus_writer *writer);
int64_t bp_corpus_writer_token_count(const bp_corpus_writer *writer);

/* ---- chunks compressed elsewhere ---- */

/** Bytes of a chunk before compression, for a vocabulary of this size. */
size_t bp_corpus_chunk_bytes(int64_t vocab_size);

typedef struct bp_packed {
    void *data; /* bp_packer's, until its next call */
    size_t bytes;
    uint64_t xxh3; /* of data */
} bp_packed;

typedef struct bp_packer bp_packer; /* one thread's compressor */
bp_packer *bp_packer_new(int64_t vocab_size);
void bp_packer_free(bp_packer **packer);
/** One zstd frame of a chunk: a function only of its bytes. */
bp_err bp_packer_pack(bp_packer *packer, const void *raw, bp_packed *out);

/** Add packed chunk `number`. Errors: BP_ERR_IO. */
bp_err bp_corpus_writer_put(bp_corpus_writer *writer, int64_t number, const bp_packed *packed);
