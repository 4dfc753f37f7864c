/* Validation: the loss over all windows of the valid stream, the tail as a shorter one, or over all
 * documents (or runs of sentences) in order, without dropout. Batches are dealt to data ranks in
 * turn and their sums added in order, so that the loss has the same bits at any number of data
 * ranks. A model that carries a state reads the stream in batch slots, as in training, each from
 * zeros on and in order. */
#include "train/loop/trainer.h"

#include "base/fault.h"
#include "base/heartbeat.h"
#include "base/signals.h"
#include "base/trace.h"
#include "mesh/collective.h"
#include "statistics/task_metrics.h"

#include <math.h>
#include <string.h>

/* How the stream is read: slots have as many whole windows, but for one more of the first ones, and
 * micro_batch of them go side by side. Where nothing is carried a slot is a window. The tail goes
 * on from the last slot. */
typedef struct layout {
    int64_t whole, slots;
    int64_t groups, rounds; /* piece k: group k / rounds, its window k % rounds */
    int64_t tail;           /* tokens of the stream that the last example goes by */
    bool carries;
} layout;

static layout layout_of(const trainer *self)
{
    bool of_windows = self->maker.feed == BP_FEED_WINDOWS;
    int64_t stride = of_windows ? trainer_stride(self) : 1, each = self->spec.micro_batch,
            batch = self->spec.batch,
            predictions = self->facts.valid_tokens > 0 ? self->facts.valid_tokens - 1 : 0;
    layout out = {.whole = of_windows ? predictions / stride : self->facts.valid_documents,
                  .tail = of_windows ? predictions % stride : 0,
                  .carries = of_windows && self->shape.family->carries_state};

    out.slots = out.carries && batch < out.whole ? batch : out.whole;
    out.groups = out.slots > 0 ? (out.slots + each - 1) / each : 1;
    out.rounds = out.slots > 0 ? (out.whole + out.slots - 1) / out.slots : 0;
    out.rounds += out.tail > 0;
    return out;
}

/* Windows of one length; the first is of slot `slot`, and of place `place` in its group. */
typedef struct piece {
    int64_t slot, place, round, windows, T;
} piece;

static int64_t slot_windows(const layout *all, int64_t slot)
{
    return all->whole / all->slots + (slot < all->whole % all->slots);
}

/* The first window of a slot. */
static int64_t slot_first(const layout *all, int64_t slot)
{
    int64_t longer = all->whole % all->slots;

    return slot * (all->whole / all->slots) + (slot < longer ? slot : longer);
}

/* Without windows where all slots of the group have ended, and there is no tail. */
static piece piece_at(const trainer *self, const layout *all, int64_t k)
{
    int64_t each = self->spec.micro_batch, group = k / all->rounds, first = group * each;
    piece out = {.slot = first, .round = k % all->rounds, .T = self->shape.context};

    while (out.windows < each && first + out.windows < all->slots &&
           slot_windows(all, first + out.windows) > out.round)
        out.windows++;
    if (out.windows == 0 && group == all->groups - 1 && out.round == all->rounds - 1 &&
        all->tail > 0) {
        out.windows = 1;
        out.T = all->tail + self->shape.context - trainer_stride(self); /* with what frames it */
        out.slot = all->slots > 0 ? all->slots - 1 : 0;
        out.place = out.slot - (all->slots > 0 ? first : 0);
    }
    return out;
}

/* Where window w of a piece begins. */
static int64_t token_of(const trainer *self, const layout *all, const piece *p, int64_t w)
{
    int64_t stride = trainer_stride(self);

    return p->T < self->shape.context ? all->whole * stride
                                      : (slot_first(all, p->slot + w) + p->round) * stride;
}

/* A run of another document, the same whenever it is asked for. */
static bp_err read_other(trainer *self, int64_t entry, const bp_document **out)
{
    bp_rng_key key = bp_rng_key_of(self->spec.seed, BP_RNG_PAIR, 0, 0, entry);
    int64_t other =
        bp_document_table_other(self->valid_table, entry, 0, self->facts.valid_documents, &key);

    return other >= 0 ? bp_document_table_read(self->valid_table, other, NULL, out) : BP_OK;
}

static bp_err read_documents(trainer *self, const layout *all, const piece *p,
                             const bp_example_maker *maker)
{
    bp_err err = BP_OK;

    for (int64_t w = 0; w < p->windows && err == BP_OK; w++) {
        int64_t entry = slot_first(all, p->slot + w);
        const bp_document *document;

        const bp_document *other = NULL;

        if (maker->feed == BP_FEED_RUNS)
            err = read_other(self, entry, &other);
        if (err == BP_OK)
            err = bp_document_table_read(self->valid_table, entry, other, &document);
        if (err == BP_OK)
            bp_example_make_document(maker, document, 0, entry, self->examples, p->windows, w);
    }
    return err;
}

/* Windows overlap by a token: of a causal model the last target of one is the first input of the
 * next. Examples of validation are those of a step 0. */
static bp_err read_piece(trainer *self, const layout *all, const piece *p,
                         const bp_example_maker *maker)
{
    bp_err err = BP_OK;

    if (maker->feed != BP_FEED_WINDOWS)
        return read_documents(self, all, p, maker);
    for (int64_t w = 0; w < p->windows && err == BP_OK; w++) {
        int64_t first = token_of(self, all, p, w);

        err = bp_stream_read(self->valid_stream, first, maker->window, self->window);
        if (err == BP_OK && bp_fault("train.read_valid"))
            err = BP_FAIL(BP_ERR_IO, "fault.injected", "a fault was injected: at token %lld",
                          (long long)first);
        if (err == BP_OK)
            bp_example_make(maker, self->window, 0, first / trainer_stride(self), self->examples,
                            p->windows, w);
    }
    return err;
}

