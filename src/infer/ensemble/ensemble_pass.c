/* A batch through an ensemble: its memory, the members' backbones, the probability of the targets.
 * Called first for each batch; then ensemble_mix.c. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"
#include "mesh/collective.h"
#include "nn/core/block.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define CHUNK_BYTES (12LL << 20) /* of distributions at once, if score.memory allows: caches */
#define CHUNK_ROWS  1024

bool ensemble_is_last(const ensemble *self)
{
    return self->mesh->pipeline_rank == self->mesh->pipeline_ranks - 1;
}

/* ---- the memory of a batch ---- */

/* For A members side by side, each on this many tensor ranks. */
static size_t row_bytes(int64_t members, int64_t A, int64_t tensors, int64_t vocab_size)
{
    int64_t V = (vocab_size + tensors - 1) / tensors; /* the largest share */
    int64_t columns = (V + A - 1) / A;
    int64_t floats = members * columns + (A > 1 ? 2 * V : 0);

    return (size_t)floats * sizeof(float);
}

size_t ensemble_row_bytes(const ensemble *self)
{
    return row_bytes(self->member_count, self->mesh->members, self->mesh->tensor_ranks,
                     self->model.info.vocab_size);
}

/* Rows whose distributions are in memory at once. */
static int64_t most_rows(int64_t row, int64_t memory_bytes)
{
    int64_t most = memory_bytes / row, wish = CHUNK_BYTES / row;

    wish = wish < BP_HEAD_ROW_CLASS ? BP_HEAD_ROW_CLASS : wish > CHUNK_ROWS ? CHUNK_ROWS : wish;
    most = most < wish ? most : wish;
    return most > BP_HEAD_ROW_CLASS ? most - most % BP_HEAD_ROW_CLASS : most;
}

/* Equal on all ranks. */
static int64_t chunk_rows(const ensemble *self, int64_t scored)
{
    int64_t row = (int64_t)ensemble_row_bytes(self);

    return bp_head_filled_rows(scored, most_rows(row, (int64_t)self->memory_bytes));
}

/* Windows whose hidden states of all rounds fit in the memory, at least one. */
static int64_t most_windows(int64_t rounds, int64_t widest, int64_t length, int64_t memory_bytes)
{
    int64_t bytes = (rounds + 1) * widest * length * (int64_t)sizeof(float);
    int64_t most = memory_bytes / (bytes > 0 ? bytes : 1);

    return most > 0 ? most : 1;
}

/* The sizes that determine the memory of a batch, other than its rows and their chunk. */
typedef struct extent {
    bool last;                     /* of the pipeline's stages */
    int64_t tokens;                /* windows x length */
    int64_t members, rounds, side; /* side: members side by side */
    int64_t widest, widths;        /* of a backbone, and the sum over all backbones on this rank */
    int64_t columns,
        vocab_count; /* of the vocabulary: a slice combined over members, and a rank's slice */
    bool temperature, tempered, decoding, prior, sets;
} extent;

static void lay_out(const extent *of, ensemble_work *work, bp_arena *arena)
{
    int64_t exchanged = of->side > 1 ? work->chunk * of->vocab_count : 0;

    work->positions = ensemble_take(arena, work->rows, sizeof *work->positions);
    work->targets = ensemble_take(arena, work->rows, sizeof *work->targets);
    if (!of->last)
        return;
    work->states = ensemble_take(arena, of->tokens * of->widest, sizeof(float));
    work->hidden = ensemble_take(arena, (work->rows + work->chunk) * of->widths, sizeof(float));
    work->logits = ensemble_take(arena, of->members * work->chunk * of->columns, sizeof(float));
    work->own = ensemble_take(arena, exchanged, sizeof(float));
    work->outgoing = ensemble_take(arena, exchanged, sizeof(float));
    work->known = ensemble_take(arena, of->rounds * of->side * work->chunk, sizeof *work->known);
    work->max = ensemble_take(arena, 2 * work->chunk, sizeof *work->max);
    work->sums = ensemble_take(arena, 2 * work->chunk, sizeof *work->sums);
    work->mixed = ensemble_take(arena, work->chunk, sizeof *work->mixed);
    work->totals = ensemble_take(arena, 3 * work->chunk, sizeof *work->totals);
    if (of->prior)
        work->spread = ensemble_take(arena, work->chunk, sizeof *work->spread);
    work->tops = ensemble_take(arena, work->chunk, sizeof *work->tops);
    work->mixture =
        ensemble_take(arena, of->decoding ? work->chunk * of->vocab_count : 0, sizeof(float));
    work->powers = ensemble_take(arena,
                                 work->chunk * (of->temperature ? BP_TEMPERATURE_POINTS
                                                : of->tempered  ? ENSEMBLE_POWERS
                                                                : 0),
                                 sizeof *work->powers);
    if (of->sets)
        ensemble_sets_lay_out(work, of->columns, arena);
}

