/* Sums of gradients over data ranks: reduce-scatter of each group as soon as its last block went
 * backward. Called by engine.c; then optimizers/update.c. */
#include "train/engine/gradient.h"

#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "train/optimizers/optimizer.h"

#include <math.h>
#include <string.h>

#define TAG_TIED 201

int64_t bp_gradient_scratch(const bp_mesh *mesh, const bp_network *network)
{
    int64_t most = 0;

    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];
        int64_t blocks = group->frozen ? 0 : group->padded / BP_NORM_BLOCK;
        int holders = bp_optimizer_holders(mesh, group);
        int64_t reduce = bp_reduce_scatter_scratch(blocks, holders) * BP_NORM_BLOCK;
        int64_t shard = bp_shard_count(blocks, 0, holders) * BP_NORM_BLOCK;
        /* two lists of float64, of experts those of all ranks */
        int64_t sums = 2 * 2 * (blocks * (mesh->data_ranks / holders) + 1);

        most = reduce > most ? reduce : most;
        most = shard > most ? shard : most;
        most = sums > most ? sums : most;
    }
    return most;
}

/* The first and the last stage exchange their shards of the tied group and add: a + b has the same
 * bits on both. */
static void sum_tied(const bp_mesh *mesh, float *shard, int64_t n, float *scratch)
{
    int partner = mesh->pipeline_rank == 0 ? mesh->pipeline_ranks - 1 : 0;
    int64_t bytes = n * (int64_t)sizeof(float);
    bp_transfer receive = {0}, send = {0};

    bp_recv_start(&receive, scratch, bytes, partner, TAG_TIED, mesh->pipeline);
    bp_send_start(&send, shard, bytes, partner, TAG_TIED, mesh->pipeline);
    bp_wait(&receive);
    bp_wait(&send);
    bp_add(shard, scratch, n);
}

/* Sums the copies in the runs of blocks of this stage and of all others, in order of runs, then of
 * stages, and gives each copy the sum. Group `g` is the first copy. */
static void sum_common(const bp_reduction *reduction, int g)
{
    const bp_network *network = reduction->network;
    const bp_group *own = &network->groups[g];
    int64_t first, count;

    bp_optimizer_shard(reduction->mesh, own, &first, &count);
    float *sum = reduction->gradients + own->place + first;
    for (int k = g + 1; k < network->group_count; k++)
        if (network->groups[k].common == own->common)
            bp_add(sum, reduction->gradients + network->groups[k].place + first, count);
    bp_all_sum(sum, count, reduction->scratch, reduction->mesh->pipeline);
    for (int k = g + 1; k < network->group_count; k++)
        if (network->groups[k].common == own->common)
            memcpy(reduction->gradients + network->groups[k].place + first, sum,
                   (size_t)count * sizeof *sum);
}

static bool is_first_copy(const bp_network *network, int g)
{
    int k = 0;

    while (network->groups[k].common != network->groups[g].common)
        k++;
    return k == g;
}

/* Neighbours first: as bp_reduce_scatter. */
static void sum_sources(const bp_group *group, float *sum)
{
    int n = group->sources;

    for (int step = 1; step < n; step *= 2)
        for (int s = 0; s + step < n; s += 2 * step)
            bp_add(sum + s * group->source_floats, sum + (s + step) * group->source_floats,
                   group->padded);
}

void bp_gradient_start(bp_reduction *reduction, int g)
{
    const bp_group *group = &reduction->network->groups[g];
    bool of_holders = group->sources > 1;
    float *sum = reduction->gradients + group->place;
    int64_t blocks = group->padded / BP_NORM_BLOCK;

    if (group->source_floats > 0)
        sum_sources(group, sum);
    if (!group->frozen)
        reduction->job = bp_async_reduce_scatter(reduction->async, sum, blocks, BP_NORM_BLOCK,
                                                 reduction->scratch, of_holders);
    if (!group->frozen && reduction->squares)
        reduction->job =
            bp_async_reduce_scatter(reduction->async, reduction->squares + group->place, blocks,
                                    BP_NORM_BLOCK, reduction->scratch, of_holders);
    reduction->started++;
}

void bp_gradient_finish(bp_reduction *reduction)
{
    const bp_mesh *mesh = reduction->mesh;
    const bp_network *network = reduction->network;

    BP_ASSERT(reduction->started == network->group_count);
    if (reduction->job >= 0)
        bp_async_wait(reduction->async, reduction->job);
    reduction->job = -1;
    reduction->started = 0;
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];
        int64_t first, count;

        if (group->frozen)
            continue;
        bp_optimizer_shard(mesh, group, &first, &count);
        float *shard = reduction->gradients + group->place + first;
        /* each tensor rank has seen only its share of the rows, or of the columns */
        if (group->replicated && (network->nn.sequence_parallel || group->partial))
            bp_all_sum(shard, count, reduction->scratch, mesh->tensor);
        if (group->tied)
            sum_tied(mesh, shard, count, reduction->scratch);
        if (group->common > 0 && is_first_copy(network, g))
            sum_common(reduction, g);
    }
}

/* The blocks of each data rank's shard, and the index of its first block among all blocks. For
 * experts, blocks of the first rank of mesh->expert come first. */
static void find_blocks(const bp_mesh *mesh, const bp_group *group, int *count, int *first)
{
    int holders = bp_optimizer_holders(mesh, group), parts = mesh->data_ranks / holders;
    int64_t blocks = group->padded / BP_NORM_BLOCK;

    for (int rank = 0; rank < mesh->data_ranks; rank++) {
        count[rank] = bp_mpi_count(bp_shard_count(blocks, rank / parts, holders));
        first[rank] =
            bp_mpi_count(bp_shard_first(blocks, rank / parts, holders) + rank % parts * blocks);
    }
}

/* Sum of squares of one group over all data ranks, block by block in index order. */
static double group_square_sum(const bp_mesh *mesh, const bp_group *group, const float *gradients,
                               double *sums, int *offsets)
{
    int64_t first, count,
        blocks =
            group->padded / BP_NORM_BLOCK * (mesh->data_ranks / bp_optimizer_holders(mesh, group));
    double *all = sums + blocks + 1, total = 0;

    bp_optimizer_shard(mesh, group, &first, &count);
    find_blocks(mesh, group, offsets, offsets + mesh->data_ranks);
    bp_square_sums(sums, gradients + group->place + first, count);
    BP_MPI_WAIT("all_gather",
                MPI_Allgatherv(sums, offsets[mesh->data_rank], MPI_DOUBLE, all, offsets,
                               offsets + mesh->data_ranks, MPI_DOUBLE, mesh->data));
    for (int64_t b = 0; b < blocks; b++)
        total += all[b];
    return total;
}

double bp_gradient_norm(const bp_mesh *mesh, const bp_network *network, const float *gradients,
                        float *scratch)
{
    int *offsets = bp_alloc("gradient", 2 * (int64_t)mesh->data_ranks, sizeof *offsets);
    double total = 0;

    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].published && !network->groups[g].frozen)
            total += group_square_sum(mesh, &network->groups[g], gradients,
                                      (double *)(void *)scratch, offsets);
    bp_free(offsets);
    bp_all_sum_double(&total, 1, mesh->model);
    return sqrt(total);
}
