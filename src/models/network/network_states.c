/* The states of a text's tokens after each layer, and the keys of a batch's positions: a probe
 * reads them during a pass. Called by network_model.c. */
#include "models/network/network_states.h"

#include "base/err.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

/* A probe that keeps the part of a token's states that the family specifies. */
typedef struct keeper {
    bp_probe probe;
    const bp_model_shape *shape;
    bp_state_form form;
    int64_t count; /* tokens */
    float *states; /* [layers][count][columns] */
} keeper;

static void keep(bp_probe *probe, const bp_probed *seen)
{
    const keeper *self = (const keeper *)probe;
    bp_state_part part;

    if (!self->shape->family->states->part(self->shape, seen->block, seen->what, &part))
        return;
    BP_ASSERT(part.row + self->count <= seen->rows);
    for (int64_t k = 0; k < self->count; k++)
        memcpy(self->states + (part.layer * self->count + k) * self->form.columns + part.column,
               seen->x + (part.row + k) * seen->columns, (size_t)seen->columns * sizeof(float));
}

bp_state_form network_state_form(const bp_model_shape *shape)
{
    if (shape->family->key_block && !bp_task_has_head(&shape->task))
        return (bp_state_form){.layers = 1, .columns = shape->width, .keys = true};
    return shape->family->states ? shape->family->states->form(shape) : (bp_state_form){0};
}

/* inputs[count + 1], targets[count + 1]: the last target comes after the text, and only it is
 * set. */
static void frame(int32_t *inputs, int32_t *targets, const bp_model_text *text)
{
    inputs[0] = text->eod;
    for (int64_t k = 0; k < text->count; k++) {
        inputs[k + 1] = text->tokens[k];
        targets[k] = -1;
    }
    targets[text->count] = text->eod;
}

bp_err network_states(bp_model *model, const bp_model_text *text, float *states)
{
    network_model *self = (network_model *)model;
    bp_state_form form = network_state_form(&self->shape);
    int64_t length = text->count + 1, floats = form.layers * text->count * form.columns;
    int32_t *positions = bp_try_alloc("model.states", 2 * length, sizeof *positions);
    float *values = bp_try_alloc("model.states", length, sizeof *values),
          *scratch = bp_try_alloc("model.states", self->mesh->pipeline_ranks > 1 ? floats : 1,
                                  sizeof *scratch);
    keeper seen = {.probe = {.see = keep},
                   .shape = &self->shape,
                   .form = form,
                   .count = text->count,
                   .states = states};
    bp_model_batch batch = {
        .windows = 1, .length = length, .inputs = positions, .targets = positions + length};
    bp_err err = positions && values && scratch
                     ? BP_OK
                     : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                               "memory is short: at the states of %lld tokens; use a smaller "
                               "score.context",
                               (long long)text->count);

    err = bp_agree(self->mesh->model, err);
    if (err == BP_OK) {
        frame(positions, positions + length, text);
        memset(states, 0, (size_t)floats * sizeof *states);
        model->ops->set_probe(model, &seen.probe);
        err = model->ops->score(model, &batch, values);
        model->ops->set_probe(model, NULL);
    }
    if (err == BP_OK &&
        self->mesh->pipeline_ranks > 1) /* each stage fills in its layers; the rest are zeros */
        bp_all_sum(states, floats, scratch, self->mesh->pipeline);
    bp_free(scratch);
    bp_free(values);
    bp_free(positions);
    return err;
}

/* ---- states after each layer ---- */

/* A probe that keeps the states after the blocks from `first` on. */
typedef struct layer_keeper {
    bp_probe probe;
    int first, count;
    int64_t floats, room; /* columns of a block's states, and columns reserved for them */
    float *states;        /* [count][room] */
} layer_keeper;

static void keep_layers(bp_probe *probe, const bp_probed *seen)
{
    layer_keeper *self = (layer_keeper *)probe;
    int at = seen->block - self->first;

    if (at < 0 || at >= self->count || strcmp(seen->what, "hidden") != 0)
        return;
    BP_ASSERT(seen->rows * seen->columns == self->floats);
    memcpy(self->states + at * self->room, seen->x, (size_t)self->floats * sizeof *seen->x);
}

/* This stage's blocks between the last layer and the head (a norm after a stack, the transform of a
 * masked model) read each layer's output: states[info.layers + 1][room], in place. */
