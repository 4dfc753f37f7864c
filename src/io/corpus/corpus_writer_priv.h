/* Inside the corpus writer: corpus_writer.c collects tokens and documents, corpus_commit.c makes
 * the file from them. */
#pragma once

#include "dictionary.h"
#include "extents.h"
#include "io/corpus/corpus_writer.h"
#include "io/corpus/spill.h"
#include "io/h5/h5_parts.h"

typedef struct label_column {
    bp_dictionary values;
    bp_spill *codes; /* uint32 per document */
    bool seen;       /* a value that is not "" */
} label_column;

/* Data of each document, a uint64 each: the first token of its text, the counts of a row, its first
 * segment. */
enum { SPILL_STARTS, SPILL_BYTES, SPILL_WORDS, SPILL_WORDS_SPLIT, SPILL_DOC_SEGMENTS, SPILLS };

struct bp_corpus_writer {
    char *path, *temporary, *folder;
    int lock; /* the temporary file, open and locked */
    bp_h5 *h5;
    hid_t tokens; /* the dataset */
    bool committed, finished;

    bp_corpus_spec spec;
    uint32_t last_id;     /* of the tokens so far */
    int64_t open_ends;    /* documents without the end-of-document token */
    label_column *labels; /* [spec.label_count] */
    bp_spill **values;    /* [spec.value_count]: float32 per document */
    bp_dictionary tag_names;
    bp_spill *tags; /* uint32 per token, of the first tag_count */
    int64_t tag_count;
    bp_spill *spans, *span_texts; /* BP_CORPUS_SPAN uint64 per document; texts */
    int64_t span_bytes;           /* of the texts so far */
    char *context;                /* the last context, and its place in them */
    int64_t context_at;
    bp_spill *segments; /* uint64 per segment: its first token */
    int64_t segment_count,
        document_segments; /* of all documents, and of those before the open one */

    size_t token_bytes;
    void *raw;          /* the chunk being filled */
    int64_t raw_tokens; /* in it */
    int64_t token_count, document_start, document_count;
    int64_t chunks_out, chunks_in; /* chunks sent to be packed, and written */
    int64_t chunk_bytes;           /* of those written */
    int64_t sync_begun;            /* bytes of the file that are on their way to disk */
    bp_packer *packer;             /* if spec.pack is NULL */

    bp_spill *spills[SPILLS];
    bp_spill *ids; /* uint16 length and the bytes, per document */
    size_t id_width;

    bp_extent *extents; /* [extent_count]: hashes of the chunks, then rows of the columns */
    int64_t extent_count, extent_capacity;
};

/** Tags of all tokens before `end`: those without a tag get BP_CORPUS_NO_TAG. */
bp_err bp_corpus_writer_pad_tags(bp_corpus_writer *writer, int64_t end);
/** The file's first `end` bytes, or nearly all of them, were written: begin to bring them to disk,
 * so that the ranks compute meanwhile, and the commit waits less. */
void bp_corpus_writer_begin_sync(bp_corpus_writer *writer, int64_t end);
/** Append a row to the table. */
void bp_corpus_writer_add_extent(bp_corpus_writer *writer, const bp_extent *extent);
