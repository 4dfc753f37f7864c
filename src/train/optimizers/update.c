/* The update of this data rank's shard (ZeRO stage 1): the rule of one of the files in this folder,
 * chosen by table.c; then parameters are gathered. Called by engine.c, which has found the clip's
 * scale. */
#include "train/optimizers/totals.h"

#include "base/trace.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

int bp_optimizer_moments(const bp_optimizer_rule *rule)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(rule->kind);

    return row->moments ? row->moments(rule) : (row->prefix[0] != NULL) + (row->prefix[1] != NULL);
}

size_t bp_optimizer_more_bytes(const bp_optimizer_rule *rule, const bp_network *network)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(rule->kind);

    return row->totals ? bp_totals_bytes(row, network) : 0;
}

int64_t bp_optimizer_factor_floats(const bp_optimizer_rule *rule, const bp_network *network)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(rule->kind);

    return row->factors ? bp_totals_factors(row, network) / 2 : 0; /* the moving sums */
}

/* The part of a parameter's slice that is in this rank's shard of its group; false if it is
 * empty. */
static bool find_run(bp_own_run *run, const bp_group *group, const bp_param *param, int64_t first,
                     int64_t count, int64_t moments_at)
{
    int64_t begin = param->place > first ? param->place : first;
    int64_t end = param->place + bp_param_floats(param);

    end = end < first + count ? end : first + count;
    *run = (bp_own_run){.param = param,
                        .replicated = group->replicated,
                        .depth = group->depth,
                        .value = group->place + begin,
                        .moment = moments_at + begin - first,
                        .within = begin - param->place,
                        .count = end - begin};
    return begin < end;
}

static void list_runs(bp_optimizer *optimizer)
{
    const bp_network *network = optimizer->network;
    int64_t moments_at = 0;

    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];
        int64_t first, count;

        bp_optimizer_shard(optimizer->mesh, group, &first, &count);
        optimizer->first_run[g] = optimizer->run_count;
        optimizer->gathering[g] = -1;
        if (group->frozen)
            continue;
        for (int k = 0; k < group->count; k++)
            optimizer->run_count += find_run(&optimizer->runs[optimizer->run_count], group,
                                             &group->params[k], first, count, moments_at);
        moments_at += count;
    }
    optimizer->first_run[network->group_count] = optimizer->run_count;
}

int64_t bp_optimizer_floats(const bp_mesh *mesh, const bp_network *network)
{
    int64_t floats = 0, first, count;

    for (int g = 0; g < network->group_count; g++) {
        bp_optimizer_shard(mesh, &network->groups[g], &first, &count);
        floats += network->groups[g].frozen ? 0 : count;
    }
    return floats;
}

static int64_t count_params(const bp_network *network)
{
    int64_t count = 1;

    for (int g = 0; g < network->group_count; g++)
        count += network->groups[g].count;
    return count;
}

bp_err bp_optimizer_init(bp_optimizer *optimizer, const bp_mesh *mesh, bp_async *async,
                         bp_network *network, const bp_optimizer_rule *rule)
{
    int64_t most = count_params(network);

    BP_ASSERT(!bp_optimizer_row_of(rule->kind)->samples || rule->data > 0);
    memset(optimizer, 0, sizeof *optimizer);
    optimizer->rule = *rule;
    optimizer->row = bp_optimizer_row_of(rule->kind);
    optimizer->mesh = mesh;
    optimizer->async = async;
    optimizer->network = network;
    optimizer->moments = bp_optimizer_moments(rule);
    optimizer->floats = bp_optimizer_floats(mesh, network);
    optimizer->changed = -1;
    optimizer->runs = bp_alloc("optimizer.runs", most, sizeof *optimizer->runs);
    optimizer->sums = bp_alloc("optimizer.runs", most, sizeof *optimizer->sums);
    optimizer->first_run =
        bp_alloc("optimizer.runs", network->group_count + 1, sizeof *optimizer->first_run);
    optimizer->gathering =
        bp_alloc("optimizer.runs", network->group_count, sizeof *optimizer->gathering);
    list_runs(optimizer);
    for (int k = 0; k < optimizer->moments; k++) {
        optimizer->moment[k] = bp_try_alloc("optimizer", optimizer->floats, sizeof(float));
        if (!optimizer->moment[k])
            return BP_FAIL(
                BP_ERR_SYSTEM, "memory.short",
                "memory is short: at %lld optimizer moments; use more data ranks, which share them",
                (long long)optimizer->floats);
    }
    return bp_totals_init(optimizer);
}

