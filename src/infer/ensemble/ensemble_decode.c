/* Decoding with an ensemble: each member's backbone continues the same sequences, then the members'
 * distributions of the next tokens are combined as in scoring. Called by ensemble.c, for
 * generation. */
#include "infer/ensemble/ensemble_priv.h"

#include "base/err.h"
#include "nn/core/block.h"

#include <string.h>

typedef struct ensemble_decoding {
    bp_decoding face;
    bp_decoding **parts;   /* [backbone_count] */
    ensemble_work work;    /* rows: slots */
    int *counts, *offsets; /* [mesh->members] of a gathered chunk, in floats */
    char *memory;
} ensemble_decoding;

/* Lays out the work of a step, or counts it. */
static void lay_out(ensemble_decoding *self, bp_arena *arena)
{
    const ensemble *all = (const ensemble *)self->face.model;
    int64_t A = all->mesh->members;

    ensemble_lay_out_rows(all, &self->work, self->face.slots, arena);
    self->counts = (int *)(void *)bp_arena_floats(arena, A);
    self->offsets = (int *)(void *)bp_arena_floats(arena, A);
}

/* One backbone that continues sequences on this rank. */
static bp_err open_part(bp_decoding **out, const ensemble_backbone *backbone, const bp_decoding *of)
{
    const bp_member_sampler *sampler = ((const ensemble *)of->model)->sampler;

    *out = NULL;
    if (backbone->pass != BP_MODEL_NO_DROPOUT || (sampler && sampler->ops->logits))
        return BP_FAIL(BP_ERR_CONFIG, "model.dropout_decoding",
                       "members by :%s do not continue sequences: at their model; take members of "
                       "an ensemble, or samples",
                       sampler->ops->word);
    if (!backbone->model->ops->decode_states)
        return BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                       "a member of kind %s does not continue sequences: at model.kind; take "
                       "checkpoints of causal networks",
                       backbone->model->info.kind);
    backbone->model->info.source_capacity = of->model->info.source_capacity;
    return bp_model_decode_new(out, backbone->model, of->groups, of->slots, of->capacity);
}

static bp_err reserve(ensemble_decoding *self)
{
    bp_arena arena = {0};

    lay_out(self, &arena);
    self->memory = bp_try_alloc("infer.ensemble", (int64_t)arena.used_bytes, 1);
    if (!self->memory)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld sequences of an ensemble, which take %.1f MiB; "
                       "use fewer, or more members or tensor ranks side by side",
                       (long long)self->face.slots, (double)arena.used_bytes / 1048576);
    arena = (bp_arena){.base = self->memory, .size_bytes = arena.used_bytes};
    lay_out(self, &arena);
    for (int64_t r = 0; r < self->face.slots; r++)
        self->work.targets[r] = -1;
    self->work.decodings = self->parts;
    return BP_OK;
}

void ensemble_decode_free(bp_decoding *decoding)
{
    ensemble_decoding *self = (ensemble_decoding *)decoding;
    const ensemble *all = (const ensemble *)decoding->model;

    for (int64_t t = 0; self->parts && t < all->backbone_count; t++)
        bp_model_decode_free(&self->parts[t]);
    bp_free(self->parts);
    bp_free(self->memory);
    bp_free(self);
}

bp_err ensemble_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                           int64_t capacity)
{
    ensemble *all = (ensemble *)model;
    ensemble_decoding *self = bp_alloc("infer.ensemble", 1, sizeof *self);
    bp_err err = BP_OK;

    self->face = (bp_decoding){model, groups, slots, capacity};
    self->parts = bp_alloc("infer.ensemble", all->backbone_count + 1, sizeof(bp_decoding *));
    for (int64_t t = 0; t < all->backbone_count && err == BP_OK; t++)
        err = open_part(&self->parts[t], &all->backbones[t], &self->face);
    if (err == BP_OK)
        err = reserve(self);
    err = bp_agree(all->mesh->replica, err);
    if (err == BP_OK)
        *out = &self->face;
    else
        ensemble_decode_free(&self->face);
    return err;
}

void ensemble_decode_reset(bp_decoding *decoding, int group)
{
    const ensemble_decoding *self = (const ensemble_decoding *)decoding;

    for (int64_t t = 0; t < ((const ensemble *)decoding->model)->backbone_count; t++)
        bp_model_decode_reset(self->parts[t], group);
}

