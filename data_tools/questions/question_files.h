/* The published files of tasks. Local: no MPI. */
#pragma once

#include "questions/question_make.h"

#include <stdint.h>

typedef struct question_list {
    question *all; /* [count] */
    int64_t count, capacity;
} question_list;

/** Append the questions of a file: JSON Lines, or CSV if the task has columns; plain, gzip, zstd or
 * standard input. X.jsonl takes its labels from X-labels.lst, if that exists. `part`: as for
 * question_make.
 *
 * Owns:   question_list_clear, after an error too.
 * Errors: those of bp_text_source; BP_ERR_FORMAT with file and line; BP_ERR_USAGE the part. */
bp_err question_list_read(question_list *list, const question_task *task, const char *part,
                          const char *path);
void question_list_clear(question_list *list);
