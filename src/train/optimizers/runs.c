/* The runs of parameters that a data rank updates: where they are, and the sums of their bits. The
 * rules of all optimizers use them. */
#include "train/optimizers/optimizer_priv.h"

#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#include <string.h>

void bp_optimizer_shard(const bp_mesh *mesh, const bp_group *group, int64_t *first, int64_t *count)
{
    int holders = bp_optimizer_holders(mesh, group);
    int at = mesh->data_rank / (mesh->data_ranks / holders);
    int64_t blocks = group->padded / BP_NORM_BLOCK;

    *first = bp_shard_first(blocks, at, holders) * BP_NORM_BLOCK;
    *count = bp_shard_count(blocks, at, holders) * BP_NORM_BLOCK;
}

void bp_optimizer_note_change(bp_optimizer *optimizer, int run, const uint32_t sums[BP_SUMS])
{
    for (int k = 0; k < BP_SUMS && optimizer->changed < 0; k++)
        if (sums[k] != optimizer->sums[run][k]) {
            optimizer->changed = run;
            optimizer->changed_part = k;
        }
}

void bp_optimizer_sum_run(const bp_optimizer *optimizer, int run, const float *values,
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
    optimizer->checksummed = true;
    for (int k = 0; k < optimizer->run_count; k++)
        bp_optimizer_sum_run(optimizer, k, values, optimizer->sums[k]);
}

bool bp_optimizer_check(bp_optimizer *optimizer, float *values)
{
    for (int k = 0; k < optimizer->run_count && optimizer->checksummed; k++) {
        uint32_t sums[BP_SUMS];

        bp_optimizer_sum_run(optimizer, k, values, sums);
        bp_optimizer_note_change(optimizer, k, sums);
    }
    return optimizer->changed < 0;
}

bp_updated bp_optimizer_at(const bp_optimizer *optimizer, const bp_own_run *run, float *values,
                           const float *gradients)
{
    return (bp_updated){.w = values + run->value,
                        .m = optimizer->moments > 0 ? optimizer->moment[0] + run->moment : NULL,
                        .v = optimizer->moments > 1 ? optimizer->moment[1] + run->moment : NULL,
                        .g = gradients + run->value,
                        .n = run->count};
}

bp_adamw bp_optimizer_adam(const bp_optimizer_rule *rule, const bp_own_run *run,
                           const bp_update *with)
{
    return (bp_adamw){.rate = with->rate,
                      .beta1 = rule->beta1,
                      .beta2 = rule->beta2,
                      .epsilon = rule->epsilon,
                      .decay = run->param->decays ? rule->weight_decay : 0,
                      .gradient_scale = with->scale,
                      .step = with->number};
}

bp_torch_rule bp_optimizer_torch(const bp_optimizer_rule *rule, const bp_own_run *run,
                                 const bp_update *with, double keep)
{
    return (bp_torch_rule){.rate = with->rate,
                           .keep = keep,
                           .momentum = rule->momentum,
                           .epsilon = rule->epsilon,
                           .decay = run->param->decays ? rule->weight_decay : 0,
                           .gradient_scale = with->scale};
}

uint64_t bp_optimizer_place(const bp_own_run *run, int64_t i)
{
    const bp_param *param = run->param;
    int last = param->dims - 1;
    int64_t columns = param->extent[last];

    i += run->within;
    return (uint64_t)(last ? (param->offset[0] + i / columns) * param->shape[1] + param->offset[1] +
                                 i % columns
                           : param->offset[0] + i);
}
