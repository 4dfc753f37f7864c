/* The names of a fine-tuning's classes or tags. */
#pragma once

#include "train/loop/trainer.h"

/** The names of outcomes: the labels of corpus.train, sorted; or those of the file that task.labels
 * names, in its order. `column` is the label's (NULL: tags), `outside` a label that is not an
 * outcome (may be NULL). Local: on ranks that read.
 *
 * Owns:       *names is a new reference; NULL after an error.
 * Errors:     BP_ERR_FORMAT fewer than 2 labels; one that is not UTF-8; a file that names one
 * twice, or lacks one of corpus.train; corpora of training and of validation without a label in
 *             common; `outside` without a document. Those of bp_file_read and of reading corpora.
 */
bp_err task_labels_find(json_t **names, const trainer *self, const char *column,
                        const char *outside);
