/* The Kronecker factors of the last linear map's Hessian.
 *
 * First every copy of the model stores the states of its scored tokens. Then, in rounds of all
 * ranks, states and probabilities of some tokens of each copy are distributed over the grid and
 * added. So collectives over one copy and over all ranks never mix.
 *
 * Called by laplace.c. */
#include "uncertainty/methods/laplace/laplace_priv.h"

#include "base/mem.h"
#include "base/process/clock.h"
#include "infer/score/each.h"
#include "infer/score/score.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

#define ROUND_TOKENS 1024                /* of all ranks together, approximate */
#define ROUND_BYTES  ((int64_t)64 << 20) /* of one rank's probabilities, maximum */

/* ---- the states of scored tokens ---- */

typedef struct collector {
    const bp_mesh *mesh;
    bp_model *model;
    int64_t width;
    bool holds;                      /* this rank has states: the last pipeline stage */
    float *batch;                    /* states of a whole batch */
    int64_t batch_capacity;          /* tokens */
    float *states;                   /* [count][width] */
    int32_t *targets;                /* [count]: the target of each state */
    int64_t count, capacity, wanted; /* wanted: the most tokens of all copies together */
    int64_t seen;                    /* by this copy, on ranks without states too */
    double expected;                 /* tokens that all copies will find, approximate */
    laplace_course *course;
} collector;

static double copies_of(const bp_mesh *mesh)
{
    return (double)mesh->members * mesh->data_ranks;
}

static bp_err out_of_memory(int64_t tokens)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at the states of %lld tokens; use more ranks, or fewer "
                   "laplace.tokens",
                   (long long)tokens);
}

static bp_err reserve(float **values, int64_t needed, int64_t width)
{
    float *grown = bp_try_realloc("uncertainty.laplace", *values, needed * width, sizeof **values);

    if (!grown)
        return out_of_memory(needed);
    *values = grown;
    return BP_OK;
}

static bp_err reserve_states(collector *self, int64_t needed)
{
    bp_err err = reserve(&self->states, needed, self->width);
    int32_t *targets =
        bp_try_realloc("uncertainty.laplace", self->targets, needed, sizeof *self->targets);

    if (targets)
        self->targets = targets;
    if (err != BP_OK || !targets)
        return out_of_memory(needed);
    self->capacity = needed;
    return BP_OK;
}

/* Grow the buffers for a whole batch, and for the tokens kept from it. */
static bp_err reserve_batch(collector *self, int64_t tokens)
{
    int64_t needed = self->count + tokens, grown = self->capacity + self->capacity / 2;
    bp_err err = BP_OK;

    if (!self->holds)
        return BP_OK;
    if (grown > self->wanted)
        grown = self->wanted;
    if (tokens > self->batch_capacity) {
        err = reserve(&self->batch, tokens, self->width);
        self->batch_capacity = err == BP_OK ? tokens : self->batch_capacity;
    }
    if (err == BP_OK && needed > self->capacity)
        err = reserve_states(self, needed > grown ? needed : grown);
    return err;
}

static void keep_scored(collector *self, const bp_model_batch *batch)
{
    for (int64_t t = 0; t < batch->windows * batch->length; t++)
        if (batch->targets[t] >= 0) {
            memcpy(self->states + self->count * self->width, self->batch + t * self->width,
                   (size_t)self->width * sizeof(float));
            self->targets[self->count] = batch->targets[t];
            self->count++;
        }
}

/* Among this many windows, the number before the share of member k. Windows in pieces stay with
 * their member even when others have ended. */
static int64_t windows_before(const bp_mesh *mesh, const bp_model_batch *batch, int k)
{
    bool pieces = batch->resumes || batch->suspends;
    int64_t all = pieces ? BP_SCORE_BATCH_TOKENS / BP_SCORE_PIECE_INPUTS : batch->windows;
    int64_t before = all * k / mesh->members;

    return before < batch->windows ? before : batch->windows;
}

/* The windows of a batch are shared among the members, which are copies of one model here. */
static bp_model_batch own_windows(const bp_mesh *mesh, const bp_model_batch *batch)
{
    int64_t first = windows_before(mesh, batch, mesh->member_index);

    return bp_model_batch_part(batch, first,
                               windows_before(mesh, batch, mesh->member_index + 1) - first);
}