void bp_optimizer_clear(bp_optimizer *optimizer)
{
    bp_free(optimizer->moment[0]);
    bp_free(optimizer->moment[1]);
    bp_free(optimizer->totals);
    bp_free(optimizer->scratch);
    bp_free(optimizer->factors);
    bp_free(optimizer->runs);
    bp_free(optimizer->sums);
    bp_free(optimizer->first_run);
    bp_free(optimizer->gathering);
    memset(optimizer, 0, sizeof *optimizer);
}

const char *bp_optimizer_prefix(const bp_optimizer *optimizer, int k)
{
    return optimizer->row->prefix[k];
}

void bp_optimizer_factor_slices(const bp_optimizer *optimizer, int g, bool to_save,
                                bp_slice *slices, int64_t *used, int64_t capacity)
{
    const bp_optimizer_row *row = optimizer->row;

    if (row->slices)
        row->slices(optimizer, g, to_save, slices, used, capacity);
}

/* Have its bits changed since the previous update? For rules that do not sum them themselves. */
static void check_run(bp_optimizer *optimizer, int k, const float *values)
{
    uint32_t before[BP_SUMS];

    bp_optimizer_sum_run(optimizer, k, values, before);
    bp_optimizer_note_change(optimizer, k, before);
}

static void update_run(bp_optimizer *optimizer, int k, float *values, const float *gradients,
                       const bp_update *all)
{
    const bp_optimizer_row *row = optimizer->row;
    const bp_own_run *run = &optimizer->runs[k];
    bp_updated at = bp_optimizer_at(optimizer, run, values, gradients);
    double decay = optimizer->rule.layer_decay;
    bp_update with = *all;

    if (decay > 0 && decay < 1)
        with.rate *= pow(decay, (double)run->depth);
    if (row->apply) {
        if (optimizer->checksummed && !row->prepare) /* which comes after the checks of all runs */
            check_run(optimizer, k, values);
        row->apply(optimizer, run, &at, &with);
        if (optimizer->checksummed)
            bp_optimizer_sum_run(optimizer, k, values, optimizer->sums[k]);
        return;
    }
    bp_update_sums sums = row->update(optimizer, run, &at, &with);
    if (!optimizer->checksummed)
        return;
    bp_optimizer_note_change(optimizer, k, sums.before);
    memcpy(optimizer->sums[k], sums.after, sizeof sums.after);
}

void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t number)
{
    const bp_network *network = optimizer->network;
    const bp_optimizer_row *row = optimizer->row;
    const bp_update with = {rate, scale, number};

    BP_TRACE(BP_TRACE_OPTIMIZER, 0, (8.0 * optimizer->moments + 12.0) * (double)optimizer->floats);
    for (int k = 0; row->prepare && optimizer->checksummed && k < optimizer->run_count; k++)
        check_run(optimizer, k, values);
    if (row->prepare)
        row->prepare(optimizer, values, gradients, &with);
    for (int b = 0; b < network->block_count; b++)
        for (int g = 0; g < network->group_count; g++) {
            const bp_group *group = &network->groups[g];

            if (group->block != b || group->frozen)
                continue;
            for (int k = optimizer->first_run[g]; k < optimizer->first_run[g + 1]; k++)
                update_run(optimizer, k, values, gradients, &with);
            bp_inject_update(optimizer, values, g);
            bp_optimizer_gather(optimizer, values, g);
        }
}

void bp_optimizer_gather(bp_optimizer *optimizer, float *values, int g)
{
    const bp_group *group = &optimizer->network->groups[g];

    optimizer->gathering[g] =
        bp_async_all_gather(optimizer->async, values + group->place, group->padded / BP_NORM_BLOCK,
                            BP_NORM_BLOCK, group->sources > 1);
}

void bp_optimizer_gathered(bp_optimizer *optimizer, int g)
{
    if (optimizer->gathering[g] >= 0)
        bp_async_wait(optimizer->async, optimizer->gathering[g]);
    optimizer->gathering[g] = -1;
}
