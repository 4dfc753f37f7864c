/* Decoding with a network: its memory, planned and allocated once. Called by network_model.c;
 * decoding_step.c runs the steps. */
#include "models/network/decoding_priv.h"

#include "base/err.h"
#include "base/numbers.h"
#include "nn/core/layers.h"

#include <string.h>

#define PIECE_ROWS 256 /* of a long prompt, in flight at once */

int decoding_blocks(const network_model *model)
{
    return model->network->block_count - (network_is_last(model) ? 1 : 0);
}

int64_t decoding_filled_rows(const network_model *model, int64_t rows)
{
    int64_t filled = 1;

    if (!bp_gemm_prepares(model->gemm))
        return rows;
    while (filled < rows)
        filled *= 2;
    return filled;
}

bp_pass decoding_pass(const int32_t *tokens, int64_t rows)
{
    bp_batch batch = bp_batch_of_positions(1, rows, tokens, NULL);

    return bp_pass_over(&batch);
}

bp_pass decoding_source_pass(const int32_t *tokens, int64_t positions)
{
    bp_batch batch = {.B = 1, .stream[1] = {.T = positions, .inputs = tokens}};

    return bp_pass_over(&batch);
}

/* The blocks' caches of one group, and the most scratch that one of them takes for attention.
 * False: a block of this stage can't continue sequences. */
static bool lay_caches(const network_model *model, bp_arena *arena, const bp_decoding *of,
                       float **caches, size_t *scratch)
{
    for (int k = 0; k < decoding_blocks(model); k++) {
        const bp_block *block = model->network->blocks[k];
        bp_cache_need need = {.sources = of->slots,
                              .source_capacity = model->face.info.source_capacity};

        if (!block->ops->cache || !block->ops->cache(block, of->slots, of->capacity, &need))
            return false;
        float *cache = bp_arena_floats(arena, (int64_t)(need.kept_bytes / sizeof(float)));
        if (caches)
            caches[k] = cache;
        *scratch = need.scratch_bytes > *scratch ? need.scratch_bytes : *scratch;
    }
    return true;
}

