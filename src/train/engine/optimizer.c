/* The update of this data rank's shard (ZeRO stage 1): norm, clip, AdamW and others; then
 * parameters are gathered. Called by engine.c after gradient.c. */
#include "train/engine/optimizer_priv.h"

#include "base/trace.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

const bp_optimizer_row bp_optimizer_rows[BP_OPTIMIZERS] = {
    [BP_ADAMW] = {"adamw", {"adamw.m/", "adamw.v/"}, NULL, NULL},
    [BP_SGD] = {"sgd", {"sgd.m/"}, NULL, NULL},
    [BP_ADAGRAD] = {"adagrad", {"adagrad.v/"}, "1e-10", NULL},
    [BP_ADADELTA] = {"adadelta", {"adadelta.v/", "adadelta.u/"}, "1e-6", NULL},
    [BP_RMSPROP] = {"rmsprop", {"rmsprop.v/", "rmsprop.m/"}, "1e-8", "0"},
    [BP_LAMB] = {"lamb", {"lamb.m/", "lamb.v/"}, "1e-6", NULL},
    [BP_ADAFACTOR] = {"adafactor", {NULL}, "1e-30", NULL},
    [BP_SGLD] = {"sgld", {NULL}, .clip = "0", .decay = "constant", .samples = true},
    [BP_VOGN] = {"vogn",
                 {"vogn.mean/", "vogn.s/"},
                 .clip = "0",
                 .beta2 = "0.999",
                 .samples = true,
                 .squares = true},
};

int bp_optimizer_moments(const bp_optimizer_rule *rule)
{
    const bp_optimizer_row *row = &bp_optimizer_rows[rule->kind];

    return (row->prefix[0] != NULL) +
           (row->prefix[1] != NULL && !(rule->kind == BP_RMSPROP && rule->momentum == 0));
}

/* The part of a parameter's slab that is in this rank's shard of its group; false: none is. */
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
    int64_t floats = 0;

    for (int g = 0; g < network->group_count; g++)
        if (!network->groups[g].frozen)
            floats += network->groups[g].padded / bp_optimizer_holders(mesh, &network->groups[g]);
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

    BP_ASSERT(!bp_optimizer_rows[rule->kind].samples || rule->data > 0);
    memset(optimizer, 0, sizeof *optimizer);
    optimizer->rule = *rule;
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
    return bp_optimizer_layerwise_init(optimizer);
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
    return bp_optimizer_rows[optimizer->rule.kind].prefix[k];
}

static bp_update_sums update_values(const bp_optimizer *optimizer, const bp_own_run *run,
                                    const bp_updated *at, const bp_update *with)
{
    const bp_optimizer_rule *rule = &optimizer->rule;
    bp_adamw adam = bp_optimizer_adam(rule, run, with);
    bp_torch_rule torch = {.rate = with->rate,
                           .keep = rule->kind == BP_ADADELTA ? rule->rho : rule->alpha,
                           .momentum = rule->momentum,
                           .epsilon = rule->epsilon,
                           .decay = adam.decay,
                           .gradient_scale = with->scale};

    switch (rule->kind) {
    case BP_SGD:
        return bp_sgd_update(at, &torch);
    case BP_ADAGRAD:
        return bp_adagrad_update(at, &torch);
    case BP_ADADELTA:
        return bp_adadelta_update(at, &torch);
    case BP_RMSPROP:
        return bp_rmsprop_update(at, &torch);
    default:
        return bp_adamw_update(at->w, at->m, at->v, at->g, at->n, &adam);
    }
}

/* The sums cost no time: an update is bound by memory. */
static void update_run(bp_optimizer *optimizer, int k, float *values, const float *gradients,
                       const bp_update *all)
{
    const bp_own_run *run = &optimizer->runs[k];
    bp_updated at = bp_optimizer_at(optimizer, run, values, gradients);
    double decay = optimizer->rule.layer_decay;
    bp_update with = *all;
    bool samples = bp_optimizer_rows[optimizer->rule.kind].samples;

    if (samples && optimizer->guarded) {
        uint32_t before[BP_SUMS];

        bp_optimizer_sum_run(optimizer, k, values, before);
        bp_optimizer_note_change(optimizer, k, before);
    }
    if (decay > 0 && decay < 1)
        with.rate *= pow(decay, (double)run->depth);
    if (samples || bp_optimizer_is_layerwise(&optimizer->rule)) {
        if (optimizer->rule.kind == BP_VOGN)
            bp_optimizer_vogn(optimizer, run, &at, &with);
        else if (samples)
            bp_optimizer_langevin(&optimizer->rule, run, &at, &with);
        else
            bp_optimizer_layerwise_apply(optimizer, run, &at, &with);
        if (optimizer->guarded)
            bp_optimizer_sum_run(optimizer, k, values, optimizer->sums[k]);
        return;
    }
    bp_update_sums sums = update_values(optimizer, run, &at, &with);
    if (!optimizer->guarded)
        return;
    bp_optimizer_note_change(optimizer, k, sums.before);
    memcpy(optimizer->sums[k], sums.after, sizeof sums.after);
}

void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t number)
{
    const bp_network *network = optimizer->network;
    const bp_update with = {rate, scale, number};

    BP_TRACE(BP_TRACE_OPTIMIZER, 0, (8.0 * optimizer->moments + 12.0) * (double)optimizer->floats);
    if (bp_optimizer_is_layerwise(&optimizer->rule))
        bp_optimizer_layerwise_prepare(optimizer, values, gradients, &with);
    for (int b = 0; b < network->block_count; b++)
        for (int g = 0; g < network->group_count; g++) {
            const bp_group *group = &network->groups[g];

            if (group->block != b || group->frozen)
                continue;
            for (int k = optimizer->first_run[g]; k < optimizer->first_run[g + 1]; k++)
                update_run(optimizer, k, values, gradients, &with);
            bp_inject_update(optimizer, values, g);
            optimizer->gathering[g] = bp_async_all_gather(optimizer->async, values + group->place,
                                                          group->padded, group->sources > 1);
        }
}

void bp_optimizer_gathered(bp_optimizer *optimizer, int g)
{
    if (optimizer->gathering[g] >= 0)
        bp_async_wait(optimizer->async, optimizer->gathering[g]);
    optimizer->gathering[g] = -1;
}
