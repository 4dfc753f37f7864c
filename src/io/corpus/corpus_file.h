/* One native corpus file (HDF5). docs/formats.md has the layout. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "base/files/hash.h"
#include "text/tokenizer/tokenizer.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_corpus_file bp_corpus_file;

typedef struct bp_corpus_info {
    int64_t tokens, documents;
    int64_t vocab_size;
    int64_t eod_id;                     /* -1 if none */
    int64_t roles[BP_ROLES];            /* special tokens, -1 if none; BP_ROLE_END is eod_id */
    bool has_bos;                       /* each document begins with the token of BP_ROLE_BOS */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": unknown */
    char content_hash[33];              /* XXH3-128 of everything after the user block */
    bool open_ends;            /* some document lacks the end-of-document token (converted) */
    bool has_bytes, has_words; /* doc_bytes, doc_words */
    bool has_words_split, has_ids;
    int labels; /* label columns */
    int values; /* columns of numbers */
    bool has_segments, has_tags, has_spans;
    int64_t tag_names;
    int64_t segments; /* texts of documents, or sentences; 0 without them */
} bp_corpus_info;

/** Open for reading and check. Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT not HDF5, "damaged",
 * unsorted doc_start, versions..., or a foreign file (corpus_convert.h converts one). The bytes are
 * hashed before the HDF5 library of this process sees them. */
bp_err bp_corpus_file_open(bp_corpus_file **out, const char *path);
/** Set whether files of up to 256 MiB are hashed as a whole when opened (the default). If not, data
 * is checked as it is read, as always for larger files. For starts that probably find nothing to
 * do, as the user block identifies a corpus, and for corpora that may not be read at all. Returns
 * what was set before. */
bool bp_corpus_file_hash_whole(bool whole);
void bp_corpus_file_close(bp_corpus_file **file);
const bp_corpus_info *bp_corpus_file_info(const bp_corpus_file *file);
const char *bp_corpus_file_path(const bp_corpus_file *file);

/** tokens[count] = /tokens[first .. first+count). Helper threads decode chunks ahead of sequential
 * reads. Errors: BP_ERR_FORMAT a chunk is damaged, or a token id is beyond vocab_size (named with
 * its place); BP_ERR_IO. */
bp_err bp_corpus_file_read(bp_corpus_file *file, int64_t first, int64_t count, int32_t *tokens);

/** doc_start[documents + 1]; bytes, words, words_split[documents] (NULL if the file has none).
 * Borrowed, loaded on first use. */
bp_err bp_corpus_file_doc_start(bp_corpus_file *file, const int64_t **doc_start);
/** doc_start[first .. first + count), for callers that need not hold all of it: checked as it is
 * read, so that a caller who reads ranges that share a value knows that all are sorted. Errors:
 * BP_ERR_FORMAT damaged, not ascending, or beyond the tokens; BP_ERR_IO. */
bp_err bp_corpus_file_read_doc_start(bp_corpus_file *file, int64_t first, int64_t count,
                                     int64_t *starts);
bp_err bp_corpus_file_doc_counts(bp_corpus_file *file, const int64_t **bytes, const int64_t **words,
                                 const int64_t **words_split);
/** The same for documents [first, first + count), into the caller's arrays, which are unchanged if
 * the file has none. */
bp_err bp_corpus_file_read_counts(bp_corpus_file *file, int64_t first, int64_t count,
                                  int64_t *bytes, int64_t *words, int64_t *words_split);
/** Segments of documents: texts of a task's documents, or sentences. Document d has segments
 * [doc_segments[d], doc_segments[d + 1]), at least one; segment s begins at token segment_start[s],
 * the first of a document at its first token; texts may be empty. The last segment of a document
 * also has its end-of-document token. Both NULL if the file has none. Borrowed, loaded on first
 * use. Errors: BP_ERR_FORMAT damaged, not ascending, or out of its document; BP_ERR_IO. */
bp_err bp_corpus_file_segments(bp_corpus_file *file, const int64_t **doc_segments,
                               const int64_t **segment_start);
/** doc_id of document d as a string, to `out` (cut to fit, always terminated); "" without a column.
 */
bp_err bp_corpus_file_doc_id(bp_corpus_file *file, int64_t document, char *out, size_t out_bytes);
/** Label column k: its name, codes[documents], and names of the codes [values]. Borrowed. */
typedef struct bp_corpus_label {
    const char *name;
    const uint32_t *codes;
    const char *const *values;
    int64_t value_count;
} bp_corpus_label;
bp_err bp_corpus_file_label(bp_corpus_file *file, int k, bp_corpus_label *out);

/** Tags of words: codes[tokens], a word's at its first token, BP_CORPUS_NO_TAG at all others; and
 * names of the codes [value_count]. NULL if the file has none. Borrowed, loaded on first use.
 * Errors: BP_ERR_FORMAT damaged, or a code without a name. */
bp_err bp_corpus_file_tags(bp_corpus_file *file, bp_corpus_label *out);
/** Answers to questions: spans[documents][BP_CORPUS_SPAN] (corpus_writer.h), and the texts that
 * they point into, each ended by a zero byte; answers are a JSON list. NULL if the file has none.
 * Borrowed, loaded on first use. Errors: BP_ERR_FORMAT damaged, or a number out of its range. */
bp_err bp_corpus_file_spans(bp_corpus_file *file, const int64_t **spans, const char **texts);
/** Column k of numbers: its name, values[documents], finite. Borrowed, loaded on first use. Errors:
 * BP_ERR_FORMAT damaged, a value that is not finite; BP_ERR_IO. */
typedef struct bp_corpus_value {
    const char *name;
    const float *values;
} bp_corpus_value;
bp_err bp_corpus_file_value(bp_corpus_file *file, int k, bp_corpus_value *out);

/** The tokenizer.json that made the corpus, as text ended by a zero byte; NULL if the file has
 * none. Free with bp_free(). Errors: BP_ERR_FORMAT damaged; BP_ERR_IO; BP_ERR_SYSTEM. */
bp_err bp_corpus_file_tokenizer(bp_corpus_file *file, char **text, size_t *bytes);

/* Writing: see corpus_writer.h, and corpus_build.h for text to a corpus file. */
