/* Silent data corruption: digests of what ranks hold in common, compared after a step, and which
 * rank differs. Called by engine.c. */
#include "train/engine/corruption.h"

#include "base/files/hash.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <stdio.h>
#include <string.h>

#define CHUNK (1 << 18) /* floats hashed at a time */

/* Which groups ranks of one axis hold in common. */
typedef bool (*chooser)(const bp_group *group);

/* Other data ranks may hold other experts. */
static bool of_all(const bp_group *group)
{
    return group->sources <= 1;
}

static bool of_holders(const bp_group *group)
{
    return group->sources > 1;
}

static bool replicated(const bp_group *group)
{
    return group->replicated;
}

static bool tied(const bp_group *group)
{
    return group->tied;
}

static bool common(const bp_group *group)
{
    return group->common > 0;
}

/* The same at any number of threads. */
static uint64_t digest_of(const float *values, int64_t n)
{
    uint64_t sum = 0;

#pragma omp parallel for schedule(static) reduction(+ : sum) if (n > CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;
        uint64_t placed[2] = {(uint64_t)first,
                              bp_xxh3(values + first, (size_t)count * sizeof *values)};

        sum += bp_xxh3(placed, sizeof placed); /* of its place too: chunks can't change places */
    }
    return sum;
}

/* One rank's digest of one tensor, as a message. */
typedef struct vote {
    uint64_t digest;
    int64_t holds; /* middle stages have no part in the tied group */
    int64_t rank;  /* in world */
    char host[BP_CORRUPTION_HOST];
} vote;

void bp_corruption_own(bp_corruption *corruption, const bp_mesh *mesh)
{
    corruption->holders = corruption->suspects = 1;
    corruption->ranks[0] = mesh->rank;
    bp_host_name(corruption->hosts[0], sizeof corruption->hosts[0]);
}

/* How many ranks have the same bits as rank k. */
static int supporters(const vote *votes, int size, int k)
{
    int count = 0;

    for (int j = 0; j < size; j++)
        count += votes[j].holds && votes[j].digest == votes[k].digest;
    return count;
}

/* Finds the ranks that differ from the majority; all ranks if there is no majority. Returns false
 * if all agree. */
static bool count_votes(bp_corruption *out, const vote *votes, int size)
{
    int most = -1;

    out->holders = out->suspects = 0;
    for (int k = 0; k < size; k++) {
        out->holders += votes[k].holds != 0;
        if (votes[k].holds &&
            (most < 0 || supporters(votes, size, k) > supporters(votes, size, most)))
            most = k;
    }
    if (most < 0 || supporters(votes, size, most) == out->holders)
        return false;
    bool majority = 2 * supporters(votes, size, most) > out->holders;
    for (int k = 0; k < size; k++) {
        if (!votes[k].holds || (majority && votes[k].digest == votes[most].digest))
            continue;
        if (out->suspects < BP_CORRUPTION_RANKS) {
            out->ranks[out->suspects] = (int)votes[k].rank;
            snprintf(out->hosts[out->suspects], BP_CORRUPTION_HOST, "%s", votes[k].host);
        }
        out->suspects++;
    }
    return true;
}

/* Parameter k of the chosen groups, counted across groups; NULL if there are fewer. */
static const bp_param *chosen_param(const bp_network *network, chooser chosen, int k)
{
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        if (!chosen(group))
            continue;
        if (k < group->count)
            return &group->params[k];
        k -= group->count;
    }
    return NULL;
}

/* Digests differ on this axis: by which tensor first, and which rank's bits differ from all
 * others? */
static void find_culprit(bp_corruption *out, const bp_mesh *mesh, const bp_network *network,
                         chooser chosen, MPI_Comm axis)
{
    int size = bp_comm_size(axis);
    vote own = {.rank = mesh->rank}, *votes = bp_alloc("corruption", size, sizeof *votes);
    bool found = false;

    bp_host_name(own.host, sizeof own.host);
    for (int k = 0; !found; k++) {
        const bp_param *param = chosen_param(network, chosen, k);

        if (bp_all_max_int(param != NULL, axis) == 0)
            break;
        own.holds = param != NULL;
        own.digest = param ? digest_of(param->value, bp_param_floats(param)) : 0;
        BP_MPI_WAIT("all_gather", MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, votes,
                                                (int)sizeof own, MPI_BYTE, axis));
        found = count_votes(out, votes, size);
        if (found && param)
            snprintf(out->tensor, sizeof out->tensor, "%s", param->name);
    }
    out->found = found && own.holds;
    out->differs = true;
    bp_free(votes);
}

/* One small reduction while all is well. */
static void compare_axis(bp_corruption *out, const bp_mesh *mesh, const bp_network *network,
                         chooser chosen, MPI_Comm axis)
{
    uint64_t highest[2] = {0, 0}; /* of the digests, and of their complements: the lowest */
    uint64_t sum = 0;
    bool any = false;

    if (bp_comm_size(axis) == 1)
        return;
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        if (!chosen(group) || group->count == 0)
            continue;
        /* a group's params are contiguous; its padding holds nothing */
        sum = sum * UINT64_C(0x9e3779b97f4a7c15) + digest_of(group->params[0].value, group->floats);
        any = true;
    }
    if (any) {
        highest[0] = sum;
        highest[1] = ~sum;
    }
    BP_MPI_WAIT("all_max", MPI_Allreduce(MPI_IN_PLACE, highest, 2, MPI_UINT64_T, MPI_MAX, axis));
    if (highest[0] != ~highest[1] && (highest[0] | highest[1]) != 0) {
        bp_corruption found = {.step = out->step};

        find_culprit(&found, mesh, network, chosen, axis);
        if (found.found && !out->found)
            *out = found;
    }
}

void bp_corruption_compare(bp_corruption *out, const bp_mesh *mesh, const bp_network *network)
{
    compare_axis(out, mesh, network, of_all, mesh->data);
    if (mesh->expert_ranks > 1)
        compare_axis(out, mesh, network, of_holders, mesh->expert_data);
    compare_axis(out, mesh, network, replicated, mesh->tensor);
    compare_axis(out, mesh, network, tied, mesh->pipeline);
    if (chosen_param(network, common, 0)) /* equal on all stages */
        compare_axis(out, mesh, network, common, mesh->pipeline);
}
