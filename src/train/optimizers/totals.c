/* Sums over whole parameters, across ranks. Called by lamb.c and adafactor.c, and by update.c at
 * the start.
 *
 * Sums are made in the order of the elements, on any mesh: the owner of a group's first shard adds
 * up its own elements and sends the sum to the holder of the next shard, which continues it;
 * meanwhile it begins the next group. So the bits are the same at any number of data ranks. The
 * owner of the last shards broadcasts the sum; then tensor ranks add their parts. */
#include "train/optimizers/totals.h"

#include "mesh/collective.h"

#define TAG_TOTALS 203

int64_t bp_totals_rows(const bp_param *param)
{
    return param->dims == 2 ? param->extent[0] : 1;
}

int64_t bp_totals_columns(const bp_param *param)
{
    return param->extent[param->dims - 1];
}

static bp_totals_place place_of(const bp_optimizer_row *row, const bp_param *param,
                                const bp_totals_place *before)
{
    return (bp_totals_place){.total = before->total + before->totals,
                             .totals = row->totals(param),
                             .factor = before->factor + before->factors,
                             .factors = row->factors ? row->factors(param) : 0};
}

bp_totals_place bp_totals_find(const bp_optimizer_row *row, const bp_network *network, int g, int k)
{
    bp_totals_place at = {0};

    for (int i = 0; i <= g; i++)
        for (int j = 0; j < (i < g ? network->groups[i].count : k + 1); j++)
            if (!network->groups[i].frozen)
                at = place_of(row, &network->groups[i].params[j], &at);
    return at;
}

static bp_totals_place whole(const bp_optimizer_row *row, const bp_network *network)
{
    int last = network->group_count - 1;

    if (last < 0)
        return (bp_totals_place){0};
    return bp_totals_find(row, network, last, network->groups[last].count - 1);
}

static int64_t scratch_count(const bp_network *network)
{
    int64_t most = 0;

    for (int g = 0; g < network->group_count; g++)
        most = network->groups[g].padded > most ? network->groups[g].padded : most;
    return 2 * bp_block_pieces(most);
}

size_t bp_totals_bytes(const bp_optimizer_row *row, const bp_network *network)
{
    bp_totals_place all = whole(row, network);

    return (size_t)(all.total + all.totals + scratch_count(network)) * sizeof(double) +
           (size_t)(all.factor + all.factors) * sizeof(float);
}

int64_t bp_totals_factors(const bp_optimizer_row *row, const bp_network *network)
{
    bp_totals_place all = whole(row, network);

    return all.factor + all.factors;
}

bp_err bp_totals_init(bp_optimizer *optimizer)
{
    const bp_network *network = optimizer->network;
    const bp_optimizer_row *row = optimizer->row;
    bp_totals_place all, at = {0};

    if (!row->totals)
        return BP_OK;
    all = whole(row, network);
    for (int g = 0, run = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && !network->groups[g].frozen; k++) {
            const bp_param *param = &network->groups[g].params[k];

            at = place_of(row, param, &at);
            if (run < optimizer->run_count && optimizer->runs[run].param == param) {
                optimizer->runs[run].total = at.total;
                optimizer->runs[run++].factor = at.factor;
            }
        }
    optimizer->totals = bp_try_alloc("optimizer", all.total + all.totals, sizeof(double));
    optimizer->scratch = bp_try_alloc("optimizer", scratch_count(network), sizeof(double));
    if (row->factors)
        optimizer->factors = bp_try_alloc("optimizer", all.factor + all.factors, sizeof(float));
    if (!optimizer->totals || !optimizer->scratch || (row->factors && !optimizer->factors))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld sums over parameters; use more tensor or pipeline "
                       "ranks, see --plan",
                       (long long)(all.total + all.totals));
    return BP_OK;
}

/* ---- sums over all of a parameter ---- */

/* The data rank that holds shard `index` of each group, in the order of their elements. */
static int holder_of(const bp_mesh *mesh, int index)
{
    int rank = 0;

    while (bp_shard_first(mesh->data_ranks, rank, mesh->data_ranks) != index)
        rank++;
    return rank;
}

static void sum_group(const bp_summing *s, int g, bp_totals_add add, int index)
{
    bp_optimizer *optimizer = s->optimizer;
    const bp_mesh *mesh = optimizer->mesh;
    const bp_group *group = &optimizer->network->groups[g];
    const bp_optimizer_row *row = optimizer->row;
    bp_totals_place first = bp_totals_find(row, optimizer->network, g, 0),
                    last = bp_totals_find(row, optimizer->network, g, group->count - 1);
    double *totals = optimizer->totals + first.total;
    int64_t bytes = (last.total + last.totals - first.total) * (int64_t)sizeof *totals;

    if (index > 0)
        bp_recv(totals, bytes, holder_of(mesh, index - 1), TAG_TOTALS, mesh->data);
    for (int k = optimizer->first_run[g]; k < optimizer->first_run[g + 1]; k++) {
        const bp_own_run *run = &optimizer->runs[k];
        bp_updated at = bp_optimizer_at(optimizer, run, s->values, s->gradients);

        add(s, run, &at);
    }
    if (index < mesh->data_ranks - 1)
        bp_send(totals, bytes, holder_of(mesh, index + 1), TAG_TOTALS, mesh->data);
}

void bp_totals_over_data(const bp_summing *s, bp_totals_add add)
{
    bp_optimizer *optimizer = s->optimizer;
    const bp_mesh *mesh = optimizer->mesh;
    bp_totals_place all = whole(optimizer->row, optimizer->network);
    int index = (int)bp_shard_first(mesh->data_ranks, mesh->data_rank, mesh->data_ranks);

    for (int g = 0; g < optimizer->network->group_count; g++)
        if (!optimizer->network->groups[g].frozen && optimizer->network->groups[g].count > 0)
            sum_group(s, g, add, index);
    if (mesh->data_ranks > 1)
        bp_bcast_bytes(optimizer->totals,
                       (all.total + all.totals) * (int64_t)sizeof *optimizer->totals,
                       holder_of(mesh, mesh->data_ranks - 1), mesh->data);
}

bool bp_totals_by_columns(const bp_group *group, const bp_param *param)
{
    return !group->replicated && param->dims == 2 && param->extent[1] < param->shape[1];
}

void bp_totals_each(bp_optimizer *optimizer, void *context, bp_totals_visit visit)
{
    const bp_network *network = optimizer->network;
    const bp_optimizer_row *row = optimizer->row;
    bp_totals_place at = {0};

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && !network->groups[g].frozen; k++) {
            at = place_of(row, &network->groups[g].params[k], &at);
            visit(optimizer, context, &network->groups[g], &network->groups[g].params[k], &at);
        }
}

void bp_totals_over_tensor(bp_optimizer *optimizer, void *context, const bp_group *group,
                           const bp_param *param, const bp_totals_place *at)
{
    const bp_mesh *mesh = optimizer->mesh;

    (void)context, (void)param;
    if (mesh->tensor_ranks > 1 && !group->replicated)
        bp_all_sum_double(optimizer->totals + at->total, BP_TOTALS_LEAST, mesh->tensor);
}

void bp_totals_clear(bp_optimizer *optimizer)
{
    bp_totals_place all = whole(optimizer->row, optimizer->network);

    for (int64_t k = 0; k < all.total + all.totals; k++)
        optimizer->totals[k] = 0;
}
