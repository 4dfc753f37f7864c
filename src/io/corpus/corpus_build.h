/* Text to a corpus file, by one or many ranks: the same bytes at any number of them.
 *
 * For uncompressed files of lines (lines, jsonl), every rank reads and encodes ranges of bytes,
 * which rank 0 hands out on demand. The input is read once, except with `list`, whose ids may be
 * line numbers: then each rank counts the lines before its ranges. For all other files, every rank
 * reads the whole input and encodes its share of the pieces (text/documents/text_source.h). Rank 0
 * joins them in order, has full chunks compressed, and writes. Memory does not grow with the
 * corpus. */
#pragma once

#include "mesh/mesh.h"
#include "text/documents/text_source.h"
#include "text/tokenizer/tokenizer.h"

typedef struct bp_corpus_build {
    const char *const *paths; /* the input [path_count] */
    int path_count;           /* pairs: 2 */
    bp_text_format format;
    const char *format_name; /* kept in the file */
    const char *separator;   /* of text, kept in the file; NULL if none */
    const char *text_field; /* of jsonl, kept in the file; NULL: BP_TEXT_FIELD, which is not kept */
    const char *const *fields; /* of tsv: columns of the texts [field_count] */
    const char *const *labels; /* names of label fields (jsonl, tsv) [label_count] ... */
    const char *const *values; /* ... and of those with numbers [value_count] */
    int field_count, label_count, value_count;
    bool no_tags;  /* of conll */
    bool specials; /* special token names in the text become those tokens */
    bool has_bos;  /* each document begins with the tokenizer's beginning-of-text token, which must
                      exist; for documents without segments */
    bp_sentences sentences;
    const char *sentences_name; /* of the rule, kept in the file */
    const bp_tokenizer *tokenizer;
    const bp_tokenizer *target_tokenizer; /* for second texts (pairs, tsv), same tokens by id; its
                                             hash is kept in the file; NULL: the same */
    bool skips_bad;                       /* skips bad documents: with `skip_list`, at most ... */
    int64_t skip_count;                   /* ... this number, or, if it is below 0, ... */
    double skip_percent;                  /* ... this percentage */
    const char *skip_list; /* path: one JSON line for each, {"file", "line", "id", "reason"} */
    const char *list;      /* path: ids of documents, one per line, that ... */
    bool takes_listed;     /* ... are the only ones taken; else they are skipped; NULL: takes all */
    const char *tool;      /* name and version of the tool: "bagpipe-data 0.1.0" */
    const char *out;
    size_t piece_bytes;  /* 0: BP_PIECE_BYTES (tests use less) */
    int64_t range_bytes; /* that a rank reads at a time; 0: 128 KiB (tests use less) */
} bp_corpus_build;

typedef struct bp_corpus_built {
    int64_t documents, tokens, bytes, words;
    int64_t empty_documents; /* without a token of text */
    int64_t white_documents; /* of white space, some */
    int64_t skipped_lines;   /* empty lines, which are not documents */
    int64_t invalid_bytes;   /* of plain text, kept as they are */
    int64_t invalid_line;    /* the first one's; 0 if there is none */
    int invalid_file;        /* ... and its path */
    int64_t unknown;         /* tokens <unk> */
    int64_t segments;        /* texts of documents, or sentences */
    int64_t skipped_bad;     /* skipped bad documents */
    int64_t left_out;        /* documents skipped by `list` */
    int64_t listed, found;   /* ids of `list`, and the number found in documents */
} bp_corpus_built;

/** Build the corpus file `build->out`. /source/skipped_bad has the number of skipped bad documents;
 * if there are none, an old list is removed. /source/only or /source/without has the name of
 * `list`, and /source/left_out the number of documents that it skipped.
 *
 * Collective: over `comm`; `build` is equal on all ranks, and all can read the input:
 * BP_TEXT_STDIN is for one rank.
 * Errors:     the same on all ranks; then no output remains. BP_ERR_INPUT, BP_ERR_DENIED,
 * BP_ERR_FORMAT of the input, the first in its order at any number of ranks, or more bad documents
 * than allowed; BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO (disk full) of the output; BP_ERR_USAGE a
 * wrong label name; BP_ERR_STOPPED a signal requested a stop.
 */
bp_err bp_corpus_build_file(MPI_Comm comm, const bp_corpus_build *build, bp_corpus_built *built);