static void run_after_layers(network_model *self, float *states, int64_t room,
                             const bp_model_batch *batch)
{
    int after = self->face.info.first_layer + self->face.info.layers - self->first_block,
        end = self->network->block_count - network_is_last(self);

    after = after > 0 ? after : 0;
    for (int64_t l = 0; after < end && l <= self->face.info.layers; l++)
        network_run_blocks(self, batch, after, end, states + l * room);
}

/* In `kept->states`, which is zeros at first: rows [T][C] for each layer on the last stage. */
static bp_err find_layers(network_model *self, const bp_model_batch *batch, layer_keeper *kept,
                          float *scratch)
{
    bp_model *model = &self->face;
    int64_t all = kept->count * kept->room;
    float *values = bp_alloc("model.states", batch->length, sizeof *values);
    bp_err err;

    model->ops->set_probe(model, &kept->probe);
    err = model->ops->score(model, batch, values);
    model->ops->set_probe(model, NULL);
    for (int stage = 0; stage < self->mesh->pipeline_ranks && err == BP_OK; stage++) {
        /* each stage fills in its layers; the rest are zeros */
        if (stage == 0 && self->mesh->pipeline_ranks > 1)
            bp_all_sum(kept->states, all, scratch, self->mesh->pipeline);
        if (stage == self->mesh->pipeline_rank)
            run_after_layers(self, kept->states, kept->room, batch);
        bp_bcast_bytes(kept->states, all * (int64_t)sizeof(float), stage, self->mesh->pipeline);
    }
    bp_free(values);
    return err;
}

bp_err network_layers(bp_model *model, const bp_model_batch *batch, float *states)
{
    network_model *self = (network_model *)model;
    int64_t T = batch->length, C = self->C, width = model->info.layer_width,
            room = T * (width > C ? width : C), rows = model->info.layers + 1, all = rows * room;
    float *scratch = bp_try_alloc("model.states", all, sizeof *scratch),
          *wide = bp_try_alloc("model.states", all, sizeof *wide);
    layer_keeper kept = {.probe = {.see = keep_layers},
                         .first = model->info.first_layer - 1,
                         .count = model->info.layers + 1,
                         .floats = T * width,
                         .room = room,
                         .states = wide};
    bp_err err =
        bp_agree(self->mesh->model,
                 scratch && wide ? BP_OK : bp_fail_memory("states", 2 * all, sizeof *scratch));

    BP_ASSERT(batch->windows == 1 && width > 0);
    if (err == BP_OK)
        err = find_layers(self, batch, &kept, scratch);
    for (int64_t l = 0; l < rows && err == BP_OK; l++)
        memcpy(states + l * T * C, wide + l * room, (size_t)(T * C) * sizeof *states);
    if (err == BP_OK && network_is_last(self))
        bp_lm_head_norm(network_head(self), states, states, rows * T);
    bp_free(wide);
    bp_free(scratch);
    return err;
}

/* ---- keys ---- */

/* A probe that keeps the input of one block's MLP, piece after piece of a batch. */
typedef struct key_keeper {
    bp_probe probe;
    int block;
    float *next; /* of keys[][columns] */
} key_keeper;

static void keep_keys(bp_probe *probe, const bp_probed *seen)
{
    key_keeper *self = (key_keeper *)probe;
    int64_t floats = seen->rows * seen->columns;

    if (seen->block != self->block || strcmp(seen->what, "mlp") != 0)
        return;
    memcpy(self->next, seen->x, (size_t)floats * sizeof *seen->x);
    self->next += floats;
}

/* The stage that has a given block. */
static int stage_of(const network_model *self, int block)
{
    int stage = 0, first, end;

    bp_model_stage(&self->shape, stage, self->mesh->pipeline_ranks, &first, &end);
    while (block >= end)
        bp_model_stage(&self->shape, ++stage, self->mesh->pipeline_ranks, &first, &end);
    return stage;
}

bp_err network_keys(bp_model *model, const bp_model_batch *batch, float *values, float *keys)
{
    network_model *self = (network_model *)model;
    int64_t floats = batch->windows * batch->length * model->info.states.columns;
    key_keeper kept = {.probe = {.see = keep_keys, .mlp = true},
                       .block = self->shape.family->key_block(&self->shape),
                       .next = keys};
    bp_err err;

    model->ops->set_probe(model, &kept.probe);
    err = model->ops->score(model, batch, values);
    model->ops->set_probe(model, NULL);
    if (err != BP_OK)
        return err;
    int stage = stage_of(self, kept.block);
    BP_ASSERT(stage != self->mesh->pipeline_rank || kept.next == keys + floats);
    bp_bcast_bytes(keys, floats * (int64_t)sizeof *keys, stage, self->mesh->pipeline);
    return BP_OK;
}
