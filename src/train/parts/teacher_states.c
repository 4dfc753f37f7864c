/* distill.layers: states of a teacher's layers, which the model's layers learn. A probe takes them
 * out of the teacher's passes; stages that have the teacher's layer send them to those that have
 * the model's. Called by teacher.c. */
#include "train/parts/teacher_states.h"

#include "mesh/collective.h"
#include "nn/heads/distill.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAG_STATES 304

struct teacher_states {
    bp_probe probe;
    const trainer *trainer;       /* borrowed */
    const teacher_layers *taught; /* borrowed */
    int64_t T;
    int64_t row[BP_STATE_MATCHES];   /* of the batch, where the next pass's states go */
    float *states[BP_STATE_MATCHES]; /* [slots * T][columns]; NULL: neither comes from nor goes to
                                        this stage */
};

static bp_err fail_list(const char *list)
{
    return BP_FAIL(
        BP_ERR_CONFIG, "distill.bad_layers",
        "distill.layers = %.60s is not a list of up to %d pairs MODEL:TEACHER of layers, "
        "each of the model's once: at distill.layers; use 1:2,2:4",
        list, BP_STATE_MATCHES);
}

/* A number that ends at `end`; -1 without a digit. */
static int64_t read_layer(const char **at, char end)
{
    char *rest = NULL;
    int64_t layer;

    errno = 0;
    layer = **at >= '0' && **at <= '9' ? strtoll(*at, &rest, 10) : -1;
    if (layer < 0 || errno != 0 || (*rest != end && *rest != '\0'))
        return -1;
    *at = rest + (*rest == end && end != '\0');
    return layer;
}

bp_err teacher_states_read(teacher_layers *taught, const char *list)
{
    taught->count = 0;
    for (const char *at = list; at && *at;) {
        int k = taught->count;

        if (k == BP_STATE_MATCHES)
            return fail_list(list);
        taught->layer[k] = strchr(at, ':') ? read_layer(&at, ':') : -1;
        taught->of[k] = taught->layer[k] >= 0 ? read_layer(&at, ',') : -1;
        if (taught->of[k] < 0 || (*at == '\0' && at[-1] == ','))
            return fail_list(list);
        for (int j = 0; j < k; j++)
            if (taught->layer[j] == taught->layer[k])
                return fail_list(list);
        taught->count++;
    }
    return list && taught->count == 0 ? fail_list(list) : BP_OK;
}

static bp_err check_layers(const bp_model_shape *shape, const char *whose, const int64_t *layers,
                           int count)
{
    if (!bp_model_has_depth(shape))
        return BP_FAIL(
            BP_ERR_CONFIG, "distill.no_states",
            "distill.layers compares layers of decoders, state-space models, encoders and "
            "the tasks of electra, but the %s is a %s: at distill.layers; leave it out",
            whose, shape->family->name);
    for (int k = 0; k < count; k++)
        if (layers[k] > shape->layers)
            return BP_FAIL(BP_ERR_CONFIG, "distill.bad_layers",
                           "distill.layers names layer %lld of the %s, which has %lld: at "
                           "distill.layers; use 0 to %lld",
                           (long long)layers[k], whose, (long long)shape->layers,
                           (long long)shape->layers);
    return BP_OK;
}

/* The stage that has a block of a model whose stages have this many runs of blocks. */
static int stage_of(const bp_model_shape *shape, int block, int stages, int chunks)
{
    for (int stage = 0; stage < stages; stage++)
        for (int c = 0; c < chunks; c++) {
            int first, end;

            bp_model_chunk(shape, &(bp_model_place){stage, stages, c, chunks}, &first, &end);
            if (first <= block && block < end)
                return stage;
        }
    return 0;
}

bp_err teacher_states_find(teacher_layers *taught, const trainer *self,
                           const bp_model_shape *theirs)
{
    int stages = self->mesh_shape.pipeline, chunks = bp_engine_chunks(&self->spec, stages);
    bp_err err;

    if (taught->count == 0)
        return BP_OK;
    err = check_layers(&self->shape, "model", taught->layer, taught->count);
    if (err == BP_OK)
        err = check_layers(theirs, "teacher", taught->of, taught->count);
    if (err != BP_OK)
        return err;
    taught->columns = theirs->width;
    for (int k = 0; k < taught->count; k++) {
        taught->block[k] = bp_model_state_block(theirs, taught->of[k]);
        taught->from[k] = stage_of(theirs, taught->block[k], stages, 1);
        taught->to[k] = stage_of(&self->shape, bp_model_state_block(&self->shape, taught->layer[k]),
                                 stages, chunks);
    }
    return BP_OK;
}

