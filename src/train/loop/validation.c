/* Validation: the loss over all windows of the valid stream, the tail as a shorter one, without
 * dropout. Batches are dealt to data ranks in turn and their sums added in order, so that the loss
 * has the same bits at any number of data ranks. */
#include "train/loop/trainer_priv.h"

#include "base/heartbeat.h"
#include "base/signals.h"
#include "base/trace.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

/* Batch k of the stream: whole windows, micro_batch at a time, then the tail. */
typedef struct piece {
    int64_t first, windows, T;
} piece;

static int64_t piece_count(const trainer *self, int64_t *whole)
{
    int64_t T = self->shape.context,
            predictions = self->facts.valid_tokens > 0 ? self->facts.valid_tokens - 1 : 0;

    *whole = predictions / T;
    int64_t batches = (*whole + self->spec.micro_batch - 1) / self->spec.micro_batch;
    return batches + (predictions % T > 0);
}

static piece piece_at(const trainer *self, int64_t k, int64_t whole)
{
    int64_t T = self->shape.context, each = self->spec.micro_batch, first = k * each;

    if (first >= whole)
        return (piece){
            .first = whole * T, .windows = 1, .T = self->facts.valid_tokens - 1 - whole * T};
    return (piece){
        .first = first * T, .windows = first + each <= whole ? each : whole - first, .T = T};
}

/* Windows overlap by a token: the last target of one is the first input of the next. */
static bp_err read_piece(trainer *self, const piece *p, int32_t *windows)
{
    bp_err err = BP_OK;

    for (int64_t w = 0; w < p->windows && err == BP_OK; w++)
        err = bp_stream_read(self->valid_stream, p->first + w * p->T, p->T + 1,
                             windows + w * (p->T + 1));
    return err;
}

#define READ_FAILED (-1) /* instead of the first token: no id is negative */

/* The pieces of this data rank. The lead reads and tells its group, a failed read too; no stage
 * waits for a later one. */
static bp_err run_pieces(trainer *self, int64_t pieces, int64_t whole, double *sums, double *counts)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    for (int64_t k = mesh->data_at; k < pieces; k += mesh->datas) {
        piece p = piece_at(self, k, whole);
        int64_t count = 0;

        /* A coordinator of more than this training looks at its scheduler here: those that ask for
         * work do not wait for a whole validation. To stop is left to the step's end. */
        (void)bp_signals_stop_asked();
        bp_heartbeat_progress();
        if (self->leads)
            err = read_piece(self, &p, self->windows);
        if (err != BP_OK)
            self->windows[0] = READ_FAILED;
        bp_bcast_bytes(self->windows, p.windows * (p.T + 1) * (int64_t)sizeof(int32_t), 0,
                       mesh->model);
        if (self->windows[0] == READ_FAILED)
            return err;
        bp_engine_evaluate(self->engine, self->windows, p.windows, p.T, &sums[k], &count);
        counts[k] = (double)count;
    }
    return BP_OK;
}

static bp_err validate(trainer *self, double *loss)
{
    const bp_mesh *mesh = self->mesh;
    int64_t whole, pieces = piece_count(self, &whole);
    double *sums = bp_try_alloc("validation", 2 * pieces, sizeof *sums), total = 0, counted = 0;
    bp_err err = sums
                     ? BP_OK
                     : BP_FAIL(BP_ERR_SYSTEM,
                               "memory is short: at the validation's sums; use fewer ranks a node");

    err = bp_agree(mesh->compute, err);
    if (err == BP_OK)
        err = bp_agree(mesh->compute, run_pieces(self, pieces, whole, sums, sums + pieces));
    if (err == BP_OK) {
        bp_bcast_bytes(sums, 2 * pieces * (int64_t)sizeof *sums, mesh->pipelines - 1,
                       mesh->pipeline);
        bp_all_sum_double(sums, 2 * pieces, mesh->data);
        for (int64_t k = 0; k < pieces; k++) {
            total += sums[k];
            counted += sums[pieces + k];
        }
        *loss = counted > 0 ? total / counted : NAN;
    }
    bp_free(sums);
    return err;
}

bp_err trainer_validate(trainer *self, double *loss)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_VALIDATE);

    BP_TRACE(BP_TRACE_VALIDATION, 0, 0);
    bp_err err = validate(self, loss);
    (void)bp_heartbeat_phase(before);
    return err;
}