static extent extent_of(const ensemble *self, int64_t tokens, bool temperature)
{
    extent of = {.last = ensemble_is_last(self),
                 .tokens = tokens,
                 .members = self->member_count,
                 .rounds = self->rounds,
                 .side = self->mesh->members,
                 .widest = self->widest,
                 .columns = self->columns,
                 .vocab_count = self->model.info.vocab_count,
                 .temperature = temperature,
                 .tempered = self->model.info.tempered,
                 .prior = bp_model_is_prior(&self->model.info),
                 .sets = self->model.info.sets};

    for (int64_t t = 0; t < self->backbone_count; t++)
        of.widths += self->backbones[t].width;
    return of;
}

/* A step has few rows, and needs no larger chunk than these. */
void ensemble_lay_out_rows(const ensemble *self, ensemble_work *work, int64_t rows, bp_arena *arena)
{
    extent of = extent_of(self, 0, false);

    of.decoding = true;
    of.sets = of.tempered = false;
    work->rows = rows;
    work->chunk = chunk_rows(self, rows);
    work->chunk = work->chunk < rows ? work->chunk : rows;
    lay_out(&of, work, arena);
}

/* The largest part of a batch, all of it scored. */
int64_t bp_ensemble_work_bytes(const bp_model_memory *widest, const bp_mesh_shape *mesh,
                               int64_t members, int64_t tokens, int64_t memory_bytes, bool sets)
{
    int64_t A = mesh->members, rounds = (members + A - 1) / A;
    int64_t V = (widest->vocab_size + mesh->tensor - 1) / mesh->tensor;
    int64_t length = tokens < widest->context ? tokens : widest->context;
    int64_t part = length * most_windows(rounds, widest->width, length, memory_bytes);
    int64_t row = (int64_t)row_bytes(members, A, mesh->tensor, widest->vocab_size);
    extent of = {.last = true,
                 .tokens = part < tokens ? part : tokens,
                 .members = members,
                 .rounds = rounds,
                 .side = A,
                 .widest = widest->width,
                 .widths = rounds * widest->width,
                 .columns = (V + A - 1) / A,
                 .vocab_count = V,
                 .temperature = true,
                 .sets = sets};
    ensemble_work work = {.rows = of.tokens,
                          .chunk = bp_head_filled_rows(of.tokens, most_rows(row, memory_bytes))};
    bp_arena arena = {0};

    lay_out(&of, &work, &arena);
    return (int64_t)arena.used_bytes;
}

static bp_err grow(ensemble *self, size_t bytes)
{
    if (bytes <= self->memory_size_bytes)
        return BP_OK;
    bp_free(self->memory);
    self->memory_size_bytes = 0;
    self->memory = bp_try_alloc("infer.ensemble", (int64_t)bytes, 1);
    if (!self->memory)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at a batch of an ensemble, which takes %.1f MiB; use a "
                       "smaller score.memory, or more members or tensor ranks side by side",
                       (double)bytes / 1048576);
    self->memory_size_bytes = bytes;
    return BP_OK;
}

bp_err ensemble_reserve(ensemble *self, bp_arena *arena)
{
    bp_err err = grow(self, arena->used_bytes);

    if (bp_comm_size(self->mesh->replica) > 1)
        err = bp_agree(self->mesh->replica, err);
    *arena = (bp_arena){.base = self->memory, .size_bytes = self->memory_size_bytes};
    return err;
}