void teacher_states_share(teacher_layers *taught, trainer *self)
{
    bp_state_matches *states = &self->shape.states;

    bp_bcast_bytes(taught, sizeof *taught, 0, self->mesh->world);
    *states = (bp_state_matches){.count = taught->count, .columns = taught->columns};
    memcpy(states->layer, taught->layer, sizeof states->layer);
}

static bool is_here(const teacher_layers *taught, int match, int stage)
{
    return taught->from[match] == stage || taught->to[match] == stage;
}

/* Floats of a match's states. */
static int64_t floats_of(const teacher_layers *taught, const trainer *self)
{
    return self->spec.batch / self->mesh_shape.data * self->shape.context * taught->columns;
}

int64_t teacher_states_bytes(const teacher_layers *taught, const trainer *self, int stage)
{
    int64_t bytes = 0;

    for (int k = 0; k < taught->count; k++)
        if (is_here(taught, k, stage))
            bytes += floats_of(taught, self) * (int64_t)sizeof(float);
    return bytes;
}

static void see(bp_probe *probe, const bp_probed *seen)
{
    teacher_states *self = (teacher_states *)probe;
    const teacher_layers *taught = self->taught;

    for (int k = 0; k < taught->count; k++) {
        if (seen->block != taught->block[k] || strcmp(seen->what, "hidden") != 0)
            continue;
        BP_ASSERT(self->states[k] && seen->columns == taught->columns);
        memcpy(self->states[k] + self->row[k] * seen->columns, seen->x,
               (size_t)(seen->rows * seen->columns) * sizeof *seen->x);
        self->row[k] += seen->rows;
    }
}

bp_err teacher_states_open(teacher_states **out, const teacher_layers *taught, const trainer *self)
{
    teacher_states *states;
    bp_err err = BP_OK;

    *out = NULL;
    if (taught->count == 0)
        return BP_OK;
    *out = states = bp_alloc("train.teacher", 1, sizeof *states);
    states->probe.see = see;
    states->trainer = self;
    states->taught = taught;
    states->T = self->shape.context;
    for (int k = 0; k < taught->count && err == BP_OK; k++) {
        if (!is_here(taught, k, self->mesh->pipeline_rank))
            continue;
        states->states[k] = bp_try_alloc("train.teacher", floats_of(taught, self), sizeof(float));
        if (!states->states[k])
            err = bp_fail_memory("a teacher's states of a batch", floats_of(taught, self),
                                 sizeof(float));
    }
    return err;
}

bp_probe *teacher_states_probe(teacher_states *states, int64_t window)
{
    for (int k = 0; states && k < BP_STATE_MATCHES; k++)
        states->row[k] = window * states->T;
    return states ? &states->probe : NULL;
}

void teacher_states_send(teacher_states *states)
{
    const teacher_layers *taught = states ? states->taught : NULL;

    for (int k = 0; states && k < taught->count; k++) {
        const bp_mesh *mesh = states->trainer->mesh;
        int64_t bytes = floats_of(taught, states->trainer) * (int64_t)sizeof(float);

        if (taught->from[k] == taught->to[k])
            continue;
        if (taught->from[k] == mesh->pipeline_rank)
            bp_send(states->states[k], bytes, taught->to[k], TAG_STATES, mesh->pipeline);
        else if (taught->to[k] == mesh->pipeline_rank)
            bp_recv(states->states[k], bytes, taught->from[k], TAG_STATES, mesh->pipeline);
    }
}

const float *teacher_states_at(const teacher_states *states, int match, int64_t row)
{
    return states->states[match] + row * states->taught->columns;
}

void teacher_states_close(teacher_states **states)
{
    for (int k = 0; *states && k < BP_STATE_MATCHES; k++)
        bp_free((*states)->states[k]);
    bp_free(*states);
    *states = NULL;
}
