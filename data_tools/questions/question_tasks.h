/* Tasks of lm-evaluation-harness as data: the question that it makes from a row of a published
 * file. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"

#include <jansson.h>

#define QUESTION_TEXTS   4
#define QUESTION_COLUMNS 6

/** Which examples precede a question. */
typedef enum question_shots {
    SHOTS_DRAWN, /* the requested number */
    SHOTS_OTHER, /* one more, without the question itself */
    SHOTS_FIRST, /* the first ones of the file */
    SHOTS_NONE   /* the task has none */
} question_shots;

/** In a template {a} is the text of a row's field a. */
typedef struct question_task {
    const char *name;    /* for --task; also the harness's name if it is one task */
    const char *parts;   /* names of its parts; "*": those of files or rows */
    const char *part;    /* the field of a row that has its part, or NULL */
    const char *context; /* template; NULL: use contexts */
    const char *contexts[QUESTION_TEXTS];  /* templates, NULL-ended if fewer */
    const char *choices[QUESTION_TEXTS];   /* the same; none: use list, or target */
    const char *list;                      /* the field that is the list of choices */
    const char *target;                    /* template */
    const char *answers[2];                /* fields with the right answer: the first that exists */
    const char *keys;                      /* its values, one character each; NULL: 0, 1, ... */
    const char *ids[2], *group;            /* fields */
    const char *columns[QUESTION_COLUMNS]; /* of a file in CSV */
    question_shots shots;
    bp_err (*prepare)(json_t *row);                      /* adds fields made from others, or NULL */
    void (*introduce)(bp_buffer *out, const char *part); /* text before everything, or NULL */
    const char *(*group_of)(const char *part);           /* the group of a part, or NULL */
} question_task;

/** The task called `name`, or the task with a part of that name; then *part is the part, else NULL.
 * Errors: BP_ERR_USAGE there is none (names the tasks). */
bp_err question_task_find(const question_task **task, const char **part, const char *name);

/** A text of a row. Borrowed. Errors: BP_ERR_FORMAT it is missing, or not text. */
bp_err question_text(const json_t *row, const char *field, const char **text, size_t *bytes);
/** json_stringn_nocheck() as a field of a row. */
void question_set(json_t *row, const char *field, const char *text, size_t bytes);