bp_err ensemble_prepare(ensemble *self, ensemble_work *work, const bp_model_batch *batch,
                        bool temperature)
{
    int64_t tokens = batch->windows * batch->length, row = 0;
    extent of = extent_of(self, tokens, temperature);
    bp_arena arena = {0};
    bp_err err;

    *work = (ensemble_work){.first_slot = batch->first_slot, .length = batch->length};
    for (int64_t i = 0; i < tokens; i++)
        work->rows += batch->targets[i] >= 0;
    work->chunk = chunk_rows(self, work->rows);
    lay_out(&of, work, &arena);
    err = ensemble_reserve(self, &arena);
    if (err != BP_OK)
        return err;
    lay_out(&of, work, &arena);
    for (int64_t i = 0; i < tokens; i++)
        if (batch->targets[i] >= 0) {
            work->positions[row] = i;
            work->targets[row++] = batch->targets[i];
        }
    return BP_OK;
}

/* ---- the backbones ---- */

static void copy_scored(float *to, const ensemble_work *work, int64_t width)
{
#pragma omp parallel for schedule(static) if (work->rows * width > 8192)
    for (int64_t r = 0; r < work->rows; r++)
        memcpy(to + r * width, work->states + work->positions[r] * width,
               (size_t)width * sizeof(float));
    memset(to + work->rows * width, 0, (size_t)(work->chunk * width) * sizeof(float));
}

bp_err ensemble_run_backbones(ensemble *self, ensemble_work *work, const bp_model_batch *batch)
{
    float *hidden = work->hidden;
    bp_err err = BP_OK;

    for (int64_t t = 0; t < self->backbone_count && err == BP_OK; t++) {
        const ensemble_backbone *backbone = &self->backbones[t];

        err = backbone->model->ops->backbone(backbone->model, batch, backbone->pass, work->states);
        if (err != BP_OK || !ensemble_is_last(self))
            continue;
        copy_scored(hidden, work, backbone->width);
        hidden += (work->rows + work->chunk) * backbone->width;
    }
    return bp_comm_size(self->mesh->replica) > 1 ? bp_agree(self->mesh->replica, err) : err;
}

double ensemble_target_logprob(const bp_mixture *in, int64_t r, double *variance)
{
    double most = -INFINITY, sum = 0, mean = 0, squares = 0, M = (double)in->members;

    for (int64_t m = 0; m < in->members; m++) {
        double lp = (double)in->known[m * in->known_stride + r].logprob;

        most = lp > most || isnan(lp) ? lp : most;
        mean += lp;
    }
    mean /= M;
    for (int64_t m = 0; m < in->members; m++) {
        double lp = (double)in->known[m * in->known_stride + r].logprob;

        sum += exp(lp - most);
        squares += (lp - mean) * (lp - mean);
    }
    *variance = squares / M;
    return most + log(sum / M);
}

/* The largest probability is exp(0) / sums[0], the sum of squares sums[1] / sums[0]^2. */
void ensemble_fill_tempered(float *values, int64_t stride, double beta, double most, double logprob,
                            const double sums[ENSEMBLE_POWERS])
{
    double tempered = beta * (logprob - most) - log(sums[0]), p = exp(tempered),
           brier = sums[1] / (sums[0] * sums[0]) - p * p + (1 - p) * (1 - p);

    values[0] = (float)tempered;
    values[(BP_MODEL_TEMPERED_CONFIDENCE - BP_MODEL_TEMPERED_LOGPROB) * stride] =
        (float)fmin(1 / sums[0], 1);
    values[(BP_MODEL_TEMPERED_BRIER - BP_MODEL_TEMPERED_LOGPROB) * stride] = (float)fmax(brier, 0);
}

void ensemble_take_part(const ensemble *self, const bp_model_batch *batch, int64_t first,
                        bp_model_batch *part)
{
    int64_t most =
        most_windows(self->rounds, self->widest, batch->length, (int64_t)self->memory_bytes);
    int64_t left = batch->windows - first;

    *part = bp_model_batch_part(batch, first, left < most ? left : most);
}
