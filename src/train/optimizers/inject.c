/* Faults of tests inside a step: a flipped bit, a gradient that is not finite. Called by engine.c
 * and update.c. */
#include "train/optimizers/optimizer.h"

#include "base/fault.h"

#include <math.h>
#include <string.h>

#define BIT 20 /* in the middle of a float's 23 bits of fraction */

static void flip(float *x)
{
    uint32_t bits;

    memcpy(&bits, x, sizeof bits);
    bits ^= UINT32_C(1) << BIT;
    memcpy(x, &bits, sizeof bits);
}

/* The longest of this rank's runs, on request only of replicated parameters; NULL if it has
 * none. */
static const bp_own_run *longest_run(const bp_optimizer *optimizer, bool replicated)
{
    const bp_own_run *longest = NULL;

    for (int k = 0; k < optimizer->run_count; k++) {
        const bp_own_run *run = &optimizer->runs[k];

        if (run->replicated == replicated && (!longest || run->count > longest->count))
            longest = run;
    }
    return longest;
}

/* A value of a parameter that another data rank updates; NULL if there is no such parameter. */
static float *another_ranks(const bp_optimizer *optimizer, float *values)
{
    for (int g = 0; g < optimizer->network->group_count; g++) {
        const bp_group *group = &optimizer->network->groups[g];
        int64_t first, count;

        bp_optimizer_shard(optimizer->mesh, group, &first, &count);
        if (first > 0)
            return values + group->place;
        if (count < group->floats)
            return values + group->place + count;
    }
    return NULL;
}

void bp_inject_flips(const bp_optimizer *optimizer, float *values)
{
    const bp_own_run *run = longest_run(optimizer, false);
    float *copy = another_ranks(optimizer, values);

    if (bp_fault("train.flip_weight") && run)
        flip(values + run->value + run->count / 2);
    if (bp_fault("train.flip_moment") && run && optimizer->moments > 0)
        flip(optimizer->moment[0] + run->moment + run->count / 2);
    if (bp_fault("train.flip_copy") && copy)
        flip(copy);
}

void bp_inject_loaded(const bp_network *network, float *values)
{
    const bp_group *group = &network->groups[0];

    if (!bp_fault("train.flip_loaded"))
        return;
    for (int g = 0; g < network->group_count; g++)
        if (!network->groups[g].tied && !network->groups[g].common &&
            !network->groups[g].replicated)
            group = &network->groups[g];
    flip(values + group->place);
}

void bp_inject_gradient(float *gradients)
{
    if (bp_fault("train.nan_gradient"))
        gradients[0] = NAN;
}

void bp_inject_sum(const bp_optimizer *optimizer, float *gradients)
{
    const bp_own_run *run = longest_run(optimizer, optimizer->mesh->tensor_ranks > 1);

    if (bp_fault("train.flip_gradient") && run)
        flip(gradients + run->value);
}

void bp_inject_update(bp_optimizer *optimizer, float *values, int g)
{
    const bp_own_run *run = longest_run(optimizer, false);

    if (!run || run < optimizer->runs + optimizer->first_run[g] ||
        run >= optimizer->runs + optimizer->first_run[g + 1])
        return;
    if (bp_fault("train.nan_weight"))
        values[run->value] = NAN;
    else if (bp_fault("train.nan_moment") && optimizer->moments > 0)
        optimizer->moment[0][run->moment] = NAN;
    else
        return;
    if (optimizer->checksummed)
        bp_optimizer_checksum(optimizer, values);
}
