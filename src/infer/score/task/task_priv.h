/* The state of scoring a task, shared by the files of this folder. */
#ifndef BP_INFER_SCORE_TASK_TASK_PRIV_H
#define BP_INFER_SCORE_TASK_TASK_PRIV_H

#include "base/buffer.h"
#include "infer/score/sets.h"
#include "infer/score/task/documents.h"

/* Columns of a span's row, in place of the outcomes': log-probabilities of the best span and of no
 * answer, and the places where that span begins and ends. */
enum { SPAN_SCORE, SPAN_NONE, SPAN_FIRST, SPAN_LAST, TASK_SPAN_COLUMNS };
/* Columns of an ensemble after those of the outcomes; a regression has one, the variance. */
enum { TASK_ENTROPY, TASK_MUTUAL, TASK_MORE };

typedef struct task_scoring task_scoring;

/* What a unit keeps of each row of a task, and what all rows become. */
typedef struct task_results {
    int64_t (*width_of)(const task_scoring *task); /* floats of a row */
    /* Row r, of example w of the batch and at `at` among its rows; `out` is 0 before. On leads. */
    void (*take)(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                 int64_t at, float *out);
    /* Rows of the parts to task->table. On the coordinator. */
    void (*put)(task_scoring *task, int64_t first, int64_t rows, const char *from);
    /* Files of task->table. On the coordinator. */
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
    int64_t predictions; /* of texts, words, or questions, whose windows are documents */
    int64_t unlabelled;  /* those without a label, which no figure includes */
    int64_t width;       /* of a row */
    float *table;        /* [documents.rows][width], of outcomes by statistics; on the coordinator,
                            at the end */
    float *row;          /* [width] */
    float *log_p;        /* [rows of a group][outcomes], of spans [TASK_GROUP][2][length] */
    float *values;       /* [statistics][TASK_GROUP][documents.length] of an ensemble */
};

/* outcomes.c */
/** outcomes.h5: an ensemble's statistics of each prediction, for comparing methods. */
extern const task_results task_outcomes;

/* report.c */
/** summary.json and predictions.csv, and lines for people. On the coordinator. Errors: those of
 * writing; BP_ERR_SYSTEM memory. */
bp_err task_report(task_scoring *task);

/** Has row r, not of spans, a class, a value or a tag? */
static inline bool task_has_label(const task_scoring *task, int64_t r)
{
    return task->documents.row[r].label >= 0;
}

static inline bool task_has_figures(const task_scoring *task)
{
    return task->unlabelled < task->predictions;
}

/** The outcome of row r that is the most probable. */
int32_t task_best_of(const task_scoring *task, int64_t r);
/** "entropy" and "mutual_information" of "task" in the summary: means over `count` predictions. */
void task_put_means(json_t *results, const double sums[TASK_MORE], int64_t count);
/** CSV: in quotation marks where it must be. */
void task_add_field(bp_buffer *out, const char *text);

/* page.c */
/** index.html, once there is a summary. */
void task_page_write(const task_scoring *task);

/* spans.c */
/** As task_results.take. */
void task_take_span(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                    float *out);
/** Figures (none of questions whose answers are not known), and predictions.csv and
 * predictions.json. Errors: those of writing and of reading the corpus. */
bp_err task_measure_spans(task_scoring *task, json_t **out, uint64_t seed);

#endif