#define READ_FAILED (-1) /* instead of the first input: no id is negative */

/* Of a task: documents or words that are right; and entities, where its tags have any. */
enum { RIGHT, ENTITIES, ENTITIES_PREDICTED, ENTITIES_RIGHT, RIGHTS };

/* Is one of several outcomes predicted, the first of the most probable ones, as `score` has it? */
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

/* Of the examples of a batch, from the outcomes that are predicted. */
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

static void evaluate(trainer *self, const bp_batch *batch, const piece *p, bool resumes,
                     double loss[BP_TERMS], int64_t count[BP_TERMS], double *rights)
{
    bp_learner_loss one;
    int64_t right = 0;
    int32_t *predicted = NULL;

    if (!self->learner) {
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
        return;
    }
    trainer_learner(self)->run(self->learner, batch, &(bp_learner_pass){.first_slot = p->slot},
                               &one);
    loss[0] = one.sum;
    count[0] = one.count;
}

/* The pieces of this data rank; of a learner all of them, on each. The lead reads and sends its
 * group, a failed read too; no stage waits for a later one. */
static bp_err run_pieces(trainer *self, const layout *all, double *sums, double *counts,
                         double *rights)
{
    const bp_mesh *mesh = self->mesh;
    const bp_objective *objective = bp_model_objective(&self->shape);
    int64_t pieces = all->groups * all->rounds;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < pieces; k++) {
        piece p = piece_at(self, all, k);

        if ((!self->learner && k / all->rounds % mesh->datas != mesh->data_at) || p.windows == 0)
            continue;
        bp_example_maker maker = trainer_maker(self, p.T);
        double loss[BP_TERMS];
        int64_t count[BP_TERMS];
        int32_t *first = self->examples;

        /* A coordinator of more than this training looks at its scheduler here: those that ask for
         * work do not wait for a whole validation. To stop is left to the step's end. */
        (void)bp_signals_stop_asked();
        bp_heartbeat_progress();
        if (self->leads)
            err = read_piece(self, all, &p, &maker);
        if (self->learner) /* which all ranks run together */
            err = bp_agree(mesh->compute, err);
        if (err != BP_OK)
            *first = READ_FAILED;
        bp_bcast_bytes(self->examples, (int64_t)bp_batch_bytes(&maker.form, p.windows), 0,
                       mesh->model);
        if (*first == READ_FAILED)
            return err;
        bp_batch batch = bp_batch_over(&maker.form, p.windows, self->examples);
        if (self->fits) { /* a micro-batch of its own */
            int64_t places[2] = {0};

            batch = bp_batch_shorten(&maker.form, &batch, p.windows, self->examples, self->fits,
                                     places);
            batch = bp_batch_part(&batch, 0, p.windows);
        }
        evaluate(self, &batch, &p, all->carries && p.round > 0, loss, count, rights);
        for (int t = 0; t < objective->terms; t++) {
            sums[t * pieces + k] = loss[t];
            counts[t * pieces + k] = (double)count[t];
        }
    }
    return BP_OK;
}

/* Of each term that something was asked for weight times its mean: sums in their order over counts;
 * NaN: nothing was counted. */
static double mean_loss(trainer *self, const double *sums, const double *counts, int64_t pieces)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    double loss = 0;
    bool any = false;

    for (int t = 0; t < objective->terms; t++) {
        double total = 0, counted = 0;

        for (int64_t k = t * pieces; k < (t + 1) * pieces; k++) {
            total += sums[k];
            counted += counts[k];
        }
        self->valid_term[t] = total / counted;
        self->valid_asked[t] = counted > 0;
        if (counted > 0)
            loss += bp_model_term_weight(&self->shape, t) * self->valid_term[t];
        any = any || counted > 0;
    }
    return any ? loss : NAN;
}

/* Of documents whose class, or places whose tag, has the highest probability. */
static double share_right(const trainer *self, const double *counts, int64_t pieces, double right)
{
    double counted = 0;

    for (int64_t k = 0; k < pieces; k++)
        counted += counts[k];
    return predicts(self) && counted > 0 ? right / counted : NAN;
}

bp_err trainer_validate(trainer *self, double *loss)
{
    const bp_mesh *mesh = self->mesh;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_VALIDATE);
    layout all = layout_of(self);
    int64_t pieces = all.groups * all.rounds;
    const bp_objective *objective = bp_model_objective(&self->shape);
    int64_t values = objective->terms * pieces; /* [terms][pieces] sums, and as many counts */
    int64_t all_values = 2 * values + RIGHTS;
    double *sums = bp_alloc("validation", all_values, sizeof *sums), *rights = sums + 2 * values;

    BP_TRACE(BP_TRACE_VALIDATION, 0, 0);
    bp_err err = bp_agree(mesh->compute, run_pieces(self, &all, sums, sums + values, rights));
    if (err == BP_OK) {
        bp_all_sum_double(sums, all_values, mesh->pipeline); /* a term's head is on one stage */
        if (!self->learner)
            bp_all_sum_double(sums, all_values, mesh->data);
        *loss = mean_loss(self, sums, sums + values, pieces);
        self->valid_accuracy = share_right(self, sums + values, pieces, rights[RIGHT]);
        self->valid_f1 = NAN;
        if (has_entities(self)) {
            double both = rights[ENTITIES] + rights[ENTITIES_PREDICTED];

            self->valid_f1 = both > 0 ? 2 * rights[ENTITIES_RIGHT] / both : 0;
        }
    }
    bp_free(sums);
    (void)bp_heartbeat_phase(before);
    return err;
}
