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

/* Windows overlap by a token: the last target of one is the first input of the next. Examples of
 * validation are those of a step 0. */
static bp_err read_piece(trainer *self, const piece *p, const bp_example_maker *maker)
{
    bp_err err = BP_OK;

    for (int64_t w = 0; w < p->windows && err == BP_OK; w++) {
        int64_t first = p->first + w * p->T;

        err = bp_stream_read(self->valid_stream, first, p->T + 1, self->window);
        if (err == BP_OK)
            bp_example_make(maker, self->window, 0, first / self->shape.context, self->examples,
                            p->windows, w);
    }
    return err;
}

#define READ_FAILED (-1) /* instead of the first input: no id is negative */

/* The pieces of this data rank. The lead reads and tells its group, a failed read too; no stage
 * waits for a later one. */
static bp_err run_pieces(trainer *self, int64_t pieces, int64_t whole, double *sums, double *counts)
{
    const bp_mesh *mesh = self->mesh;
    const bp_objective *objective = self->shape.family->objective;
    bp_err err = BP_OK;

    for (int64_t k = mesh->data_at; k < pieces; k += mesh->datas) {
        piece p = piece_at(self, k, whole);
        bp_example_maker maker = trainer_maker(self, p.T);
        double loss[BP_TERMS];
        int64_t count[BP_TERMS];
        int32_t *first = self->examples;

        /* A coordinator of more than this training looks at its scheduler here: those that ask for
         * work do not wait for a whole validation. To stop is left to the step's end. */
        (void)bp_signals_stop_asked();
        bp_heartbeat_progress();
        if (self->leads)
            err = read_piece(self, &p, &maker);
        if (err != BP_OK)
            *first = READ_FAILED;
        bp_bcast_bytes(self->examples, (int64_t)bp_batch_bytes(&maker.form, p.windows), 0,
                       mesh->model);
        if (*first == READ_FAILED)
            return err;
        bp_batch batch = bp_batch_over(&maker.form, p.windows, self->examples);
        bp_engine_evaluate(self->engine, &batch, loss, count);
        for (int t = 0; t < objective->terms; t++) {
            sums[t * pieces + k] = loss[t];
            counts[t * pieces + k] = (double)count[t];
        }
    }
    return BP_OK;
}

/* Sums in their order over counts; NaN: nothing was counted. */
static double mean_of(const double *sums, const double *counts, int64_t pieces)
{
    double total = 0, counted = 0;

    for (int64_t k = 0; k < pieces; k++) {
        total += sums[k];
        counted += counts[k];
    }
    return counted > 0 ? total / counted : NAN;
}

bp_err trainer_validate(trainer *self, double *loss)
{
    const bp_mesh *mesh = self->mesh;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_VALIDATE);
    int64_t whole, pieces = piece_count(self, &whole);
    const bp_objective *objective = self->shape.family->objective;
    int64_t values = objective->terms * pieces; /* [terms][pieces] sums, and as many counts */
    double *sums = bp_alloc("validation", 2 * values, sizeof *sums);

    BP_TRACE(BP_TRACE_VALIDATION, 0, 0);
    bp_err err = bp_agree(mesh->compute, run_pieces(self, pieces, whole, sums, sums + values));
    if (err == BP_OK) {
        bp_bcast_bytes(sums, 2 * values * (int64_t)sizeof *sums, mesh->pipelines - 1,
                       mesh->pipeline);
        bp_all_sum_double(sums, 2 * values, mesh->data);
        *loss = 0;
        for (int t = 0; t < objective->terms; t++)
            *loss += objective->weight[t] *
                     mean_of(sums + t * pieces, sums + values + t * pieces, pieces);
    }
    bp_free(sums);
    (void)bp_heartbeat_phase(before);
    return err;
}