static bp_err poll_stop(void *context)
{
    const collector *self = context;

    return laplace_course_report(self->course,
                                 (double)self->seen * copies_of(self->mesh) / self->expected);
}

static bp_err collect_batch(void *context, int64_t unit, const bp_model_batch *whole)
{
    collector *self = context;
    bp_model_batch batch = own_windows(self->mesh, whole);
    bp_err err = poll_stop(self);

    (void)unit;
    if (err == BP_OK)
        err = reserve_batch(self, batch.windows * batch.length);
    err = bp_agree(self->mesh->replica, err);
    if (err == BP_OK && batch.windows > 0)
        err = self->model->ops->backbone(self->model, &batch, BP_MODEL_NO_DROPOUT, self->batch);
    err = bp_agree(self->mesh->replica, err);
    if (err == BP_OK && self->holds)
        keep_scored(self, &batch);
    for (int64_t t = 0; t < batch.windows * batch.length; t++)
        self->seen += batch.targets[t] >= 0;
    return err;
}

static bp_err collect(collector *self, const laplace_text *text, int64_t *scored)
{
    bp_score_each each = {.mesh = self->mesh,
                          .model = &self->model->info,
                          .corpus = text->corpus,
                          .path = text->path,
                          .tokens = text->tokens,
                          .batch = collect_batch,
                          .poll = poll_stop,
                          .context = self};
    static const bp_option *const tables[] = {bp_score_rule_options, NULL};
    bp_config *rule = NULL;
    bp_err err = bp_config_new(&rule, tables, tables);

    /* every token is a target, as in training: a document's first token after an end-of-document
     * token, and the end-of-document token at its end */
    if (err == BP_OK)
        err = bp_config_set(rule, "score.end", text->ends ? "yes" : "no");
    err = bp_agree(self->mesh->compute, err);
    each.config = rule;
    if (err == BP_OK)
        err = bp_score_each_batch(&each, scored);
    bp_config_free(&rule);
    bp_free(self->batch);
    self->batch = NULL;
    if (err == BP_OK && *scored == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "laplace.no_tokens",
                      "there is no token to score in %s; give another corpus", text->corpus);
    return err;
}

/* ---- sums over rounds ---- */

/* Tokens of a copy of the model in a round. */
static int64_t round_rows(int64_t copies, int64_t vocab_part)
{
    int64_t rows = (ROUND_TOKENS + copies - 1) / copies;
    int64_t most = ROUND_BYTES / (vocab_part * (int64_t)sizeof(double));

    return rows > most && most > 0 ? most : rows;
}

int64_t laplace_factors_bytes(int64_t tokens, const bp_mesh_shape *shape, int64_t vocab_size,
                              int64_t width)
{
    int64_t copies = (int64_t)shape->members * shape->data;
    int64_t ranks = copies * shape->pipeline * shape->tensor;
    int64_t part = (vocab_size + shape->tensor - 1) / shape->tensor;
    int64_t rows = round_rows(copies, part), reals = sizeof(double);
    int64_t kept = bp_distributed_bytes(vocab_size, vocab_size, (int)ranks) +
                   bp_distributed_bytes(width, width, (int)ranks) + vocab_size * reals;
    int64_t round = rows * (part + width) * (reals + (int64_t)sizeof(float)) +
                    bp_distributed_bytes(rows * copies, vocab_size, (int)ranks) +
                    bp_distributed_bytes(rows * copies, width, (int)ranks);

    int64_t batch = tokens < BP_SCORE_BATCH_TOKENS ? tokens : BP_SCORE_BATCH_TOKENS;
    /* copies do not get equal shares, and buffers grow by half (reserve_batch) */
    int64_t states = (tokens + copies - 1) / copies * 3 / 2 + batch;

    states = states < tokens ? states : tokens;
    return kept + round + (states * (width + 1) + batch * width) * (int64_t)sizeof(float);
}

/* One rank's part of a round's tokens, and the sums to which they are added. */
typedef struct rounds {
    const collector *from;
    laplace_factors *factors;
    int64_t rows;                     /* of a copy in a round */
    int64_t count;                    /* rounds */
    int64_t vocab_first, vocab_count; /* of this rank */
    bp_placement *states_place, *rows_place;
    bp_distributed *states, *rows_all; /* of a round, over the grid */
    double *state_rows;                /* [rows][C] */
    double *probabilities;             /* [rows][vocab_count] */
    float *logits;                     /* [rows][vocab_count] */
    double *sums;                      /* [V]: of probabilities, of this rank's part */
    double log_likelihood;             /* of the targets in this rank's part of the vocabulary */
} rounds;

