/* Questions made from rows. Local: no MPI. */
#pragma once

#include "questions/question_tasks.h"

typedef struct question {
    json_t *row;   /* as read, with the fields that were added */
    json_t *asked; /* a question of score.questions, without examples and the end of a context */
    char *part;    /* of the task, or NULL */
} question;

/** Make the question of a row, number `number` of `path`. Its part is `part` or, if that is NULL,
 * the one that the row or the file's name has.
 *
 * Owns:   *row is taken over, after an error too; question_clear(out), after an error too.
 * Errors: BP_ERR_FORMAT a field is missing or of another type, an invalid answer, an unknown part.
 *         */
bp_err question_make(question *out, const question_task *task, const char *part, json_t *row,
                     const char *path, int64_t number);
void question_clear(question *self);

/** The context as used in an example, and the right answer; both borrowed. False if no answer is
 * known. */
bool question_solved(const question *self, const json_t **context, const json_t **answer);
