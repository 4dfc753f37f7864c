/* Sources of text: plain, gzip and zstd files as one run of bytes, and the documents in them.
 *
 * Documents come as pieces, so that none has to fit in memory: nearly all documents are one piece,
 * a long one is cut where its tokenizer gives the same ids (bp_cut). Cuts depend only on the text,
 * never on ranks or reads, so piece numbers are the same on all ranks, which may divide the
 * pieces:
 *
 *     bp_documents_options options = {.format = BP_TEXT_LINES, .cut = bp_tokenizer_cut(tokenizer),
 *                                     .share_rank = rank, .share_size = size};
 *     bp_piece piece;
 *     err = bp_documents_open(&documents, paths, path_count, &options);
 *     while (err == BP_OK && (err = bp_documents_next(documents, &piece)) == BP_OK &&
 *            piece.text != NULL)
 *         err = bp_encode_piece(encoder, piece.text, piece.bytes, piece.first, &ids);
 *     bp_documents_close(&documents);
 *
 * Local: no MPI.
 */
#pragma once

#include "base/err.h"
#include "text/unicode/cut.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- bytes ---- */

typedef struct bp_text_source bp_text_source;

#define BP_TEXT_STDIN "-" /* a path that stands for standard input */

/** Open a file, or standard input, for reading from start to end; gzip and zstd are
 * recognised by their first bytes, not by name.
 *
 * Owns:   `path` is copied.
 * Errors: BP_ERR_INPUT missing, or a folder; BP_ERR_DENIED; BP_ERR_STOPPED a signal came while
 * standard input was waited for; BP_ERR_SYSTEM.
 */
bp_err bp_text_source_open(bp_text_source **out, const char *path);

/** The same from byte `first` of a file that is not compressed; reads little beyond byte `end`. */
bp_err bp_text_source_open_range(bp_text_source **out, const char *path, int64_t first,
                                 int64_t end);

/** Read up to `capacity` bytes; *bytes is less than `capacity` only at the end of the text (0 from
 * then on).
 *
 * Errors: BP_ERR_FORMAT damaged, truncated or followed by other bytes (gzip, zstd), or a zstd
 * window beyond 128 MiB; BP_ERR_IO; BP_ERR_STOPPED as above.
 */
bp_err bp_text_source_read(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes);

/** Is the file uncompressed? */
bool bp_text_source_is_plain(const bp_text_source *source);
/** Bytes of the file consumed so far (compressed bytes if compressed), for progress. */
int64_t bp_text_source_consumed(const bp_text_source *source);
/** The name of `path` in messages ("standard input"), and in ids of documents (without its folder;
 * "stdin"). Borrowed. */
const char *bp_text_source_shown(const char *path);
const char *bp_text_source_id(const char *path);
void bp_text_source_close(bp_text_source **source);

/* ---- documents ---- */

typedef enum bp_text_format {
    BP_TEXT_FILE,  /* "text": a file is a document, or several with a separator */
    BP_TEXT_LINES, /* "lines": a line without its newline ("\n" or "\r\n"); empty ones are skipped
                      and counted */
    BP_TEXT_JSONL, /* "jsonl": one object per line with text, `id` and label fields; blank lines as
                      above */
    /* of tasks, whose documents hold several texts: */
    BP_TEXT_PAIRS, /* "pairs": two files, one text per line; two blank lines are not a pair */
    BP_TEXT_TSV,   /* "tsv": a table; its first line names the columns; empty lines as above */
    BP_TEXT_CONLL, /* "conll": one word per line, followed by its tag; lines without a word end
                      documents (conll.h: marks of documents too; skips comments) */
    BP_TEXT_SQUAD, /* "squad": SQuAD's JSON; a document is a question and its context */
    BP_TEXT_WARC /* "warc": a document is a record of the type conversion (ISO 28500; Common Crawl's
                    WET files); others are skipped */
} bp_text_format;

/** The format called `name`; without `of_tasks` one of the first three, or warc. Errors:
 * BP_ERR_USAGE an unknown name (lists the known ones). */
