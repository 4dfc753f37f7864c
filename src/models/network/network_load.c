/* Filling a network that runs only forward. Where its products read a copy of the values (bf16),
 * the values come block by block into one buffer, which is reused once they are packed. Called by
 * network_model.c, once. */
#include "models/network/network_load_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "mesh/collective.h"

/* A network that is being filled. */
typedef struct loading {
    bp_network *network;
    const bp_dropconnect *drops; /* NULL: none */
    float *held, *staged;        /* NULL: nothing goes there */
    int64_t held_floats;         /* that are in use */
    bp_slice *slices;
    int64_t slice_count, slice_capacity;
} loading;

static bool is_held(const bp_network *network, const bp_param *param)
{
    const bp_gemm *gemm = network->nn.gemm;

    return bp_gemm_reads_values(gemm) || !bp_gemm_is_forward_only(gemm) || !param->product_first ||
           param->values_read;
}

/* A block's parameters: those whose groups it is the first to read. */
static void add_block(const bp_network *network, int block, int64_t *held, int64_t *staged)
{
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        for (int k = 0; k < group->count && group->block == block; k++)
            *(is_held(network, &group->params[k]) ? held : staged) +=
                bp_param_floats(&group->params[k]);
    }
}

bp_network_load_bytes bp_network_load_plan(const bp_network *network)
{
    bp_network_load_bytes bytes = {0};

    for (int block = 0; block < network->block_count; block++) {
        int64_t held = 0, staged = 0;

        add_block(network, block, &held, &staged);
        bytes.held += held * (int64_t)sizeof(float);
        staged *= (int64_t)sizeof(float);
        bytes.staged = staged > bytes.staged ? staged : bytes.staged;
    }
    return bytes;
}

static bp_err allocate(loading *self, float **held)
{
    bp_network_load_bytes bytes = bp_network_load_plan(self->network);

    self->slice_capacity = bp_network_slice_capacity(self->network);
    self->slices = bp_alloc("model.slices", self->slice_capacity, sizeof *self->slices);
    *held = self->held = bp_try_alloc("model.parameters", bytes.held, 1);
    if (bytes.staged > 0)
        self->staged = bp_try_alloc("model.staged", bytes.staged, 1);
    if (self->held == NULL || (bytes.staged > 0 && self->staged == NULL))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld parameters; use more tensor or "
                       "pipeline ranks",
                       (long long)self->network->floats);
    return BP_OK;
}

/* Parameters that are contiguous in their group remain so: fused products rely on it. */
static void place_group(loading *self, int g, int64_t *staged_floats)
{
    bp_group *group = &self->network->groups[g];

    for (int k = 0; k < group->count; k++) {
        bp_param *param = &group->params[k];
        int64_t floats = bp_param_floats(param);
        bool stays = is_held(self->network, param);
        int64_t *used = stays ? &self->held_floats : staged_floats;

        param->value = (stays ? self->held : self->staged) + *used;
        *used += floats;
        bp_network_slices(self->network, g, "", param->value, param->place, floats, self->slices,
                          &self->slice_count, self->slice_capacity);
    }
}

static void initialise_group(bp_group *group, uint64_t seed)
{
    for (int k = 0; k < group->count; k++)
        bp_param_initialise(&group->params[k], seed);
}

/* Clears the pointers to the staged values. */
static void forget_group(const loading *self, bp_group *group)
{
    for (int k = 0; k < group->count; k++)
        if (!is_held(self->network, &group->params[k]))
            group->params[k].value = NULL;
}

static void drop_weights(const loading *self, int block)
{
    for (int g = 0; g < self->network->group_count; g++) {
        const bp_group *group = &self->network->groups[g];

        for (int k = 0; k < group->count && group->block == block; k++) {
            const bp_param *param = &group->params[k];

            if (bp_dropconnect_drops(self->network, group, param))
                bp_dropconnect_apply(param->value, param->value, param, 0, bp_param_floats(param),
                                     self->drops);
        }
    }
}

/* Block k, or nothing if this rank has fewer blocks than another. */
static bp_err load_block(loading *self, int block, bp_checkpoint *checkpoint, uint64_t seed)
{
    bp_network *network = self->network;
    int64_t staged_floats = 0;
    bp_err err = BP_OK;

    self->slice_count = 0;
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].block == block)
            place_group(self, g, &staged_floats);
    if (checkpoint != NULL)
        err = bp_checkpoint_load(checkpoint, self->slices, self->slice_count);
    for (int g = 0; g < network->group_count && checkpoint == NULL; g++)
        if (network->groups[g].block == block)
            initialise_group(&network->groups[g], seed);
    if (err != BP_OK || block >= network->block_count)
        return err;
    if (self->drops && self->drops->rate > 0)
        drop_weights(self, block);
    err = network->blocks[block]->ops->bind(network->blocks[block]);
    if (err == BP_OK)
        bp_network_refresh_block(network, block);
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].block == block)
            forget_group(self, &network->groups[g]);
    return err;
}

bp_err bp_network_load(bp_network *network, MPI_Comm member, bp_checkpoint *checkpoint,
                       uint64_t seed, const bp_dropconnect *drops, float **held)
{
    loading self = {.network = network, .drops = drops};
    bp_err err = bp_agree(member, allocate(&self, held));
    int blocks = (int)bp_all_max_int(network->block_count, member);

    for (int block = 0; block < blocks && err == BP_OK; block++)
        err = bp_agree(member, load_block(&self, block, checkpoint, seed));
    bp_free(self.slices);
    bp_free(self.staged);
    return err;
}
