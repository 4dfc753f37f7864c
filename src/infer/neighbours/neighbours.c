/* A model and its neighbours as one bp_model. Opened by the setup of scoring. */
#include "infer/neighbours/neighbours.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The logarithm that represents a probability of 0, which a mixture of weight 1 may have
 * (info.may_be_zero). */
#define NO_PROBABILITY (2.0 * BP_MODEL_ZERO)

typedef struct near_model {
    bp_model face;
    bp_model *model;
    bp_datastore *store;
    bp_neighbours_spec spec;
    MPI_Comm group;
    int64_t capacity;    /* positions */
    float *keys;         /* [capacity][columns] */
    bp_neighbour *found; /* [capacity][k] */
} near_model;

double bp_neighbours_mix(const bp_neighbours_spec *spec, double logprob,
                         const bp_neighbour *neighbours, int64_t token)
{
    double all = 0, own = 0;

    for (int64_t i = 0; i < spec->k; i++) {
        double each = exp((neighbours[0].distance - neighbours[i].distance) / spec->temperature);

        all += each;
        own += neighbours[i].token == token ? each : 0;
    }
    if (own == 0 && spec->weight < 1) /* prevents that a small probability becomes 0 */
        return log1p(-spec->weight) + logprob;
    return log(spec->weight * (own / all) + (1 - spec->weight) * exp(logprob));
}

static bp_err reserve(near_model *self, int64_t positions)
{
    int64_t C = self->face.info.states.columns;

    if (positions <= self->capacity)
        return BP_OK;
    bp_free(self->keys);
    bp_free(self->found);
    self->keys = bp_try_alloc("neighbours", positions * C, sizeof *self->keys);
    self->found = bp_try_alloc("neighbours", positions * self->spec.k, sizeof *self->found);
    self->capacity = self->keys && self->found ? positions : 0;
    return self->capacity > 0
               ? BP_OK
               : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                         "memory is short: at %" PRId64 " neighbours of each of %" PRId64
                         " tokens; use a smaller neighbours.k",
                         self->spec.k, positions);
}

/* Keys of the positions that have targets, put together without gaps. */
static int64_t gather(const near_model *self, const bp_model_batch *batch)
{
    int64_t C = self->face.info.states.columns, count = 0;

    for (int64_t i = 0; i < batch->windows * batch->length; i++)
        if (batch->targets[i] >= 0)
            memmove(self->keys + count++ * C, self->keys + i * C, (size_t)C * sizeof(float));
    return count;
}

/* keys: see bp_model_ops.keys; NULL if not requested. */
static bp_err score_and_keep(near_model *self, const bp_model_batch *batch, float *values,
                             float *keys)
{
    int64_t positions = batch->windows * batch->length, count = 0;
    float *own = values + positions; /* the model's */
    bp_err err = bp_agree(self->group, reserve(self, positions));

    if (err == BP_OK)
        err = self->model->ops->keys(self->model, batch, own, self->keys);
    if (err == BP_OK && keys)
        memcpy(keys, self->keys,
               (size_t)(positions * self->face.info.states.columns) * sizeof *keys);
    if (err == BP_OK)
        count = gather(self, batch);
    if (err == BP_OK)
        err = bp_datastore_search(self->store, self->keys, count, self->spec.k, self->found);
    if (err != BP_OK)
        return err;
    for (int64_t i = 0, at = 0; i < positions; i++) {
        values[i] = NAN;
        if (batch->targets[i] >= 0)
            values[i] =
                (float)fmax(bp_neighbours_mix(&self->spec, (double)own[i],
                                              self->found + at++ * self->spec.k, batch->targets[i]),
                            NO_PROBABILITY);
    }
    return BP_OK;
}

static bp_err score(bp_model *model, const bp_model_batch *batch, float *values)
{
    return score_and_keep((near_model *)model, batch, values, NULL);
}

static bp_err keys_of(bp_model *model, const bp_model_batch *batch, float *values, float *keys)
{
    return score_and_keep((near_model *)model, batch, values, keys);
}

static void free_model(bp_model *model)
{
    near_model *self = (near_model *)model;

    bp_datastore_close(&self->store);
    bp_model_free(&self->model);
    bp_free(self->found);
    bp_free(self->keys);
    bp_free(self);
}

static const bp_model_ops OPS = {.score = score, .keys = keys_of, .free = free_model};

static bp_err check(const near_model *self)
{
    int64_t entries = bp_datastore_info_of(self->store)->entries;

    if (self->spec.k <= entries)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "neighbours.too_many",
                   "neighbours.k = %" PRId64 " is more than the %" PRId64
                   " entries of the datastore %s: at neighbours.k; use %" PRId64 " or less",
                   self->spec.k, entries, self->spec.path, entries);
}

bp_err bp_neighbours_new(bp_model **out, bp_model *model, const bp_mesh *mesh,
                         const bp_neighbours_spec *spec)
{
    near_model *self = bp_alloc("neighbours", 1, sizeof *self);
    bp_datastore_spec store = {spec->path, &model->info, spec->memory_bytes, spec->precision};
    bp_err err = BP_OK;

    self->face = (bp_model){.ops = &OPS, .info = model->info};
    self->face.info.statistics = 2;
    self->face.info.may_be_zero = spec->weight == 1;
    self->model = model;
    self->spec = *spec;
    self->group = mesh->model;
    if (model->info.members > 0)
        err = BP_FAIL(BP_ERR_CONFIG, "neighbours.no_keys",
                      "each member of an ensemble has keys of its own, and a datastore those of "
                      "one model: at score.neighbours; take one member, or leave the key out");
    else if (!model->info.states.keys)
        err = BP_FAIL(BP_ERR_CONFIG, "neighbours.no_keys",
                      "a model of kind %s has no keys of a datastore: at score.neighbours; take a "
                      "Transformer that continues texts or fills them in, or leave the key out",
                      model->info.kind);
    else if (model->info.may_be_zero)
        err =
            BP_FAIL(BP_ERR_CONFIG, "neighbours.no_logarithm",
                    "head.activation = entmax15 gives tokens the probability 0, which the figures "
                    "without neighbours can't hold: at score.neighbours; take a model with a "
                    "softmax, or leave the key out");
    if (err == BP_OK)
        err = bp_datastore_open(&self->store, mesh->compute, mesh->model, &store);
    if (err == BP_OK)
        err = check(self);
    *out = err == BP_OK ? &self->face : NULL;
    if (err != BP_OK)
        free_model(&self->face);
    return err;
}

const bp_datastore_info *bp_neighbours_datastore(const bp_model *model)
{
    return bp_datastore_info_of(((const near_model *)model)->store);
}