bp_err bp_text_format_of(bp_text_format *out, const char *name, bool of_tasks);

/** Where sentences begin in formats other than those of tasks. */
typedef enum bp_sentences {
    BP_SENTENCES_NONE,
    BP_SENTENCES_LINES,      /* a line that is not white space */
    BP_SENTENCES_PUNCTUATION /* after a full stop, ! or ? and white space (without white space after
                                Chinese and Japanese ones), unless an abbreviation ends with it, or
                                a lower-case letter follows; and after an empty line */
} bp_sentences;

/** The rule called `name`. Errors: BP_ERR_USAGE an unknown name (lists the known ones). */
bp_err bp_sentences_of(bp_sentences *out, const char *name);
/** Is the full stop at text[at] that of an abbreviation or an initial? text[word .. at) is the word
 * before it. */
bool bp_sentence_abbreviates(const char *text, size_t word, size_t at);

#define BP_PIECE_BYTES ((size_t)1 << 20) /* a piece is at most this long ... */
#define BP_PIECE_LIMIT_BYTES                                                                       \
    ((size_t)1 << 28) /* ... unless there is no cut; limit of jsonl lines and uncut runs */

#define BP_TEXT_FIELD       "text"
#define BP_TEXT_FIELD_BYTES 1024 /* the longest `id` and label of a jsonl line */

/** The lines that begin in bytes [first, end) of a file, which is not compressed. */
typedef struct bp_text_range {
    int64_t file, first, end;
} bp_text_range;

typedef struct bp_documents_options {
    bp_text_format format;
    bp_cut cut;
    const char *separator; /* text: ends a document, and is not part of it; NULL if none. Empty text
                              before one, and white space after the last, is not a document, and
                              counts as a skipped line */
    const char *text_field;    /* jsonl: the field that holds the text; NULL: BP_TEXT_FIELD */
    const char *const *fields; /* tsv: columns of the texts, 1 or 2 [field_count] */
    const char *const *labels; /* jsonl, tsv: names of the label fields [label_count] ... */
    const char *const *values; /* ... and of those that hold numbers [value_count] */
    int field_count, label_count, value_count;
    bool no_tags;           /* conll: a line's first field is a word, whose tag is "" */
    bool keep_bad;          /* returns an invalid document with `fault`, and continues */
    bp_sentences sentences; /* pieces have the starts of sentences, and are cut only there */
    int share_rank,
        share_size; /* return only pieces whose number is share_rank modulo share_size; 0, 0: all */
    bool share_documents; /* by the number of their document, so that documents are complete */
    /* lines, jsonl: read only the ranges given by bp_documents_read_range. Numbers of pieces and
     * documents are then those of the share; lines are counted from the range's first one, and a
     * piece whose id would be "FILE:LINE" has none. Messages have the line of the file; for a
     * message, the text before the range is read. */
    bool has_ranges;
    bool counts_lines;  /* ... unless lines before each range are counted: pieces have their line */
    size_t piece_bytes; /* 0: BP_PIECE_BYTES (tests use less) */
    size_t limit_bytes; /* 0: BP_PIECE_LIMIT_BYTES (tests use less) */
} bp_documents_options;

/** The JSON type of a label. As text, 1 and "1" look alike, and so do "true" and true. */
typedef enum bp_label_type {
    BP_LABEL_NONE, /* missing or null */
    BP_LABEL_STRING,
    BP_LABEL_NUMBER, /* 1 and 1.0 have other texts */
    BP_LABEL_BOOLEAN
} bp_label_type;

