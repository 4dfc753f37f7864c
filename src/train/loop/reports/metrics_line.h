/* A line of metrics.jsonl. */
#ifndef BP_TRAIN_LOOP_REPORTS_METRICS_LINE_H
#define BP_TRAIN_LOOP_REPORTS_METRICS_LINE_H

#include "train/loop/trainer.h"
#include "train/loop/validation.h"

/** With corpus.bucket: progress.places has what all ranks have counted. Collective over
 * mesh->data. */
void report_gather_places(trainer *self);
/** Reports progress.step, which the clock of the next line begins with. valid: of this step; NULL:
 * none. Collective over mesh->data; the line is that of compute's root. */
void report_step(trainer *self, const bp_step_result *result, const validation *valid);

#endif
