/* Reads the results of `bagpipe score` with score.questions: summary.json and questions.jsonl. */
#pragma once

#include "base/config/json.h"

/** By what an option is the best one; names as in summary.json. */
typedef enum answers_way {
    ANSWERS_ACC,
    ANSWERS_ACC_NORM,
    ANSWERS_ACC_TOKEN,
    ANSWERS_WAYS
} answers_way;
extern const char *const answers_way_names[ANSWERS_WAYS];

typedef struct answers_line {
    char *task, *group; /* group NULL: none */
    uint64_t asked;     /* a hash of what is asked: contexts, choices, target, answer */
    double right;       /* is the best option the answer? NaN: it has none, or no value */
    bool tie;           /* the answer is one of several best options */
} answers_line;

typedef struct answers {
    const char *given; /* the run folder, or its score/ folder; borrowed */
    char *summary_path, *lines_path;
    json_t *summary;
    answers_line *lines; /* [count] */
    int64_t count, capacity;
    answers_way way;
} answers;

/** Does this run folder, or NAME= and one, have answers to questions? */
bool answers_are_at(const char *given);

/** Read summary.json; with `lines` questions.jsonl too, for answers->way. answers_clear(), after an
 * error too.
 *
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT not of questions, or damaged. */
bp_err answers_load(answers *all, const char *given, bool lines);
void answers_clear(answers *all);

/** What differs in how two models were asked, with both values: "context (64 and none), precision
 * (f32 and bf16)"; NULL: nothing. Owns: bp_free(). */
char *answers_differences(const json_t *summary, const json_t *other);