static size_t blocks_scratch(const network_model *model, bp_extent most)
{
    size_t largest = 0;

    for (int k = 0; k < decoding_blocks(model); k++) {
        const bp_block *block = model->network->blocks[k];
        size_t bytes = block->ops->scratch_bytes(block, &most, false);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* For objects whose size is a whole number of floats. */
static void *take(bp_arena *arena, int64_t count, size_t size)
{
    return bp_arena_floats(arena, count * (int64_t)(size / sizeof(float)));
}

static void lay_last(network_decoding *self, bp_arena *arena)
{
    const network_model *model = (const network_model *)self->face.model;
    int64_t slots = self->face.slots, rows = self->most_lasts;
    last_work *last = &self->last;

    last->states = take(arena, rows * model->C, sizeof(float));
    last->hidden = take(arena, rows * model->C, sizeof(float));
    last->logits = take(arena, rows * model->face.info.vocab_count, sizeof(float));
    last->max = take(arena, 2 * slots, sizeof *last->max);
    last->sums = take(arena, 2 * slots, sizeof *last->sums);
    last->totals = take(arena, 2 * slots, sizeof *last->totals);
    last->targets = take(arena, slots, sizeof *last->targets);
    last->known = take(arena, slots, sizeof *last->known);
    last->mixed = take(arena, slots, sizeof *last->mixed);
}

/* Lays out all memory, or counts it. False: this model can't continue sequences. */
static bool lay_out(network_decoding *self, bp_arena *arena)
{
    const network_model *model = (const network_model *)self->face.model;
    int64_t slots = self->face.slots, cells = slots * self->face.capacity, rows = self->most_rows;
    int64_t S = model->face.info.source_capacity;
    bp_pass pass = decoding_pass(NULL, rows), source = decoding_source_pass(NULL, S);
    size_t attention = 0;

    for (int g = 0; g < self->face.groups; g++) {
        decoding_group *group = self->groups ? &self->groups[g] : &(decoding_group){0};

        if (!lay_caches(model, arena, &self->face, group->caches, &attention))
            return false;
        group->cells = take(arena, cells, sizeof *group->cells);
        if (model->network->changes_after > 0)
            group->tokens = take(arena, cells, sizeof *group->tokens);
        group->fed = take(arena, slots, sizeof *group->fed);
        group->state = take(arena, slots, sizeof *group->state);
        group->source_of = take(arena, slots, sizeof *group->source_of);
        group->source_ends = take(arena, slots, sizeof *group->source_ends);
    }
    self->cells = take(arena, cells, sizeof *self->cells);
    self->fed = take(arena, slots, sizeof *self->fed);
    self->state = take(arena, slots, sizeof *self->state);
    self->states_from = take(arena, slots, sizeof *self->states_from);
    self->states_to = take(arena, slots, sizeof *self->states_to);
    self->used = take(arena, slots, sizeof *self->used);
    self->ends = take(arena, slots, sizeof *self->ends);
    self->tokens = take(arena, rows, sizeof *self->tokens);
    self->positions = take(arena, rows, sizeof *self->positions);
    self->slots = take(arena, rows, sizeof *self->slots);
    self->source_slots = take(arena, rows, sizeof *self->source_slots);
    self->source_positions = take(arena, rows, sizeof *self->source_positions);
    self->source_cells = take(arena, slots * S, sizeof *self->source_cells);
    self->data = take(arena,
                      bp_max(bp_network_activation_floats(model->network, &pass),
                             S > 0 ? bp_network_activation_floats(model->network, &source) : 0),
                      sizeof *self->data);
    self->attention = take(arena, (int64_t)(attention / sizeof(float)), sizeof(float));
    if (network_is_last(model))
        lay_last(self, arena);
    self->scratch_bytes = blocks_scratch(model, pass.extent);
    if (S > 0)
        self->scratch_bytes = (size_t)bp_max((int64_t)self->scratch_bytes,
                                             (int64_t)blocks_scratch(model, source.extent));
    self->scratch = (char *)bp_arena_floats(arena, (int64_t)(self->scratch_bytes / sizeof(float)));
    return true;
}

static network_decoding planned(bp_model *model, int groups, int64_t slots, int64_t capacity)
{
    const network_model *network = (const network_model *)model;
    int64_t rows = slots * capacity < PIECE_ROWS ? slots * capacity : PIECE_ROWS;

    return (network_decoding){.face = {model, groups, slots, capacity},
                              .most_rows = decoding_filled_rows(network, rows),
                              .most_lasts = decoding_filled_rows(network, slots)};
}

int64_t network_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity)
{
    const network_model *network = (const network_model *)model;
    network_decoding plan = planned((bp_model *)(uintptr_t)model, groups, slots, capacity);
    bp_extent most = {1, {plan.most_rows}};
    bp_arena arena = {0};

    if (!lay_out(&plan, &arena))
        return 0;
    if (bp_gemm_precision(network->gemm) != BP_F32)
        arena.used_bytes += bp_network_product_bytes(network->network, &most).scratch;
    return (int64_t)arena.used_bytes;
}

/* What one rank does without communication. */
static bp_err reserve(network_decoding *self)
{
    const network_model *model = (const network_model *)self->face.model;
    bp_arena arena = {0};

    if (!lay_out(self, &arena))
        return BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                       "a model of kind %s does not continue sequences: at model.kind; take a "
                       "checkpoint of a causal network",
                       model->face.info.kind);
    self->memory = bp_try_alloc("model.decoding", (int64_t)arena.used_bytes, 1);
    if (!self->memory)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %d groups of %lld sequences of %lld positions, which "
                       "take %.1f MiB; use fewer or shorter ones, or more tensor or pipeline ranks",
                       self->face.groups, (long long)self->face.slots,
                       (long long)self->face.capacity, (double)arena.used_bytes / 1048576);
    self->groups = bp_alloc("model.decoding", self->face.groups, sizeof *self->groups);
    for (int g = 0; g < self->face.groups; g++)
        self->groups[g].caches =
            bp_alloc("model.decoding", decoding_blocks(model) + 1, sizeof(float *));
    arena = (bp_arena){.base = self->memory, .size_bytes = arena.used_bytes};
    lay_out(self, &arena);
    for (int64_t k = 0; k < self->face.slots * model->face.info.source_capacity; k++)
        self->source_cells[k] = (int32_t)(k / model->face.info.source_capacity);
    return BP_OK;
}

bp_err network_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                          int64_t capacity)
{
    network_decoding *self = bp_alloc("model.decoding", 1, sizeof *self);
    bp_err err;

    *self = planned(model, groups, slots, capacity);
    err = bp_agree(((const network_model *)model)->mesh->model, reserve(self));
    if (err != BP_OK) {
        network_decode_free(&self->face);
        return err;
    }
    decoding_warm_up(self);
    for (int g = 0; g < groups; g++)
        network_decode_reset(&self->face, g);
    *out = &self->face;
    return BP_OK;
}

void network_decode_free(bp_decoding *decoding)
{
    network_decoding *self = (network_decoding *)decoding;

    for (int g = 0; self->groups && g < self->face.groups; g++)
        bp_free(self->groups[g].caches);
    bp_free(self->groups);
    bp_free(self->memory);
    bp_free(self);
}

void network_decode_reset(bp_decoding *decoding, int group)
{
    network_decoding *self = (network_decoding *)decoding;

    memset(self->groups[group].fed, 0, (size_t)self->face.slots * sizeof(int32_t));
    for (int64_t s = 0; s < self->face.slots; s++)
        self->groups[group].state[s] = (int32_t)s;
    self->groups[group].shared = false;
}
