/* Files of answers, one document per line. */
#pragma once

#include "statistics/metric_coverage.h"
#include "statistics/task_metrics.h"
#include "text_metrics/text_metrics.h"

#include <stdbool.h>

typedef struct answer_file {
    const char *path; /* borrowed, or `inside` */
    char *inside;     /* outputs.jsonl of a run folder; NULL: the path is a file's */
    char *text;       /* each line ends with a zero byte */
    bool is_written;  /* generate wrote it */
    bp_line *lines;   /* [count] */
    int64_t count;
    int64_t *numbers; /* [count] line numbers in the file, from 1; only for words */
    double *certainty[BP_CERTAINTIES]; /* [count] for texts written by generate; NULL if unknown */
} answer_file;

/** The lines of a file, or of the texts of generate's run folder: "\n" or "\r\n" ends one; the last
 * may be unterminated. `texts`: U+0000 is allowed in them.
 *
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT no lines, or one that is not valid UTF-8;
 *             clear after an error too. */
bp_err answer_file_read(answer_file *file, const char *path, bool texts);
void answer_file_clear(answer_file *file);
/** Remove blank lines that only one of the files has at its end. Errors: BP_ERR_FORMAT the numbers
 * of lines differ. */
bp_err answer_files_match(answer_file *one, answer_file *other);
/** Keep the words of CoNLL's columns, and one empty line between sentences. Removes comments, marks
 * of documents (text/documents/conll.h), and blank lines at both ends. */
void answer_file_keep_words(answer_file *file);

/** Codes of labels: [count] of each file, bp_free(). Errors: BP_ERR_FORMAT an empty line. */
bp_err read_classes(bp_class_answers *out, int32_t **codes, const answer_file *reference,
                    const answer_file *hypothesis);
/** One finite number per line: *out [count], bp_free(). Errors: BP_ERR_FORMAT another line. */
bp_err read_numbers(double **out, const answer_file *file);
/** Entities of sentences: one token per line, whose last word is its tag, and an empty line between
 * sentences. *counts [out->documents], bp_free(). Errors: BP_ERR_FORMAT sentences end at different
 * lines, a token differs, or no tag is B-, I-, E- or S-. */
bp_err read_tags(bp_tag_answers *out, bp_entity_counts **counts, const answer_file *reference,
                 const answer_file *hypothesis);
