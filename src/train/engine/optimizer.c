/* The update of this data rank's shard (ZeRO stage 1): norm, clip, AdamW and others; then
 * parameters are gathered. */
#include "train/engine/optimizer.h"

#include "base/trace.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#include <string.h>

void bp_optimizer_shard(const bp_mesh *mesh, const bp_group *group, int64_t *first, int64_t *count)
{
    *count = group->padded / mesh->datas;
    *first = bp_shard_first(group->padded, mesh->data_at, mesh->datas);
}

/* The part of a parameter's slab that lies in this rank's shard of its group; false: none does. */
static bool find_run(bp_own_run *run, const bp_group *group, const bp_param *param, int64_t first,
                     int64_t count, int64_t moments_at)
{
    int64_t begin = param->place > first ? param->place : first;
    int64_t end = param->place + bp_param_floats(param);

    end = end < first + count ? end : first + count;
    *run = (bp_own_run){.param = param,
                        .replicated = group->replicated,
                        .value = group->place + begin,
                        .moment = moments_at + begin - first,
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

bp_err bp_optimizer_init(bp_optimizer *optimizer, const bp_mesh *mesh, bp_async *async,
                         bp_network *network, const bp_optimizer_rule *rule)
{
    int64_t most = (int64_t)network->group_count * BP_GROUP_PARAMS;

    memset(optimizer, 0, sizeof *optimizer);
    optimizer->rule = *rule;
    optimizer->mesh = mesh;
    optimizer->async = async;
    optimizer->network = network;
    optimizer->moments = rule->kind == BP_ADAMW ? 2 : 1;
    optimizer->floats = network->trained_floats / mesh->datas;
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
    return BP_OK;
}

void bp_optimizer_clear(bp_optimizer *optimizer)
{
    bp_free(optimizer->moment[0]);
    bp_free(optimizer->moment[1]);
    bp_free(optimizer->runs);
    bp_free(optimizer->sums);
    bp_free(optimizer->first_run);
    bp_free(optimizer->gathering);
    memset(optimizer, 0, sizeof *optimizer);
}

const char *bp_optimizer_prefix(const bp_optimizer *optimizer, int k)
{
    if (optimizer->rule.kind == BP_SGD)
        return "sgd.m/";
    return k == 0 ? "adamw.m/" : "adamw.v/";
}

static void note_change(bp_optimizer *optimizer, int run, const uint32_t sums[BP_SUMS])
{
    for (int k = 0; k < BP_SUMS && optimizer->changed < 0; k++)
        if (sums[k] != optimizer->sums[run][k]) {
            optimizer->changed = run;
            optimizer->changed_part = k;
        }
}

static void sum_run(const bp_optimizer *optimizer, int run, const float *values,
                    uint32_t sums[BP_SUMS])
{
    const bp_own_run *at = &optimizer->runs[run];

    memset(sums, 0, BP_SUMS * sizeof *sums);
    sums[BP_SUM_WEIGHT] = bp_bit_sum(values + at->value, at->count);
    for (int k = 0; k < optimizer->moments; k++)
        sums[BP_SUM_MOMENT + k] = bp_bit_sum(optimizer->moment[k] + at->moment, at->count);
}

void bp_optimizer_checksum(bp_optimizer *optimizer, float *values)
{
    optimizer->guarded = true;
    for (int k = 0; k < optimizer->run_count; k++)
        sum_run(optimizer, k, values, optimizer->sums[k]);
}

bool bp_optimizer_check(bp_optimizer *optimizer, float *values)
{
    for (int k = 0; k < optimizer->run_count && optimizer->guarded; k++) {
        uint32_t sums[BP_SUMS];

        sum_run(optimizer, k, values, sums);
        note_change(optimizer, k, sums);
    }
    return optimizer->changed < 0;
}

typedef struct update {
    double rate, scale;
    int64_t number; /* from 1 */
} update;

static bp_update_sums update_values(const bp_optimizer *optimizer, const bp_own_run *at, float *w,
                                    const float *g, const update *with)
{
    const bp_optimizer_rule *rule = &optimizer->rule;
    double decay = at->param->decays ? rule->weight_decay : 0;
    float *m = optimizer->moment[0] + at->moment;

    if (rule->kind == BP_SGD)
        return bp_sgd_update(w, m, g, at->count,
                             &(bp_sgd){.rate = with->rate,
                                       .momentum = rule->momentum,
                                       .decay = decay,
                                       .gradient_scale = with->scale});
    return bp_adamw_update(w, m, optimizer->moment[1] + at->moment, g, at->count,
                           &(bp_adamw){.rate = with->rate,
                                       .beta1 = rule->beta1,
                                       .beta2 = rule->beta2,
                                       .epsilon = rule->epsilon,
                                       .decay = decay,
                                       .gradient_scale = with->scale,
                                       .step = with->number});
}

/* The sums cost nothing: an update waits for memory. */
static void update_run(bp_optimizer *optimizer, int run, float *values, const float *gradients,
                       const update *with)
{
    const bp_own_run *at = &optimizer->runs[run];
    bp_update_sums sums =
        update_values(optimizer, at, values + at->value, gradients + at->value, with);

    if (!optimizer->guarded)
        return;
    note_change(optimizer, run, sums.before);
    memcpy(optimizer->sums[run], sums.after, sizeof sums.after);
}

void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t number)
{
    const bp_network *network = optimizer->network;
    const update with = {rate, scale, number};

    BP_TRACE(BP_TRACE_OPTIMIZER, 0, (8.0 * optimizer->moments + 12.0) * (double)optimizer->floats);
    for (int b = 0; b < network->block_count; b++)
        for (int g = 0; g < network->group_count; g++) {
            const bp_group *group = &network->groups[g];

            if (group->block != b || group->frozen)
                continue;
            for (int k = optimizer->first_run[g]; k < optimizer->first_run[g + 1]; k++)
                update_run(optimizer, k, values, gradients, &with);
            bp_inject_update(optimizer, values, g);
            optimizer->gathering[g] =
                bp_async_all_gather(optimizer->async, values + group->place, group->padded);
        }
}

void bp_optimizer_gathered(bp_optimizer *optimizer, int g)
{
    if (optimizer->gathering[g] >= 0)
        bp_async_wait(optimizer->async, optimizer->gathering[g]);
    optimizer->gathering[g] = -1;
}
