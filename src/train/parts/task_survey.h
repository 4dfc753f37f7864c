/* A survey of the documents of a fine-tuning before it begins. */
#pragma once

#include "train/loop/trainer.h"

/* Counts of corpus.train without a bag. */
typedef struct task_survey {
    int64_t documents, documents_cut, tokens_cut;
    double padding;       /* the share of positions that are padding */
    int64_t windows;      /* for spans: the number of examples, */
    int64_t answers_lost; /* and of answers that no window holds */
} task_survey;

/** Reads the documents, counts cut ones, and warns of classes with one document. On the
 * coordinator. Errors: BP_ERR_FORMAT a document without a token; those of reading. */
bp_err task_survey_run(task_survey *out, const trainer *self);
/** A line for people of what is cut, if there is something to say. */
void task_survey_log_cuts(const task_survey *survey, const trainer *self);
