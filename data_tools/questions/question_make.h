/* Questions of rows. Local: no MPI. */
#ifndef BP_DATA_TOOLS_QUESTIONS_QUESTION_MAKE_H
#define BP_DATA_TOOLS_QUESTIONS_QUESTION_MAKE_H

#include "questions/question_tasks.h"

typedef struct question {
    json_t *row;   /* as it was read, with the fields that were made */
    json_t *asked; /* a question of score.questions, without examples and what ends a context */
    char *part;    /* of the task, or NULL */
} question;

/** The question of a row, the number `number` of `path`, which is of `part`, or of the part that
 * the row or the file's name says where that is NULL.
 *
 * Owns:   *row is taken over, after an error too; question_clear(out), after an error too.
 * Errors: BP_ERR_FORMAT a field is missing or of another type, an answer that is not one; the part
 *         is not known. */
bp_err question_make(question *out, const question_task *task, const char *part, json_t *row,
                     const char *path, int64_t number);
void question_clear(question *self);

/** The context as it stands in an example, and the right answer: both borrowed. False: no answer is
 * known. */
bool question_solved(const question *self, const json_t **context, const json_t **answer);

#endif
