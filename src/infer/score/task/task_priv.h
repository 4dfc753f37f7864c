/* The state of scoring a task, shared by the files of this folder. */
#pragma once

#include "base/buffer.h"
#include "infer/score/sets.h"
#include "infer/score/task/documents.h"
#include "statistics/metric.h"

/* Columns of a span's row, in place of the outcomes': log-probabilities of the best span and of no
 * answer, and the positions where that span begins and ends. */
enum { SPAN_SCORE, SPAN_NONE, SPAN_FIRST, SPAN_LAST, TASK_SPAN_COLUMNS };
/* Columns of an ensemble after those of the outcomes; a regression has one, the variance. */
enum { TASK_ENTROPY, TASK_MUTUAL, TASK_MORE };

typedef struct task_scoring task_scoring;

/* The results that a unit keeps for each row of a task, and how they become files. */
typedef struct task_results {
    int64_t (*width_of)(const task_scoring *task); /* floats of a row */
    /* Write row r: of example w of the batch, number `at` among its rows; `out` is 0 before. On
     * leads. */
    void (*take)(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                 int64_t at, float *out);
    /* Copy rows of the parts to task->table. On the coordinator. */
    void (*put)(task_scoring *task, int64_t first, int64_t rows, const char *from);
    /* Write the files from task->table. On the coordinator. */
    bp_err (*write)(task_scoring *task);
    bool distribution; /* `take` reads task->log_p */
} task_results;

struct task_scoring {
    scorer *self;
    const task_results *results;
    const bp_task_kind *kind;
    int64_t outcomes;
    task_documents documents;
    bp_work_units units;
    int64_t predictions; /* texts, words, or questions (whose windows are documents) */
    int64_t unlabelled;  /* number of predictions without a label, which no figure includes */
    int64_t width;       /* of a row */
    float *table;        /* [documents.rows][width], of outcomes by statistics; on the coordinator,
                            at the end */
    json_t *misses;      /* of spans: {"id", "document", "answer", "prediction", "probability"} of
                            the surest wrong answers; else NULL */
    float *row;          /* [width] */
    float *log_p;        /* [rows of a group][outcomes], of spans [TASK_GROUP][2][length] */
    float *values;       /* [statistics][TASK_GROUP][documents.length] for an ensemble */
};

/* outcomes.c */
/** Write outcomes.h5: an ensemble's statistics of each prediction, for comparing methods. */
extern const task_results task_outcomes;

/* report.c */
/** Write summary.json and predictions.csv, and log the figures. On the coordinator. Errors: those
 * of writing; BP_ERR_SYSTEM memory. */
bp_err task_report(task_scoring *task);

/** Does row r (not of spans) have a class, a value or a tag? */
static inline bool task_has_label(const task_scoring *task, int64_t r)
{
    return task->documents.row[r].label >= 0;
}

static inline bool task_has_figures(const task_scoring *task)
{
    return task->unlabelled < task->predictions;
}

/** The most probable outcome of row r. */
int32_t task_best_of(const task_scoring *task, int64_t r);
/** "entropy" and "mutual_information" of "task" in the summary: means over `count` predictions. */
void task_put_means(json_t *results, const double sums[TASK_MORE], int64_t count);
/** Write a CSV field, quoted if necessary. */
void task_add_field(bp_buffer *out, const char *text);

/** Figures, with intervals over the clusters of score.cluster if it is given, and their number
 * ("clusters"). documents[count]: the document of each answer, among all documents. Errors:
 * BP_ERR_SYSTEM memory. */
bp_err task_estimate(json_t **out, const task_scoring *task, const bp_metric *metric,
                     const void *answers, const int64_t *documents, int64_t count);

/* page.c */
#define TASK_MISSES 10 /* listed */
/** Write index.html, after the summary exists. */
void task_page_write(const task_scoring *task);

/* spans.c */
/** As task_results.take. */
void task_take_span(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                    float *out);
/** Write figures (none for questions with unknown answers), predictions.csv and predictions.json.
 * Errors: those of writing and of reading the corpus. */
bp_err task_measure_spans(task_scoring *task, json_t **out);
