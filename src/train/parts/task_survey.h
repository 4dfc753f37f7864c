/* What the documents of a fine-tuning are before it begins. */
#ifndef BP_TRAIN_PARTS_TASK_SURVEY_H
#define BP_TRAIN_PARTS_TASK_SURVEY_H

#include "train/loop/trainer.h"

/* Counts of corpus.train without a bag. */
typedef struct task_survey {
    int64_t documents, documents_cut, tokens_cut;
    double padding;       /* the share of places that hold none of their tokens */
    int64_t windows;      /* for spans: examples of them, */
    int64_t answers_lost; /* and answers that no window holds */
} task_survey;

/** Looks through the documents: what is cut is counted, a class with one document warned of. On the
 * coordinator. Errors: BP_ERR_FORMAT a document without a token; those of reading. */
bp_err task_survey_run(task_survey *out, const trainer *self);

#endif