/** A document, or a part of one. All pointers are borrowed until the next call. */
typedef struct bp_piece {
    const char *text; /* NULL if there are no more; else never NULL, even if bytes is 0 */
    bool range_ended; /* text is NULL because the range has no more lines; `line` began in it */
    size_t bytes;
    int64_t number;   /* over all files, from 0 */
    int64_t document; /* over all files, from 0 */
    bool first, last; /* of its document; both for nearly all */
    int file;         /* index of its path */
    int64_t line;     /* from 1, where it begins; 0 for BP_TEXT_FILE without a separator */
    const char
        *id; /* jsonl's `id` (string or integer), tsv's column `id`, warc's target URI (of up to
                BP_TEXT_FIELD_BYTES); else "FILE", "FILE:LINE", or "FILE:NUMBER" of separated texts,
                without folder; NULL in a range, whose lines are not known */
    const char *const
        *labels; /* [label_count]: values as text, "" if missing or null; on every piece */
    const char *label_types; /* [label_count]: bp_label_type of each */
    const float *values;     /* [value_count] */
    /* Where texts begin, or sentences (then a piece begins with one): starts[start_count], from 0,
     * ascending; the white space before a sentence is its own. NULL if neither was requested. For
     * conll, of words, with a space between them that belongs to the later one. */
    const size_t *starts;
    int64_t start_count;
    bool apart;       /* texts: each is encoded on its own */
    const char *tags; /* conll: of words, each ended by a zero byte; NULL if none */
    size_t tags_bytes;
    /* squad: the context and a JSON list of answers ("null": the question does not give any; "[]":
     * it has none), each ended by a zero byte; NULL if none. starts are then those of the question
     * and of its context's words (text/unicode/context_words.h); bytes [answer[0], answer[1]) of
     * text are the first answer, 0 and 0 if there is none. */
    const char *spans;
    size_t spans_bytes, answer[2];
    const char *fault; /* the fault of an invalid document, whose text is ""; NULL if valid */
} bp_piece;

typedef struct bp_documents_stats {
    int64_t documents, pieces; /* of all shares, once the end is reached */
    int64_t skipped_lines;     /* empty (lines), blank (jsonl), empty between separators */
    int64_t text_bytes;        /* read so far, decompressed */
    int64_t consumed_bytes;    /* of the files on disk, so far ... */
    int64_t total_bytes;       /* ... and in all; 0: unknown, if one is standard input */
} bp_documents_stats;

typedef struct bp_documents bp_documents;

/** Documents of `count` files, one file after another (for pairs: two in parallel); checks at once
 * that all files exist. One of them may be BP_TEXT_STDIN, if there is one share.
 *
 * Owns:   paths and names of fields: copied.
 * Errors: BP_ERR_INPUT, BP_ERR_DENIED of any file; BP_ERR_SYSTEM.
 */
bp_err bp_documents_open(bp_documents **out, const char *const *paths, int count,
                         const bp_documents_options *options);

/** The next piece of this share; piece->text is NULL after the last. With keep_bad a fault inside a
 * line (jsonl, tsv, pairs), a sentence (conll) or a question (squad) is not an error.
 *
 * A byte order mark at the start of a file is not text. An empty file is a document without text
 * (BP_TEXT_FILE without a separator). A jsonl line is parsed, and its faults are found, only by
 * its share. Errors: those of bp_text_source; BP_ERR_FORMAT, with file and line: no JSON object,
 * invalid UTF-8, the text missing or no string, `id` or a label neither string, number, boolean
 * nor null, or beyond BP_TEXT_FIELD_BYTES; a value that is not a finite number; pairs of files of
 * different length, with an empty side; conll with a word without a tag; tsv without a requested
 * column, a row of another length than the first line; a squad file of another form, an answer
 * that is not in its context; a warc record without a length, or cut short; a jsonl line or a run
 * without a cut beyond BP_PIECE_LIMIT_BYTES; BP_ERR_SYSTEM.
 */
bp_err bp_documents_next(bp_documents *documents, bp_piece *piece);

/** With has_ranges: the range that bp_documents_next reads, until its range_ended. Errors: those of
 * bp_text_source. */
bp_err bp_documents_read_range(bp_documents *documents, const bp_text_range *range);
bp_documents_stats bp_documents_stats_of(const bp_documents *documents);
void bp_documents_close(bp_documents **documents);
