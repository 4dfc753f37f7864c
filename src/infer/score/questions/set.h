/* The questions of a file. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "infer/score/candidates/candidates.h"

#define BP_QUESTION_NAME 80 /* the most bytes of a task's or a group's name: part of file names */

typedef struct bp_question {
    int64_t line, bytes; /* of bp_question_set.text: its line, without its end */
    int64_t task, group; /* indices of bp_question_set.names; group -1 if there is none */
    bool target;         /* one continuation; the question is whether the model would write it */
    int64_t options;     /* number of options: choices, or contexts; 1 for a target */
    int64_t answer;      /* the right option; -1: unknown */
    int64_t first;       /* the row of option 0; those of the others follow */
    int64_t bare; /* the row of option 0 after the bare prefix; -1 for targets and contexts */
} bp_question;

typedef struct bp_question_set {
    int64_t count;
    bp_question *questions;
    char *text;            /* the file */
    bp_candidates rows;    /* a document of it is the rows after one context */
    int64_t *characters;   /* [rows.count]: characters of the choice's text */
    int64_t names;         /* of tasks and groups */
    char **name;           /* [names] */
    int64_t options;       /* number of rows that are options */
    int64_t cut;           /* number of rows whose context lost its beginning */
    int64_t capacities[4]; /* of questions, names, rows.first, characters */
} bp_question_set;

typedef struct bp_questions_spec {
    const char *path;
    const bp_tokenizer *tokenizer;
    bp_candidates_prefix prefix;
    int64_t context; /* the model's: the most inputs of a row */
} bp_questions_spec;

/** Read JSON Lines: {"task", "id", "context" or "contexts", "choices" or
 * "target", "answer", "group"}. White space at the end of a context belongs to the continuation;
 * both are encoded together (text/tokenizer/continuation.h). An empty context is the bare prefix.
 * For acc_mutual the choices are scored a second time, after the bare prefix.
 *
 * Owns:       clear it with bp_question_set_clear, after an error too.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED, BP_ERR_IO; BP_ERR_FORMAT, with file and line. */
bp_err bp_question_set_read(bp_question_set *set, const bp_questions_spec *spec);
/** The line of a question as an object, without unused members if one of them is not valid JSON.
 * New reference. */
json_t *bp_question_object(const bp_question_set *set, const bp_question *question);
/** SHA-256 of the questions and scored rows, in 64 digits. */
void bp_question_set_hash(const bp_question_set *set, char out[BP_SHA256_HEX]);
void bp_question_set_clear(bp_question_set *set);