/* log p(target) of one row. */
static double target_log(const rounds *self, int64_t row, int32_t target, float most, double sum)
{
    int64_t v = target - self->vocab_first;

    if (v < 0 || v >= self->vocab_count)
        return 0; /* it is on another tensor rank */
    return (double)self->logits[row * self->vocab_count + v] - (double)most - log(sum);
}

/* p = softmax of each row of logits, whose columns are divided over tensor ranks. */
static void take_softmax(rounds *self, const int32_t *targets, int64_t count)
{
    const bp_mesh *mesh = self->from->mesh;
    int64_t columns = self->vocab_count;
    float *most = bp_alloc("uncertainty.laplace", count, sizeof *most);
    double *sum = bp_alloc("uncertainty.laplace", count, sizeof *sum);

    for (int64_t r = 0; r < count; r++) {
        most[r] = -INFINITY;
        for (int64_t v = 0; v < columns; v++)
            most[r] = fmaxf(most[r], self->logits[r * columns + v]);
    }
    bp_all_max(most, count, mesh->tensor);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < count; r++)
        for (int64_t v = 0; v < columns; v++) {
            double e = exp((double)self->logits[r * columns + v] - (double)most[r]);
            self->probabilities[r * columns + v] = e;
            sum[r] += e;
        }
    bp_all_sum_double(sum, count, mesh->tensor);
    for (int64_t r = 0; r < count; r++)
        self->log_likelihood += target_log(self, r, targets[r], most[r], sum[r]);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < count; r++)
        for (int64_t v = 0; v < columns; v++)
            self->probabilities[r * columns + v] /= sum[r];
    bp_free(sum);
    bp_free(most);
}

/* The states and probabilities of this rank's tokens [first, first + count); the rest of the round
 * is zero. */
static void fill_round(rounds *self, int64_t first, int64_t count)
{
    const collector *from = self->from;
    const float *states = count > 0 ? from->states + first * from->width : NULL; /* maybe none */
    int64_t columns = self->vocab_count, C = from->width;

    for (int64_t i = 0; i < count * C; i++)
        self->state_rows[i] = (double)states[i];
    for (int64_t i = count * C; i < self->rows * C; i++)
        self->state_rows[i] = 0;
    if (columns > 0 && count > 0)
        from->model->ops->logits(from->model, 0, states, count, self->logits);
    take_softmax(self, count > 0 ? from->targets + first : NULL, count);
    for (int64_t r = 0; r < count; r++)
        for (int64_t v = 0; v < columns; v++)
            self->sums[self->vocab_first + v] += self->probabilities[r * columns + v];
    for (int64_t i = count * columns; i < self->rows * columns; i++)
        self->probabilities[i] = 0;
}

static bp_err add_round(rounds *self, int64_t round)
{
    const collector *from = self->from;
    double share = 1 / (double)self->factors->tokens;
    int64_t first = round * self->rows, left = from->count - first;
    double began;
    bp_err err = laplace_course_report(from->course, (double)round / (double)self->count);

    left = left < 0 ? 0 : left;
    if (from->holds)
        fill_round(self, left > 0 ? first : 0, left < self->rows ? left : self->rows);
    err = bp_agree(from->mesh->compute, err);
    if (err != BP_OK)
        return err;
    bp_distributed_take(self->states, self->states_place, self->state_rows);
    bp_distributed_add_gram(self->factors->input, share, self->states);
    bp_distributed_take(self->rows_all, self->rows_place, self->probabilities);
    began = bp_clock_now();
    bp_distributed_add_gram(self->factors->output, -share, self->rows_all);
    laplace_course_measure(from->course, (double)self->rows * copies_of(from->mesh),
                           bp_clock_now() - began);
    return BP_OK;
}

