/* Files of answers, a document a line. */
#ifndef BP_DATA_TOOLS_METRICS_FILES_H
#define BP_DATA_TOOLS_METRICS_FILES_H

#include "statistics/task_metrics.h"
#include "text_metrics/text_metrics.h"

#include <stdbool.h>

#define ANSWER_ORDERS 2

typedef struct answer_file {
    const char *path; /* borrowed */
    char *text;       /* lines end with a zero byte in it */
    bp_line *lines;   /* [count] */
    int64_t count;
    int64_t *numbers; /* [count] where the lines are in the file, from 1; only for words */
    double *certainty[ANSWER_ORDERS]; /* [count] of texts that generate wrote: log-probability, and
                                         less mutual information, a token; NULL: unknown */
} answer_file;

/** The lines of a file: "\n" or "\r\n" ends one, and the last need not be ended. `texts`: U+0000
 * are allowed in them.
 *
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT there is none, or one is not valid UTF-8;
 * clear after an error too. */
bp_err answer_file_read(answer_file *file, const char *path, bool texts);
void answer_file_clear(answer_file *file);
/** Blank lines that only one of the files has at its end are left out. Errors: BP_ERR_FORMAT
 * another number of lines. */
bp_err answer_files_match(answer_file *one, answer_file *other);
/** Of CoNLL's columns: keep words, and one empty line between sentences; comments and marks of
 * documents (text/documents/conll.h) are left out, as blank lines are at both ends. */
void answer_file_keep_words(answer_file *file);

/** Codes of labels: [count] of each file, bp_free(). Errors: BP_ERR_FORMAT an empty line. */
bp_err read_classes(bp_class_answers *out, int32_t **codes, const answer_file *reference,
                    const answer_file *hypothesis);
/** A finite number a line: *out [count], bp_free(). Errors: BP_ERR_FORMAT another line. */
bp_err read_numbers(double **out, const answer_file *file);
/** Entities of sentences: a token a line, whose last word is its tag, and an empty line between
 * sentences. *counts [out->documents], bp_free(). Errors: BP_ERR_FORMAT sentences end otherwise, a
 * token differs, or no tag is B-, I-, E- or S-. */
bp_err read_tags(bp_tag_answers *out, bp_entity_counts **counts, const answer_file *reference,
                 const answer_file *hypothesis);

#endif
