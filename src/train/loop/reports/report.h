/* What compute's root reports to the coordinator: metrics, events, checkpoints. A shared
 * coordinator is the same rank; a dedicated one receives messages (serve.h). */
#pragma once

#include "train/loop/trainer.h"

typedef enum report_kind {
    REPORT_METRIC = 1,
    REPORT_EVENT,
    REPORT_SKIPPED, /* a step: an event too, and a warning */
    REPORT_COMMIT,
    REPORT_FINISH, /* of the pending checkpoint */
    REPORT_END,
    /* To compute's root: */
    MAIL_STOP,        /* a bp_stop */
    MAIL_WRITTEN,     /* the coordinator's bp_async_checkpoint_state */
    REPORT_PART = 100 /* and up: one for each part */
} report_kind;

/** Sends from compute's root; a no-op elsewhere. Local. Owns: the reference of `value` is taken on
 * all ranks. */
void report_send(trainer *self, report_kind kind, json_t *value);
/** All reports of a loop are sent between report_begin and report_end. Compute's root receives the
 * stop request of a dedicated coordinator. A rank that computes ends report_serve by report_end.
 * Collective over world. */
void report_begin(trainer *self);
void report_end(trainer *self);

/** Writes a line that does not belong to a checkpoint. On the coordinator. Errors: those of
 * bp_run_metric, bp_run_event and bp_training_part.receive. */
bp_err report_handle(trainer *self, report_kind kind, const json_t *value);
/** Records a failure of report_handle: a lost metrics line ends the job before its next commit; a
 * lost event is a warning. On the coordinator. */
void report_note_failure(trainer *self, report_kind kind, bp_err err);
/** The failure of a lost metrics line, reported again. On the coordinator; elsewhere BP_OK. */
bp_err report_lost(const trainer *self);

/** The progress of the pending checkpoint known to this rank: its own part, and on compute's root
 * that of a dedicated coordinator. Local. */
bp_async_checkpoint_state report_written(trainer *self);
/** Reports a published checkpoint: log.txt has it now, the screen with the next line of a step. On
 * the coordinator. */
void report_committed(trainer *self, int64_t step, bool best);
/** Prints a commit that no line on the screen has shown yet. Local. */
void report_last_commit(trainer *self);

/** Excludes `seconds` since the last metrics line from training time. Local. */
static inline void report_pause(trainer *self, double seconds)
{
    self->reports.clock += seconds;
}
