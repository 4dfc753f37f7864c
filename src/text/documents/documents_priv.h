/* The state of reading documents, and its parts: spans.c has the text ahead, and its lines and
 * pieces; tagged.c the sentences of conll; documents.c the attributes of a piece. */
#pragma once

#include "text/documents/text_source.h"

#include "base/buffer.h"
#include "text/documents/record_priv.h"
#include "text/documents/squad_priv.h"

#define DOCUMENTS_READ_BYTES ((size_t)1 << 22)

struct bp_documents {
    bp_documents_options options; /* without names of fields: record has them */
    char **paths;
    int count;
    int file; /* the one being read */
    bp_text_source *source;
    char *buffer; /* text not returned yet: [at, end) of buffer[capacity] */
    size_t at, end, capacity;
    bool source_ended;
    int64_t line, document_line; /* the one read; for conll the first one of the document */
    char *separator;
    size_t separator_bytes;  /* 0 if none */
    int64_t parts, newlines; /* of a whole file, with a separator, and of warc: so far */
    bool is_separated;       /* the last part ended with the separator */
    bool inside;             /* of a document: its first piece was returned */
    int columns;             /* of conll: of the file's last word; 0 if there was none yet */
    bp_buffer held;          /* of conll: lines before the first word that may be comments */
    int64_t held_line;       /* the first one of these */
    char *fault;             /* fault of the current document, with keep_bad; NULL if none */
    int64_t fault_line;
    int64_t past_bytes;  /* of the files before */
    bp_text_range range; /* the one being read, */
    int64_t read_bytes;  /* the offset of buffer[end] in its file, */
    int64_t counted_to;  /* and how far its newlines are counted: */
    int64_t newlines_before;
    int64_t line_before; /* lines that begin before the range, if they are counted */
    char *id;            /* [id_capacity] for formats without ids of their own */
    size_t id_capacity;
    bp_text_record record;
    bp_documents *target; /* of pairs: the other file */
    bp_squad squad;       /* the file being read */
    size_t *starts;       /* of texts or sentences of a piece [start_capacity] */
    int64_t start_count, start_capacity;
    bp_documents_stats stats;
};

/** Text as in the file; borrowed until the next one. */
typedef struct documents_span {
    const char *text;
    size_t bytes;
    bool found, last; /* last: it ends its document */
} documents_span;

/* ---- spans.c ---- */

/** Open the next file; there is no source after the last. Errors: those of bp_text_source, and
 * BP_ERR_FORMAT of a table's first line. */
bp_err documents_next_source(bp_documents *documents);
/** Has the current range no more lines? */
bool documents_range_ended(const bp_documents *documents);
/** Advance by `bytes` bytes, and count their newlines. */
void documents_pass(bp_documents *documents, size_t bytes);
/** The next piece of the file, unchanged; not found if the file has no more. */
bp_err documents_next_span(bp_documents *documents, documents_span *piece);
/** Read until at least `bytes` of text are ahead, or the rest of the file. */
bp_err documents_look_ahead(bp_documents *documents, size_t bytes);
/** BP_ERR_FORMAT too much text without a place to cut it. */
bp_err documents_fail_limit(bp_documents *documents);
/** Blanks and tabs, or nothing? */
bool documents_is_blank(const documents_span *piece);
/** The error of the current line, with its place. */
bp_err documents_wrap_line(bp_documents *documents, bp_err err, const char *remedy);
/** With keep_bad, record BP_ERR_FORMAT as the document's fault, unless it has one, and return
 * BP_OK; else return `err`. */
bp_err documents_keep_bad(bp_documents *documents, bp_err err);
/** A text, a sentence or a word of the piece begins here. */
void documents_add_start(bp_documents *documents, size_t at);

/* ---- tagged.c ---- */

/** A sentence of words and tags: the lines up to one without a word. Its line is its first one. */
bp_err documents_next_tagged(bp_documents *documents, documents_span *piece);

/* ---- warc.c ---- */

/** The text of the next record of the type conversion, and its id in record->id (NULL if it has
 * none). */
bp_err documents_next_warc(bp_documents *documents, documents_span *piece);
