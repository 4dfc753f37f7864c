/* A dedicated coordinator while the others train: it takes their reports, and its part of
 * checkpoints, and passes on a stop request. Called by pretrain.c, while steps.c runs on the other
 * ranks. */
#include "train/loop/reports/serve.h"

#include "base/process/signals.h"
#include "mesh/collective.h"
#include "train/loop/commit.h"
#include "train/loop/reports/report.h"

#include <math.h>

/* Once for each checkpoint that was begun. now: in any state. */
static void report_written_here(trainer *self, bool now)
{
    commit_async *pending = &self->commits.pending;
    int state;

    if (!pending->writes || pending->reported)
        return;
    state = (int)bp_checkpoint_poll(pending->writes);
    if (state == BP_ASYNC_CHECKPOINT_WRITES && !now)
        return;
    pending->reported = true;
    bp_mailbox_send(self->reports.box, 1, MAIL_WRITTEN, &state, sizeof state);
}

/* The progress of the ranks that compute. */
static progress progress_of(const trainer *self, const json_t *value)
{
    const json_t *best = json_object_get(value, "best_valid_loss");
    progress p = {.committed = self->progress.committed,
                  .best_valid_loss = json_is_null(best) ? INFINITY : json_number_value(best)};
    json_int_t step, updates, skipped, in_row, best_step, stale;

    BP_CHECK(json_unpack((json_t *)value, "{s:I, s:I, s:I, s:I, s:I, s:I}", "step", &step,
                         "updates", &updates, "skipped", &skipped, "skipped_in_row", &in_row,
                         "best_step", &best_step, "stale", &stale) == 0);
    p.step = step;
    p.updates = updates;
    p.skipped = skipped;
    p.skipped_in_row = in_row;
    p.best_step = best_step;
    p.stale = stale;
    BP_CHECK(bp_json_get_int(value, "places_computed", &p.positions[0], "a report") == BP_OK &&
             bp_json_get_int(value, "places_filled", &p.positions[1], "a report") == BP_OK &&
             bp_json_get_int(value, "filled", &p.filled, "a report") == BP_OK);
    return p;
}

/* Writes lines, and the coordinator's part of checkpoints. */
static bp_err handle(trainer *self, report_kind kind, const json_t *value)
{
    bool best;

    switch (kind) {
    case REPORT_COMMIT:
        self->progress = progress_of(self, value);
        best = json_is_true(json_object_get(value, "best"));
        return json_is_true(json_object_get(value, "async"))
                   ? trainer_commit_begin(self, best)
                   : trainer_commit(self, &(commit_of){.best = best});
    case REPORT_FINISH:
        report_written_here(self, true);
        return trainer_commit_finish(self, json_is_true(json_object_get(value, "cancel")));
    case REPORT_END:
        return BP_OK;
    default:
        return report_handle(self, kind, value);
    }
}

/* A dedicated coordinator while it waits for a report. */
typedef struct serving {
    trainer *self;
    bool stop_sent;
    bp_mail mail;
} serving;

static bool has_come(void *context)
{
    serving *at = context;
    bp_stop reason;

    /* First, because a report may be waiting. */
    if (!at->stop_sent && bp_signals_stop_asked()) {
        reason = bp_signals_terminating()                   ? BP_STOP_TERM
                 : bp_signals_stop_reason() == BP_STOP_HALT ? BP_STOP_HALT
                                                            : BP_STOP_RANK;
        bp_mailbox_send(at->self->reports.box, 1, MAIL_STOP, &reason, sizeof reason);
        at->stop_sent = true;
    }
    report_written_here(at->self, false);
    return bp_mailbox_take(at->self->reports.box, BP_MAIL_ANY, &at->mail);
}

bp_err report_serve(trainer *self)
{
    bp_err err = BP_OK;
    serving at = {.self = self};

    for (;;) {
        json_t *value = NULL;
        report_kind kind;

        bp_poll("report", has_come, &at);
        kind = (report_kind)at.mail.kind;
        value = json_loadb(at.mail.data, (size_t)at.mail.bytes, 0, NULL);
        bp_free(at.mail.data);
        bp_err one = handle(self, kind, value);
        bool ends = (kind == REPORT_COMMIT || kind == REPORT_FINISH) &&
                    !json_is_true(json_object_get(value, "leftover"));

        json_decref(value);
        if (ends && one != BP_OK)
            err = one; /* the others have it too, and will send the end */
        else
            report_note_failure(self, kind, one);
        if (kind == REPORT_END)
            return err;
    }
}
