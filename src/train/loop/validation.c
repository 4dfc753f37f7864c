/* Validation: the loss over all windows of the valid stream, the tail as a shorter one, or over all
 * documents (or runs of sentences) in order, without dropout. Batches are dealt to data ranks in
 * turn and their sums added in order, so that the loss has the same bits at any number of data
 * ranks. A model that carries a state reads the stream in batch slots, as in training, each from
 * zeros on and in order. Called by steps.c when a validation is due. */
#include "train/loop/validation.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "base/trace.h"
#include "mesh/collective.h"
#include "statistics/task_metrics.h"
#include "train/loop/examples.h"
#include "train/loop/valid_pieces.h"

#include <math.h>

#define READ_FAILED (-1) /* instead of the first input: no id is negative */

/* For a task: documents or words that are right; and entities, if its tags have any. */
enum { RIGHT, ENTITIES, ENTITIES_PREDICTED, ENTITIES_RIGHT, RIGHTS };

/* Does the task predict one of several outcomes: the first of the most probable ones, as in
 * `score`? */
static bool predicts(const trainer *self)
{
    return bp_task_kind_of(&self->shape.task)->has_names;
}

static const char *outcome(const trainer *self, int64_t k)
{
    return json_string_value(json_array_get(self->outcome_names, (size_t)k));
}

static bool has_entities(const trainer *self)
{
    for (size_t k = 0;
         bp_task_kind_of(&self->shape.task)->at_words && k < json_array_size(self->outcome_names);
         k++) {
        const char *name = outcome(self, (int64_t)k);

        if (bp_tags_have_entities(&name, 1))
            return true;
    }
    return false;
}

/* Counts of the examples of a batch, from the outcomes that are predicted. */
static void count_entities(const trainer *self, const bp_batch *batch, const int32_t *predicted,
                           double *rights)
{
    int64_t T = batch->term[0].count;
    const char **tags = bp_alloc("validation", 2 * T, sizeof *tags);

    for (int64_t b = 0; b < batch->B; b++) {
        const int32_t *targets = batch->term[0].targets + b * T;
        int64_t words = 0;

        for (int64_t t = 0; t < T; t++)
            if (targets[t] >= 0) {
                tags[words] = outcome(self, targets[t]);
                tags[T + words++] = outcome(self, predicted[b * T + t]);
            }
        bp_entity_counts counts = bp_entities_compare(tags, tags + T, words);
        rights[ENTITIES] += (double)counts.labelled;
        rights[ENTITIES_PREDICTED] += (double)counts.predicted;
        rights[ENTITIES_RIGHT] += (double)counts.right;
    }
    bp_free(tags);
}

static int64_t count_right(const bp_batch *batch, const int32_t *predicted)
{
    const int32_t *targets = batch->term[0].targets;
    int64_t right = 0;

    for (int64_t k = 0; k < batch->B * batch->term[0].count; k++)
        right += targets[k] >= 0 && predicted[k] == targets[k];
    return right;
}

static void evaluate_by_learner(trainer *self, const bp_batch *batch, const valid_piece *p,
                                double loss[BP_TERMS], int64_t count[BP_TERMS])
{
    bp_learner_loss one;

    trainer_learner(self)->run(self->learner, batch, &(bp_learner_pass){.first_slot = p->slot},
                               &one);
    loss[0] = one.sum;
    count[0] = one.count;
}

static void evaluate(trainer *self, const bp_batch *batch, const valid_piece *p, bool resumes,
                     double loss[BP_TERMS], int64_t count[BP_TERMS], double *rights)
{
    int64_t right = 0;
    int32_t *predicted = NULL;

    if (self->learner) {
        evaluate_by_learner(self, batch, p, loss, count);
        return;
    }
    if (predicts(self))
        predicted = bp_alloc("validation", batch->B * batch->term[0].count, sizeof *predicted);
    bp_engine_evaluate(self->engine,
                       &(bp_evaluation){.batch = batch,
                                        .first_window = p->place,
                                        .resumes = resumes,
                                        .right = &right,
                                        .predicted = predicted},
                       loss, count);
    if (predicted && count[0] > 0) { /* on the last stage */
        right = count_right(batch, predicted);
        if (has_entities(self))
            count_entities(self, batch, predicted, rights);
    }
    rights[RIGHT] += (double)right;
    bp_free(predicted);
}

/* The state of a validation. */
typedef struct validating {
    valid_layout all;
    int64_t pieces;        /* groups x rounds */
    double *sums, *counts; /* [terms][pieces] */
    double *rights;        /* [RIGHTS] */
} validating;

/* Data ranks that run pieces side by side. A learner's ranks run all pieces together. */
static int64_t ranks_of(const trainer *self)
{
    return self->learner ? 1 : self->mesh->data_ranks;
}

/* Do ranks pass through layers together, because their experts are on different ranks? */
static bool goes_together(const trainer *self)
{
    return self->learner || self->mesh->expert_ranks > 1;
}

/* The lead reads and sends its group, a failed read too; no stage waits for a later one. */
static bp_err share_piece(trainer *self, const validating *v, const valid_piece *p,
                          const bp_example_maker *maker)
{
    int32_t *first = self->examples.buffer;
    bp_err err = BP_OK;

    if (self->data.leads)
        err = valid_piece_read(self, &v->all, p, maker);
    if (goes_together(self))
        err = bp_agree(self->mesh->compute, err);
    if (err != BP_OK)
        *first = READ_FAILED;
    bp_bcast_bytes(self->examples.buffer, (int64_t)bp_batch_bytes(&maker->form, p->windows), 0,
                   self->mesh->model);
    return err;
}

