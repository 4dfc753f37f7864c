/* Weights that are dropped at random. */
#include "models/network/dropconnect.h"

#include "base/files/hash.h"
#include "base/rng.h"
#include "math/kernels/kernels.h"

#include <string.h>

bool bp_dropconnect_drops(const bp_network *network, const bp_group *group, const bp_param *param)
{
    return param->dims == 2 && !group->added && !group->tied && group->common == 0 &&
           strcmp(bp_block_inner(network->blocks[group->block])->ops->kind, "transformer_layer") ==
               0;
}

/* Does a network of this shape have weights that can be dropped? */
static bool is_droppable(const bp_model_shape *shape)
{
    const bp_nn nn = {.tensor = MPI_COMM_NULL, .tensor_ranks = 1};
    bp_network *network = NULL;
    bool found = false;

    if (bp_model_blocks(shape) == 0 || bp_model_network_new(&network, &nn, shape, 0, 1) != BP_OK)
        return false;
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            found = found || bp_dropconnect_drops(network, &network->groups[g],
                                                  &network->groups[g].params[k]);
    bp_network_free(&network);
    return found;
}

bp_err bp_dropconnect_check(const bp_model_shape *shape, double rate, const char *key)
{
    if (rate == 0 || is_droppable(shape))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "model.no_dropconnect",
                   "weights of Transformer layers are dropped, with the rate %g, and model.kind = "
                   "%s has none: at %s; leave it out",
                   rate, shape->family->name, key);
}

void bp_dropconnect_apply(float *y, const float *x, const bp_param *param, int64_t first,
                          int64_t count, const bp_dropconnect *with)
{
    bp_rng_key key = bp_rng_key_of(with->seed, BP_RNG_DROPOUT, with->training ? -1 : -2, with->draw,
                                   (int64_t)bp_xxh3(param->name, strlen(param->name)));
    int64_t columns = param->extent[1], all = param->shape[1];

    for (int64_t i = first, n; i < first + count;
         i += n) { /* places continue to the end of a row */
        n = columns == all ? count : columns - i % columns;
        n = n < first + count - i ? n : first + count - i;
        bp_add_dropout(y + (i - first), NULL, x + (i - first), n, with->rate, &key,
                       (param->offset[0] + i / columns) * all + param->offset[1] + i % columns);
    }
}

void bp_dropconnect_copy(const bp_network *network, int block, const float *values,
                         const bp_dropconnect *with)
{
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        for (int k = 0; k < group->count && group->block == block; k++) {
            const bp_param *param = &group->params[k];
            const float *from = values + group->place + param->place;
            int64_t n = bp_param_floats(param);

            if (with->rate > 0 && bp_dropconnect_drops(network, group, param))
                bp_dropconnect_apply(param->value, from, param, 0, n, with);
            else
                memcpy(param->value, from, (size_t)n * sizeof *from);
        }
    }
}
