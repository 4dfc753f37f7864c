/* What corpora hold of documents besides tokens: classes, numbers, tags of words. Local: no MPI. */
#ifndef BP_DATA_DOCUMENT_COLUMNS_H
#define BP_DATA_DOCUMENT_COLUMNS_H

#include "data/corpus.h"
#include "tensor/batch.h"

/** What a task asks of documents. Borrowed while they are read. */
typedef struct bp_document_columns {
    const char *label;          /* a label column; NULL: none */
    const char *const *classes; /* [class_count]: bp_document.label k is this value */
    int64_t class_count;
    const char *value;       /* a column of numbers, or a label whose texts are; NULL: none */
    const char *const *tags; /* [tag_count]: tag k of bp_document.tags is this one; NULL: none */
    int64_t tag_count;
    bool spans;             /* answers, in contexts */
    bp_window_rule windows; /* of spans: what an entry is */
    bool all_known;         /* a class or tag that is not asked for is an error, and no -1 */
    bool may_lack_label;    /* documents of a file without the label column have the class -1 */
    bool unlabelled;        /* so have those of a file without any column, and those whose label is
                               ""; what has no value (no column at all, or "") has NAN, words
                               without a tag ("") have -2, and answers may not be known */
} bp_document_columns;

/** Has a file a label, or with `numbers` a column of values? */
bool bp_corpus_has_columns(const bp_corpus *corpus, bool numbers);
/** The label column that `name` is, or with `numbers` a column of values; NULL: the only one that
 * the first file with any has.
 *
 * Owns:       *out is the caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT there is none; BP_ERR_CONFIG several, and no name. */
bp_err bp_corpus_column(char **out, const bp_corpus *corpus, const char *name, bool numbers);
/** Values of a label that documents of the corpus have, sorted by their bytes; "" is not a value.
 *
 * Owns:       *names[*count] is the caller's, bp_names_free().
 * Errors:     BP_ERR_FORMAT a file has no such label (its labels are named); what reading columns
 *             gives. */
bp_err bp_corpus_classes(const bp_corpus *corpus, const char *label, char ***names, int64_t *count);
/** The same of the tags of words. Errors: BP_ERR_FORMAT a file has none. */
bp_err bp_corpus_tags(const bp_corpus *corpus, char ***names, int64_t *count);
/** Are there answers, and do some documents have none? Errors: BP_ERR_FORMAT a file has no answers.
 */
bp_err bp_corpus_has_unanswered(bool *unanswered, const bp_corpus *corpus);
/** The context and the answers (a JSON list; null: they are not known) of document d of all files.
 * Borrowed. Errors: as above.
 */
bp_err bp_corpus_answers(const bp_corpus *corpus, int64_t document, const char **context,
                         const char **answers);
/** Has each document two texts? Errors: those of bp_corpus_file_segments. */
bp_err bp_corpus_has_pairs(bool *pairs, const bp_corpus *corpus);

/** The columns of one file. */
typedef struct bp_file_columns {
    const int64_t *doc_start, *segments, *segment_start; /* the latter two NULL: no segments */
    const uint32_t *codes;
    int32_t *class_of; /* [values]: of a code, -1: no class */
    const float *values;
    float *parsed;        /* of a label's texts; NULL: values are as the file has them */
    const uint32_t *tags; /* [tokens] */
    int32_t *tag_of;      /* [tag names]: of a code, -1: none that was asked for */
    int64_t tag_names;
    const int64_t *spans; /* [documents][BP_CORPUS_SPAN] */
} bp_file_columns;

/** Owns:      bp_file_columns_clear(), also after an error.
 * Errors:     BP_ERR_FORMAT the file lacks a column; a class or tag that is not known (all_known);
 *             a text that is not a finite number; answers that are not known (but unlabelled); what
 *             reading columns gives. */
bp_err bp_file_columns_load(bp_file_columns *out, bp_corpus_file *file,
                            const bp_document_columns *asked);
void bp_file_columns_clear(bp_file_columns *columns);

#endif
