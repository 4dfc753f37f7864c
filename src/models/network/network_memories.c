/* The MLPs of a network's layers as memories: coefficients of keys, which a probe reads during a
 * pass, and values, which are columns of the second matrix. Called by network_model.c. */
#include "models/network/network_inside_priv.h"

#include "base/err.h"
#include "base/suffix.h"
#include "mesh/collective.h"

#include <string.h>

/* ---- coefficients ---- */

typedef struct key_keeper {
    bp_probe probe;
    int64_t first_block, layers, rows, keys;
    float *coefficients; /* [layers][rows][keys] */
} key_keeper;

static void keep(bp_probe *probe, const bp_probed *seen)
{
    const key_keeper *self = (const key_keeper *)probe;
    int64_t layer = seen->block - self->first_block;

    if (layer < 0 || layer >= self->layers || strcmp(seen->what, "coefficients") != 0)
        return;
    BP_ASSERT(seen->rows == self->rows && seen->first + seen->columns <= self->keys);
    for (int64_t r = 0; r < seen->rows; r++)
        memcpy(self->coefficients + (layer * self->rows + r) * self->keys + seen->first,
               seen->x + r * seen->columns, (size_t)seen->columns * sizeof *seen->x);
}

bp_err network_coefficients(bp_model *model, const bp_model_batch *batch, float *coefficients)
{
    network_model *self = (network_model *)model;
    const bp_model_info *info = &model->info;
    int64_t floats = info->layers * batch->length * info->keys, states = batch->length * self->C,
            most = floats > states ? floats : states;
    key_keeper kept = {.probe = {.see = keep, .coefficients = true},
                       .first_block = info->first_layer,
                       .layers = info->layers,
                       .rows = batch->length,
                       .keys = info->keys,
                       .coefficients = coefficients};
    float *scratch = bp_try_alloc("model.states", most, sizeof *scratch);
    bp_err err = bp_agree(self->mesh->model,
                          scratch ? BP_OK : bp_fail_memory("coefficients", most, sizeof *scratch));

    BP_ASSERT(batch->windows == 1 && info->keys > 0);
    if (err == BP_OK) {
        memset(coefficients, 0, (size_t)floats * sizeof *coefficients);
        model->ops->set_probe(model, &kept.probe);
        err = network_run_batch(
            self, batch, &(network_question){.hidden = scratch, .pass = BP_MODEL_NO_DROPOUT});
        model->ops->set_probe(model, NULL);
    }
    if (err == BP_OK) /* each rank fills in its own layers and keys; the rest are zeros */
        bp_all_sum(coefficients, floats, scratch, self->mesh->model);
    bp_free(scratch);
    return err;
}

/* ---- values ---- */

/* A matrix of the MLP of a layer; NULL if it is not on this stage, or does not exist. */
static const bp_param *matrix_of(const network_model *self, int64_t layer, const char *end)
{
    const bp_network *network = self->network;

    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        for (int k = 0; k < group->count &&
                        self->first_block + group->block == self->face.info.first_layer + layer;
             k++)
            if (bp_ends_with(group->params[k].name, end) && group->params[k].dims == 2)
                return &group->params[k];
    }
    return NULL;
}

void network_values(bp_model *model, int64_t layer, int64_t first, int64_t count, float *rows,
                    float *scratch)
{
    const network_model *self = (const network_model *)model;
    const bp_param *down = matrix_of(self, layer, ".mlp.down.weight");
    int64_t C = model->info.width;

    memset(rows, 0, (size_t)(count * C) * sizeof *rows);
    for (int64_t k = 0; down && k < count; k++) {
        int64_t own = first + k - down->offset[1];

        for (int64_t c = 0; c < C && own >= 0 && own < down->extent[1]; c++)
            rows[k * C + c] = down->value[c * down->extent[1] + own];
    }
    bp_all_sum(rows, count * C, scratch, self->mesh->model);
}

void network_find_keys(network_model *self)
{
    bp_model_info *info = &self->face.info;
    int64_t keys = 0, others = 0, found = 0;
    bool gated = false;

    for (int64_t layer = 0; layer < info->layers; layer++) {
        const bp_param *down = matrix_of(self, layer, ".mlp.down.weight");

        if (!down || down->shape[0] != info->width)
            continue;
        others += keys > 0 && down->shape[1] != keys;
        keys = down->shape[1];
        gated = gated || matrix_of(self, layer, ".mlp.gate.weight");
        found++;
    }
    found = bp_all_sum_int(found, self->mesh->pipeline);
    others = bp_all_sum_int(others, self->mesh->pipeline);
    keys = bp_all_max_int(keys, self->mesh->pipeline);
    info->gated = bp_all_max_int(gated, self->mesh->pipeline) > 0;
    info->keys = found == info->layers && others == 0 && self->shape.adapter.kind == 0 ? keys : 0;
}
