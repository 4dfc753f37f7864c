#include "engine/optimizer.h"

#include "math/kernels.h"
#include "mesh/collective.h"

#include <string.h>

void bp_optimizer_shard(const bp_mesh *mesh, const bp_group *group, int64_t *first, int64_t *count)
{
    *count = group->padded / mesh->datas;
    *first = bp_shard_first(group->padded, mesh->data_at, mesh->datas);
}

bp_err bp_optimizer_init(bp_optimizer *optimizer, const bp_mesh *mesh, bp_network *network,
                         const bp_optimizer_rule *rule)
{
    memset(optimizer, 0, sizeof *optimizer);
    optimizer->rule = *rule;
    optimizer->mesh = mesh;
    optimizer->network = network;
    optimizer->moments = rule->kind == BP_ADAMW ? 2 : 1;
    optimizer->floats = network->floats / mesh->datas;
    for (int k = 0; k < optimizer->moments; k++) {
        optimizer->moment[k] = bp_alloc("optimizer", optimizer->floats, sizeof(float));
        if (!optimizer->moment[k])
            return BP_FAIL(
                BP_ERR_SYSTEM,
                "memory is short: at %lld optimizer moments; use more data ranks, which share them",
                (long long)optimizer->floats);
    }
    return BP_OK;
}

void bp_optimizer_clear(bp_optimizer *optimizer)
{
    bp_free(optimizer->moment[0]);
    bp_free(optimizer->moment[1]);
    memset(optimizer, 0, sizeof *optimizer);
}

const char *bp_optimizer_prefix(const bp_optimizer *optimizer, int k)
{
    if (optimizer->rule.kind == BP_SGD)
        return "sgd.m/";
    return k == 0 ? "adamw.m/" : "adamw.v/";
}

/* Part of one parameter: decay differs from parameter to parameter. */
static void update_run(const bp_optimizer *optimizer, float *w, float *m, float *v, const float *g,
                       int64_t n, double rate, double scale, bool decays, int64_t update)
{
    const bp_optimizer_rule *rule = &optimizer->rule;
    double decay = decays ? rule->weight_decay : 0;

    if (rule->kind == BP_SGD) {
        bp_sgd sgd = {
            .rate = rate, .momentum = rule->momentum, .decay = decay, .gradient_scale = scale};
        bp_sgd_update(w, m, g, n, &sgd);
    } else {
        bp_adamw adamw = {.rate = rate,
                          .beta1 = rule->beta1,
                          .beta2 = rule->beta2,
                          .epsilon = rule->epsilon,
                          .decay = decay,
                          .gradient_scale = scale,
                          .step = update};
        bp_adamw_update(w, m, v, g, n, &adamw);
    }
}

void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t update)
{
    bp_network *network = optimizer->network;
    int64_t moments_at = 0;

    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];
        int64_t first, count;

        bp_optimizer_shard(optimizer->mesh, group, &first, &count);
        for (int k = 0; k < group->count; k++) {
            const bp_param *param = &group->params[k];
            int64_t begin = param->place > first ? param->place : first;
            int64_t end = param->place + bp_param_floats(param);
            int64_t moment = moments_at + begin - first;

            end = end < first + count ? end : first + count;
            if (begin < end)
                update_run(optimizer, values + group->place + begin, optimizer->moment[0] + moment,
                           optimizer->moment[1] ? optimizer->moment[1] + moment : NULL,
                           gradients + group->place + begin, end - begin, rate, scale,
                           param->decays, update);
        }
        moments_at += count;
        bp_all_gather_shards(values + group->place, group->padded, optimizer->mesh->data);
    }
}
