/* An ensemble of models that have no softmax over outcomes: values of texts, and positions in a
 * text where a span begins and ends. The members' outputs are combined unchanged, in member order
 * on each rank. Called by ensemble.c instead of ensemble_mix.c. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"

#include <math.h>

#define ENDS 2 /* where a span begins, where it ends */

typedef struct texts {
    const bp_model_batch *batch;
    int64_t count, stride; /* values of a member; of a statistic */
    float *values;         /* [members, filled up to whole rounds][count]: for each row, for spans
                              [windows][ENDS][length] */
    int32_t *targets;      /* [windows][length] for spans: both ends are requested */
    double *mixture;       /* [length] log p */
} texts;

bool ensemble_is_of_texts(const ensemble *self)
{
    return !bp_task_is_softmax(&self->model.info.task);
}

static bool finds_spans(const ensemble *self)
{
    return bp_task_kind_of(&self->model.info.task)->over_positions;
}

static void lay_out(const ensemble *self, texts *work, bp_arena *arena)
{
    int64_t slots = self->rounds * self->mesh->members;

    work->mixture = ensemble_take(arena, work->batch->length, sizeof *work->mixture);
    work->values = ensemble_take(arena, slots * work->count, sizeof *work->values);
    work->targets = ensemble_take(arena, work->stride, sizeof *work->targets);
}

/* ---- members ---- */

static bp_err run_members(ensemble *self, texts *work)
{
    const bp_mesh *mesh = self->mesh;
    bool spans = finds_spans(self);
    bp_model_batch asked = *work->batch;
    bp_err err = BP_OK;

    for (int64_t k = 0; spans && k < work->stride; k++)
        work->targets[k] = k % work->batch->length < ENDS ? 0 : -1;
    if (spans)
        asked.targets = work->targets;
    for (int64_t k = mesh->member_index; k < self->member_count && err == BP_OK;
         k += mesh->members) {
        const ensemble_backbone *backbone = &self->backbones[self->members[k].backbone];

        err = backbone->model->ops->distribution(backbone->model, &asked, backbone->pass,
                                                 work->values + k * work->count, NULL);
    }
    return bp_comm_size(mesh->replica) > 1 ? bp_agree(mesh->replica, err) : err;
}

static void share(const ensemble *self, const texts *work)
{
    int64_t A = self->mesh->members;
    int bytes = bp_mpi_count(work->count * (int64_t)sizeof *work->values);

    for (int64_t round = 0; A > 1 && round < self->rounds; round++)
        BP_MPI_WAIT("all_gather", MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                                                work->values + round * A * work->count, bytes,
                                                MPI_BYTE, self->mesh->across));
}

/* ---- values ---- */

static double value_of(const texts *work, int64_t member, int64_t k)
{
    return (double)work->values[member * work->count + k];
}

/* For value k: the members' values (values may be NULL), their mean, and their variance. */
static double take_members(const ensemble *self, const texts *work, int64_t k, float *values,
                           double *variance)
{
    double mean = 0, squares = 0, M = (double)self->member_count;

    for (int64_t m = 0; m < self->member_count; m++) {
        mean += value_of(work, m, k);
        if (values)
            values[(bp_model_first_member(&self->model.info) + m) * work->stride] =
                (float)value_of(work, m, k);
    }
    mean /= M;
    for (int64_t m = 0; m < self->member_count; m++)
        squares += (value_of(work, m, k) - mean) * (value_of(work, m, k) - mean);
    *variance = squares / M;
    return mean;
}

/* For a text: the mean of the members' values, and their variance. */
static void mix_values(const ensemble *self, const texts *work, float *log_p, float *values)
{
    for (int64_t k = 0, row = 0; k < work->stride; k++) {
        double variance, mean;

        if (work->batch->targets[k] < 0)
            continue;
        mean = take_members(self, work, row, values ? values + k : NULL, &variance);
        if (log_p)
            log_p[row] = (float)mean;
        if (values) {
            values[BP_MODEL_LOGPROB * work->stride + k] = (float)mean;
            values[BP_MODEL_LOGPROB_VARIANCE * work->stride + k] = (float)variance;
        }
        row++;
    }
}

/* The figures of the place where a span of one window begins, or ends. */
typedef struct place_mixture {
    double entropy, information, squares, most; /* most: the largest log p */
    int64_t top, agreeing;
} place_mixture;

static double mean_logprob(const ensemble *self, const texts *work, int64_t k)
{
    double most = -INFINITY, sum = 0;

    for (int64_t m = 0; m < self->member_count; m++)
        most = fmax(most, value_of(work, m, k));
    for (int64_t m = 0; m < self->member_count && most > -INFINITY; m++)
        sum += exp(value_of(work, m, k) - most);
    return sum > 0 ? most + log(sum / (double)self->member_count) : -INFINITY;
}

/* For the positions of the window whose values begin at `first`. */
static place_mixture mix_positions(const ensemble *self, const texts *work, int64_t first)
{
    place_mixture out = {.most = -INFINITY};
    int64_t T = work->batch->length;
    double M = (double)self->member_count;

    for (int64_t t = 0; t < T; t++) {
        double logprob = work->mixture[t] = mean_logprob(self, work, first + t);

        out.squares += exp(2 * logprob);
        if (logprob > out.most) {
            out.most = logprob;
            out.top = t;
        }
    }
    for (int64_t m = 0; m < self->member_count; m++) {
        int64_t top = 0;

        for (int64_t t = 0; t < T; t++) {
            double logprob = value_of(work, m, first + t), p = exp(logprob);

            if (p == 0) /* padding */
                continue;
            out.entropy -= p * logprob / M;
            out.information += p * (logprob - work->mixture[t]) / M;
            if (logprob > value_of(work, m, first + top))
                top = t;
        }
        out.agreeing += top == out.top;
    }
    out.information = fmax(out.information, 0);
    return out;
}