static bool has_failed(const trainer *self)
{
    return *(const int32_t *)self->examples.buffer == READ_FAILED;
}

/* With corpus.bucket it is shortened, as a micro-batch of its own. */
static bp_batch batch_of(const trainer *self, const valid_piece *p, const bp_example_maker *maker)
{
    bp_batch batch = bp_batch_over(&maker->form, p->windows, self->examples.buffer);
    int64_t positions[2] = {0};

    if (!self->examples.fits)
        return batch;
    batch = bp_batch_shorten(&maker->form, &batch, p->windows, self->examples.buffer,
                             self->examples.fits, positions);
    return bp_batch_part(&batch, 0, p->windows);
}

/* k -1: results are discarded. */
static void run_piece(trainer *self, validating *v, int64_t k, const valid_piece *p,
                      const bp_example_maker *maker)
{
    bp_batch batch = batch_of(self, p, maker);
    double loss[BP_TERMS], unused[RIGHTS] = {0};
    int64_t count[BP_TERMS];

    evaluate(self, &batch, p, v->all.carries && p->round > 0, loss, count,
             k >= 0 ? v->rights : unused);
    for (int t = 0; k >= 0 && t < bp_model_objective(&self->shape)->terms; t++) {
        v->sums[t * v->pieces + k] = loss[t];
        v->counts[t * v->pieces + k] = (double)count[t];
    }
}

/* A data rank without a piece runs the first one along if others have pieces and share experts with
 * it. */
static valid_piece piece_at(const trainer *self, const validating *v, int64_t k, bool *counts)
{
    valid_piece p = {0};

    if (k < v->pieces)
        p = valid_piece_at(self, &v->all, k);
    *counts = p.windows > 0;
    return *counts || self->mesh->expert_ranks == 1 ? p : valid_piece_at(self, &v->all, 0);
}

static bp_err run_pieces(trainer *self, validating *v)
{
    int64_t ranks = ranks_of(self), own = self->learner ? 0 : self->mesh->data_rank,
            turns = (v->all.groups + ranks - 1) / ranks * v->all.rounds;

    for (int64_t turn = 0; turn < turns; turn++) {
        int64_t k = (turn / v->all.rounds * ranks + own) * v->all.rounds + turn % v->all.rounds;
        bool counts;
        valid_piece p = piece_at(self, v, k, &counts);
        bp_example_maker maker;

        if (p.windows == 0)
            continue;
        /* The coordinator of an ensemble polls its scheduler here: those that ask for work do not
         * wait for a whole validation. To stop is left to the step's end. */
        (void)bp_signals_stop_asked();
        bp_heartbeat_progress();
        maker = trainer_maker(self, p.T);
        bp_err err = share_piece(self, v, &p, &maker);
        if (has_failed(self))
            return err;
        run_piece(self, v, counts ? k : -1, &p, &maker);
    }
    return BP_OK;
}

static double sum_of(const double *values, int64_t count)
{
    double sum = 0;

    for (int64_t k = 0; k < count; k++)
        sum += values[k];
    return sum;
}

/* The mean of each term that something was asked for, its sums added in their order, and their
 * weighted sum; NaN: nothing was counted. */
static void find_means(const trainer *self, const validating *v, validation *out)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    bool any = false;

    out->loss = 0;
    for (int t = 0; t < objective->terms; t++) {
        double counted = sum_of(v->counts + t * v->pieces, v->pieces);

        out->term[t] = sum_of(v->sums + t * v->pieces, v->pieces) / counted;
        out->asked[t] = counted > 0;
        if (out->asked[t])
            out->loss += bp_model_term_weight(&self->shape, t) * out->term[t];
        any = any || out->asked[t];
    }
    if (!any)
        out->loss = NAN;
}

/* For a task. */
static void find_rights(const trainer *self, const validating *v, validation *out)
{
    double counted = sum_of(v->counts, v->pieces);
    double both = v->rights[ENTITIES] + v->rights[ENTITIES_PREDICTED];

    out->accuracy = predicts(self) && counted > 0 ? v->rights[RIGHT] / counted : NAN;
    out->f1 = !has_entities(self) ? NAN : both > 0 ? 2 * v->rights[ENTITIES_RIGHT] / both : 0;
}

bp_err bp_trainer_validate(trainer *self, validation *out)
{
    const bp_mesh *mesh = self->mesh;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_VALIDATE);
    validating v = {.all = valid_layout_of(self)};
    int64_t values, all_values;
    bp_err err;

    BP_TRACE(BP_TRACE_VALIDATION, 0, 0);
    v.pieces = v.all.groups * v.all.rounds;
    values = bp_model_objective(&self->shape)->terms * v.pieces;
    all_values = 2 * values + RIGHTS;
    v.sums = bp_alloc("validation", all_values, sizeof *v.sums);
    v.counts = v.sums + values;
    v.rights = v.counts + values;
    err = bp_agree(mesh->compute, run_pieces(self, &v));
    if (err == BP_OK) {
        bp_all_sum_double(v.sums, all_values, mesh->pipeline); /* a term's head is on one stage */
        if (!self->learner)
            bp_all_sum_double(v.sums, all_values, mesh->data);
        find_means(self, &v, out);
        find_rights(self, &v, out);
    }
    bp_free(v.sums);
    (void)bp_heartbeat_phase(before);
    return err;
}
