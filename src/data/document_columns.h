/* Data of documents other than tokens: classes, numbers, tags of words. Local: no MPI. */
#pragma once

#include "data/corpus.h"
#include "tensor/batch.h"

/** The columns that a task needs. Borrowed while documents are read. */
typedef struct bp_document_columns {
    const char *label;          /* a label column, or NULL */
    const char *const *classes; /* [class_count]: bp_document.label k is this value */
    int64_t class_count;
    const char *value;       /* a column of numbers, or a label whose texts are numbers; or NULL */
    const char *const *tags; /* [tag_count]: tag k of bp_document.tags is this one; or NULL */
    int64_t tag_count;
    bool spans;             /* answers, in contexts */
    bp_window_rule windows; /* of spans: the definition of an entry */
    bool all_known;         /* a class or tag that is not listed is an error instead of -1 */
    bool may_lack_label;    /* documents of a file without the label column have the class -1 */
    bool unlabelled; /* also documents of a file without any column, and with the label "". Missing
                        values (no column at all, or "") are NAN, words without a tag ("") have -2,
                        and answers may be unknown */
} bp_document_columns;

/** Does a file have a label, or with `numbers` a column of values? */
bool bp_corpus_has_columns(const bp_corpus *corpus, bool numbers);
/** The label column called `name`, or with `numbers` a column of values; name NULL: the only one of
 * the first file that has any.
 *
 * Owns:       *out is the caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT there is none; BP_ERR_CONFIG several, and no name. */
bp_err bp_corpus_column(char **out, const bp_corpus *corpus, const char *name, bool numbers);
/** Values of a label that documents of the corpus have, sorted by their bytes; "" is not a value.
 *
 * Owns:       *names[*count] is the caller's, bp_names_free().
 * Errors:     BP_ERR_FORMAT a file has no such label (its labels are named); those of reading
 *             columns. */
bp_err bp_corpus_classes(const bp_corpus *corpus, const char *label, char ***names, int64_t *count);
/** The same for the tags of words. Errors: BP_ERR_FORMAT a file has no tags. */
bp_err bp_corpus_tags(const bp_corpus *corpus, char ***names, int64_t *count);
/** Are there answers, and do some documents lack one? Errors: BP_ERR_FORMAT a file has no
 * answers. */
bp_err bp_corpus_has_unanswered(bool *unanswered, const bp_corpus *corpus);
/** The context and the answers (a JSON list; null if unknown) of document d of all files. Borrowed.
 * Errors: as above. */
bp_err bp_corpus_answers(const bp_corpus *corpus, int64_t document, const char **context,
                         const char **answers);
/** Does each document have two texts? Errors: those of bp_corpus_file_segments. */
bp_err bp_corpus_has_pairs(bool *pairs, const bp_corpus *corpus);

/** The columns of one file. */
typedef struct bp_file_columns {
    const int64_t *doc_start, *segments, *segment_start; /* the latter two NULL: no segments */
    const uint32_t *codes;
    int32_t *class_of; /* [values]: the class of a code, or -1 */
    const float *values;
    float *parsed;        /* parsed from a label's texts; NULL: the values of the file are used */
    const uint32_t *tags; /* [tokens] */
    int32_t *tag_of;      /* [tag names]: the tag of a code, -1 if it is not listed */
    int64_t tag_names;
    const int64_t *spans; /* [documents][BP_CORPUS_SPAN] */
} bp_file_columns;

/** Owns:      bp_file_columns_clear(), also after an error.
 * Errors:     BP_ERR_FORMAT the file lacks a column; a class or tag that is not known (all_known);
 *             a text that is not a finite number; unknown answers (unless unlabelled); those of
 *             reading columns. */
bp_err bp_file_columns_load(bp_file_columns *out, bp_corpus_file *file,
                            const bp_document_columns *asked);
void bp_file_columns_clear(bp_file_columns *columns);