/* The statistics of a place at another temperature, as of a row (ensemble_temperature.c). */
static void fill_tempered_place(const ensemble *self, const texts *work, double most,
                                double logprob, float *values)
{
    double sums[ENSEMBLE_POWERS] = {0};

    for (int64_t t = 0; t < work->batch->length; t++) {
        double power = exp(self->beta * (work->mixture[t] - most));

        sums[0] += power;
        sums[1] += power * power;
    }
    ensemble_fill_tempered(values + bp_model_first_tempered(&self->model.info) * work->stride,
                           work->stride, self->beta, most, logprob, sums);
}

static void fill_place(const ensemble *self, const texts *work, const place_mixture *mixed,
                       int64_t k, int64_t t, float *values)
{
    double logprob = work->mixture[t], p = exp(logprob), variance;
    int64_t stride = work->stride;

    (void)take_members(self, work, k, values, &variance);
    values[BP_MODEL_LOGPROB * stride] = (float)logprob;
    values[BP_MODEL_EXPECTED_ENTROPY * stride] = (float)mixed->entropy;
    values[BP_MODEL_MUTUAL_INFORMATION * stride] = (float)mixed->information;
    values[BP_MODEL_TOTAL_ENTROPY * stride] = (float)(mixed->entropy + mixed->information);
    values[BP_MODEL_LOGPROB_VARIANCE * stride] = (float)variance;
    values[BP_MODEL_AGREEMENT * stride] =
        (float)((double)mixed->agreeing / (double)self->member_count);
    values[BP_MODEL_CONFIDENCE * stride] = (float)exp(mixed->most);
    values[BP_MODEL_CORRECT * stride] = mixed->top == t ? 1.0F : 0.0F;
    values[BP_MODEL_BRIER * stride] = (float)(mixed->squares - p * p + (1 - p) * (1 - p));
    if (self->model.info.tempered)
        fill_tempered_place(self, work, mixed->most, logprob, values);
}

/* End `end` of window w is the target of that place; *log_p is the next row's. */
static void mix_end(const ensemble *self, const texts *work, int64_t w, int64_t end, float **log_p,
                    float *values)
{
    int64_t T = work->batch->length, first = (w * ENDS + end) * T,
            target = work->batch->targets[w * T + end];
    place_mixture mixed;

    if (target < 0)
        return;
    mixed = mix_positions(self, work, first);
    for (int64_t t = 0; *log_p && t < T; t++)
        *(*log_p)++ = (float)work->mixture[t];
    if (values)
        fill_place(self, work, &mixed, first + target, target, values + w * T + end);
}

/* Members' outputs for a batch, on all ranks. */
static bp_err gather_texts(ensemble *self, const bp_model_batch *batch, texts *work)
{
    bool spans = finds_spans(self);
    int64_t positions = batch->windows * batch->length;
    bp_arena arena = {0};
    bp_err err;

    *work = (texts){.batch = batch,
                    .count = spans ? positions * ENDS : bp_model_batch_rows(batch),
                    .stride = positions};
    lay_out(self, work, &arena);
    err = ensemble_reserve(self, &arena);
    if (err != BP_OK)
        return err;
    lay_out(self, work, &arena);
    err = run_members(self, work);
    if (err == BP_OK)
        share(self, work);
    return err;
}

bp_err ensemble_run_texts(ensemble *self, const bp_model_batch *batch, float *log_p, float *values)
{
    texts work;
    bp_err err = gather_texts(self, batch, &work);

    if (err != BP_OK)
        return err;
    for (int64_t k = 0; values && k < self->model.info.statistics * work.stride; k++)
        values[k] = NAN;
    if (!finds_spans(self))
        mix_values(self, &work, log_p, values);
    else
        for (int64_t k = 0; k < batch->windows * ENDS; k++)
            mix_end(self, &work, k / ENDS, k % ENDS, &log_p, values);
    return BP_OK;
}

/* ---- temperature ---- */

/* Add a place to bp_scaled_sums, among those with a mixture. */
static void add_scaled(const texts *work, int64_t place, bp_scaled_sums *sums)
{
    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++) {
        double b = bp_scaled_beta(k), most = work->mixture[0], power = 0, mean = 0, square = 0;

        for (int64_t t = 1; t < work->batch->length; t++)
            most = fmax(most, work->mixture[t]);
        for (int64_t t = 0; t < work->batch->length; t++) {
            double logprob = work->mixture[t], p = exp(b * (logprob - most));

            if (p == 0) /* padding */
                continue;
            power += p;
            mean += p * logprob;
            square += p * logprob * logprob;
        }
        mean /= power;
        sums->value[k] += b * most + log(power) - b * work->mixture[place];
        sums->first[k] += mean - work->mixture[place];
        sums->second[k] += square / power - mean * mean;
    }
    sums->tokens++;
}

bp_err ensemble_add_scaled_spans(ensemble *self, const bp_model_batch *batch, bp_scaled_sums *sums)
{
    texts work;
    bp_err err = gather_texts(self, batch, &work);

    for (int64_t k = 0; k < batch->windows * ENDS && err == BP_OK; k++) {
        int32_t target = batch->targets[k / ENDS * batch->length + k % ENDS];

        if (target < 0)
            continue;
        (void)mix_positions(self, &work, k * batch->length);
        add_scaled(&work, target, sums);
    }
    return err;
}
