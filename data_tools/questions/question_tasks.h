/* Tasks of lm-evaluation-harness as data: what it asks of a row of a published file. */
#ifndef BP_DATA_TOOLS_QUESTIONS_QUESTION_TASKS_H
#define BP_DATA_TOOLS_QUESTIONS_QUESTION_TASKS_H

#include "base/buffer.h"
#include "base/err.h"

#include <jansson.h>

#define QUESTION_TEXTS   4
#define QUESTION_COLUMNS 6

/** Which examples precede a question. */
typedef enum question_shots {
    SHOTS_DRAWN, /* as many as are asked for */
    SHOTS_OTHER, /* one more, and those that are the question itself left out */
    SHOTS_FIRST, /* the first of the file */
    SHOTS_NONE   /* the task has none */
} question_shots;

/** In a template {a} is the text of a row's field a. */
typedef struct question_task {
    const char *name;                      /* of --task; the harness's too where it is one task */
    const char *parts;                     /* names of its parts; "*": those of files or rows */
    const char *part;                      /* the field of a row that says which, or NULL */
    const char *context;                   /* template; NULL: contexts */
    const char *contexts[QUESTION_TEXTS];  /* templates, NULL-ended where fewer */
    const char *choices[QUESTION_TEXTS];   /* the same; none: list, or target */
    const char *list;                      /* the field that is the list of choices */
    const char *target;                    /* template */
    const char *answers[2];                /* fields that say which is right: the first there is */
    const char *keys;                      /* what it says, a character each; NULL: 0, 1, ... */
    const char *ids[2], *group;            /* fields */
    const char *columns[QUESTION_COLUMNS]; /* of a file in CSV */
    question_shots shots;
    bp_err (*prepare)(json_t *row);                      /* makes fields of others, or NULL */
    void (*introduce)(bp_buffer *out, const char *part); /* what precedes all, or NULL */
    const char *(*group_of)(const char *part);           /* a group by the part, or NULL */
} question_task;

/** The task called `name`, or the one whose part that is; *part is its part then, else NULL.
 * Errors: BP_ERR_USAGE there is none (names them). */
bp_err question_task_find(const question_task **task, const char **part, const char *name);

/** A text of a row. Borrowed. Errors: BP_ERR_FORMAT it is missing, or no text. */
bp_err question_text(const json_t *row, const char *field, const char **text, size_t *bytes);
/** json_stringn_nocheck() as a field of a row. */
void question_set(json_t *row, const char *field, const char *text, size_t bytes);

#endif