void ensemble_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources)
{
    const ensemble_decoding *self = (const ensemble_decoding *)decoding;

    for (int64_t t = 0; t < ((const ensemble *)decoding->model)->backbone_count; t++)
        bp_model_decode_sources(self->parts[t], group, sources);
}

int64_t ensemble_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity)
{
    const ensemble *all = (const ensemble *)model;
    ensemble_decoding plan = {.face = {(bp_model *)(uintptr_t)model, groups, slots, capacity}};
    bp_arena arena = {0};

    lay_out(&plan, &arena);
    for (int64_t t = 0; t < all->backbone_count; t++)
        arena.used_bytes +=
            (size_t)bp_model_decode_bytes(all->backbones[t].model, groups, slots, capacity);
    return (int64_t)arena.used_bytes;
}

/* Gather rows [rows][columns] of log p to [rows][V] on all ranks across members. */
static void gather_columns(ensemble_decoding *self, float *logprob, const float *mine, int64_t rows)
{
    const ensemble *all = (const ensemble *)self->face.model;
    int64_t V = all->model.info.vocab_count, first;
    int A = all->mesh->members;
    float *gathered = self->work.outgoing;

    for (int k = 0; k < A; k++) {
        self->counts[k] = bp_mpi_count(rows * ensemble_columns(V, k, A, &first));
        self->offsets[k] = bp_mpi_count(rows * first);
    }
    BP_MPI_WAIT("all_gather",
                MPI_Allgatherv(mine, self->counts[all->mesh->member_index], MPI_FLOAT, gathered,
                               self->counts, self->offsets, MPI_FLOAT, all->mesh->across));
    for (int k = 0; k < A; k++) {
        int64_t count = ensemble_columns(V, k, A, &first);

        for (int64_t r = 0; r < rows; r++)
            memcpy(logprob + r * V + first, gathered + rows * first + r * count,
                   (size_t)count * sizeof *logprob);
    }
}

/* The mixture's log-probabilities of rows [first, first + rows), in work->mixture. */
static void mix(ensemble_decoding *self, int64_t first, int64_t rows)
{
    ensemble *all = (ensemble *)self->face.model;
    ensemble_work *work = &self->work;
    bool alone = all->mesh->members == 1;
    bp_mixture in;

    ensemble_mix(all, work, first, rows);
    in = ensemble_mixture(all, work, first, rows);
    bp_mixture_logprobs(alone ? work->mixture : work->own, &in);
    if (!alone)
        gather_columns(self, work->mixture, work->own, rows);
}

static void run_backbones(ensemble_decoding *self, int group, const bp_decode_step *step,
                          int64_t active)
{
    const ensemble *all = (const ensemble *)self->face.model;
    float *hidden = self->work.hidden;

    for (int64_t t = 0; t < all->backbone_count; t++) {
        const ensemble_backbone *backbone = &all->backbones[t];

        backbone->model->ops->decode_states(self->parts[t], group, step, hidden);
        if (!ensemble_is_last(all))
            continue;
        memset(hidden + active * backbone->width, 0,
               (size_t)(self->work.chunk * backbone->width) * sizeof *hidden);
        hidden += (self->work.rows + self->work.chunk) * backbone->width;
    }
}

void ensemble_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                     float *statistics)
{
    ensemble_decoding *self = (ensemble_decoding *)decoding;
    const ensemble *all = (const ensemble *)decoding->model;
    ensemble_work *work = &self->work;
    int64_t V = all->model.info.vocab_count, active = 0, row = 0;

    for (int64_t s = 0; s < step->slots; s++)
        active += step->counts[s] > 0;
    run_backbones(self, group, step, active);
    for (int64_t s = 0; ensemble_is_last(all) && s < step->slots; s++) {
        if (step->counts[s] == 0)
            continue;
        int64_t at = row % work->chunk;

        if (at == 0)
            mix(self, row, row + work->chunk < active ? work->chunk : active - row);
        memcpy(logits + s * V, work->mixture + at * V, (size_t)V * sizeof *logits);
        if (statistics) {
            double information = work->totals[3 * at + 1] < 0 ? 0 : work->totals[3 * at + 1];
            float *to = statistics + s * BP_DECODE_STATISTICS;

            to[BP_DECODE_ENTROPY] = (float)(work->totals[3 * at] + information);
            to[BP_DECODE_MUTUAL_INFORMATION] = (float)information;
        }
        row++;
    }
}