static bp_err rounds_init(rounds *self, laplace_factors *factors, const collector *from)
{
    const bp_mesh *mesh = from->mesh;
    const bp_model_info *info = &from->model->info;
    int64_t copies = (int64_t)mesh->members * mesh->data_ranks, V = info->vocab_size;
    int64_t part = (V + mesh->tensor_ranks - 1) / mesh->tensor_ranks; /* the largest */
    bp_err err;

    *self = (rounds){.from = from, .factors = factors, .rows = round_rows(copies, part)};
    self->vocab_first = from->holds ? info->vocab_first : 0;
    self->vocab_count = from->holds ? info->vocab_count : 0;
    BP_ASSERT(!from->holds || self->vocab_count == 0 ||
              self->vocab_first == part * mesh->tensor_rank);
    self->state_rows =
        bp_try_alloc("uncertainty.laplace", self->rows * from->width, sizeof *self->state_rows);
    self->probabilities =
        bp_try_alloc("uncertainty.laplace", self->rows * part, sizeof *self->probabilities);
    self->logits = bp_try_alloc("uncertainty.laplace", self->rows * part, sizeof *self->logits);
    self->sums = bp_try_alloc("uncertainty.laplace", V, sizeof *self->sums);
    err = self->state_rows && self->probabilities && self->logits && self->sums
              ? BP_OK
              : out_of_memory(self->rows);
    err = bp_agree(mesh->compute, err);
    /* each copy of the model has a part of the rows; the tensor ranks of its last stage have parts
     * of the columns, like its vocabulary, and equal states */
    int copy = from->holds ? mesh->data_rank * mesh->members + mesh->member_index : -1;
    bool first = from->holds && mesh->tensor_rank == 0;
    if (err == BP_OK)
        err =
            bp_placement_new(&self->states_place, factors->grid, first ? copy : -1, first ? 0 : -1);
    if (err == BP_OK)
        err = bp_placement_new(&self->rows_place, factors->grid, copy,
                               from->holds ? mesh->tensor_rank : -1);
    if (err == BP_OK)
        err = bp_distributed_new(&self->states, factors->grid, self->rows * copies, from->width, 0);
    if (err == BP_OK)
        err = bp_distributed_new(&self->rows_all, factors->grid, self->rows * copies, V, 0);
    return err;
}

static bp_err add_all(laplace_factors *factors, const collector *from)
{
    MPI_Comm comm = from->mesh->compute;
    int64_t V = from->model->info.vocab_size, longest = bp_all_max_int(from->count, comm);
    rounds self;
    bp_err err = rounds_init(&self, factors, from);

    laplace_course_step(from->course, LAPLACE_FACTORS);
    self.count = (longest + self.rows - 1) / self.rows;
    for (int64_t k = 0; err == BP_OK && k < self.count; k++)
        err = add_round(&self, k);
    if (err == BP_OK) {
        bp_all_sum_double(&self.log_likelihood, 1, comm);
        factors->log_likelihood = self.log_likelihood / (double)factors->tokens;
        bp_all_sum_double(self.sums, V, comm);
        for (int64_t v = 0; v < V; v++)
            self.sums[v] /= (double)factors->tokens;
        bp_distributed_add_diagonal(factors->output, self.sums);
    }
    bp_free(self.sums);
    bp_free(self.logits);
    bp_free(self.probabilities);
    bp_free(self.state_rows);
    bp_distributed_free(&self.rows_all);
    bp_distributed_free(&self.states);
    bp_placement_free(&self.rows_place);
    bp_placement_free(&self.states_place);
    return err;
}

bp_err laplace_factors_init(laplace_factors *factors, const bp_mesh *mesh, bp_model *model,
                            const laplace_text *text, laplace_course *course)
{
    int64_t V = model->info.vocab_size, C = model->info.width;
    collector from = {.mesh = mesh,
                      .model = model,
                      .width = C,
                      .holds = mesh->pipeline_rank == mesh->pipeline_ranks - 1,
                      .wanted = text->tokens,
                      .expected = (double)course->tokens,
                      .course = course};
    bp_err err;

    *factors = (laplace_factors){0};
    err = bp_grid_new(&factors->grid, mesh->compute);
    if (err == BP_OK)
        err = bp_distributed_new(&factors->input, factors->grid, C, C, 0);
    if (err == BP_OK)
        err = bp_distributed_new(&factors->output, factors->grid, V, V, 0);
    laplace_course_step(course, LAPLACE_STATES);
    if (err == BP_OK)
        err = collect(&from, text, &factors->tokens);
    if (err == BP_OK)
        err = add_all(factors, &from);
    bp_free(from.targets);
    bp_free(from.states);
    return err;
}

void laplace_factors_clear(laplace_factors *factors)
{
    bp_distributed_free(&factors->output);
    bp_distributed_free(&factors->input);
    bp_grid_free(&factors->grid);
}
