/* The state of scoring a question set. */
#pragma once

#include "infer/score/candidates/choices.h"
#include "infer/score/questions/set.h"
#include "job/work.h"

typedef struct questions {
    bp_work_job *job;         /* first: bp_work_start */
    bp_question_set set;      /* on leads and the coordinator */
    char hash[BP_SHA256_HEX]; /* of it, on all ranks */
    char key[BP_SHA256_HEX];  /* names the work in part files */
    int64_t context;          /* the most inputs of a row */
    const char *prefix;       /* score.prefix */
    char *lead[2];            /* the token before contexts, and that an empty one is; NULL: none */
    chooser chooser;
    json_t *summary; /* on the coordinator, at the end */
} questions;

/** The scores of the rows of a set. */
typedef struct question_results {
    const bp_question_set *set;
    const choice_result *rows;
    const double *of_members; /* [rows][members] */
    int64_t members;
} question_results;

/** The criterion for an option: its summed log-probability; that per byte, or per token; that minus
 * the one after the bare prefix; that per character. */
enum {
    QUESTION_ACC,
    QUESTION_ACC_NORM,
    QUESTION_ACC_TOKEN,
    QUESTION_ACC_MUTUAL,
    QUESTION_ACC_CHARACTER,
    QUESTION_WAYS
};

/** Metrics of one question; NaN or -1 if there is no value. */
typedef struct question_metrics {
    bool scored;                   /* an option has a log-probability */
    int64_t best;                  /* by summed log-probability */
    double right[QUESTION_WAYS];   /* is the best option the answer? 1, 0; NaN without an answer, or
                                      if no option has such a value. A target has only the first:
                                      would the model write it? */
    int64_t tied;                  /* options that are as good as the best one, with it */
    double shared;                 /* the answer's share of those: 1 / tied, or 0; NaN as right[] */
    double logprob;                /* for a target */
    double confidence, nll, brier; /* of the options' softmax, if there is an answer */
    double total_entropy, mutual_information; /* for an ensemble */
} question_metrics;

/** The metrics of one question of the set. Local. */
void question_measure(question_metrics *out, const question_results *results, int64_t question);

/** summary.json's "all", "tasks" and "groups". metrics: [set->count]. New reference. */
json_t *question_figures(const bp_question_set *set, const question_metrics *metrics,
                         uint64_t seed);

/** questions.jsonl. Errors: those of drafts. */
bp_err question_lines_write(const question_results *results, const question_metrics *metrics,
                            const char *folder);
/** results.json and samples_TASK.jsonl, with the names of lm-evaluation-harness, in the job's
 * folder; the samples are added to the run's results. */
bp_err question_harness_write(const question_results *results, const question_metrics *metrics,
                              const json_t *summary, const bp_work_job *job);

/** index.html. A failure is a warning. */
void question_page_write(const questions *self, const question_results *results,
                         const question_metrics *metrics);
