/* Stochastic-gradient Langevin dynamics: a step down the gradient, and noise that is a function of
 * (seed, member, update, tensor, place), so that it is the same on every mesh. Called by
 * optimizer.c. */
#include "train/engine/optimizer_priv.h"

#include "base/files/hash.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

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

void bp_optimizer_langevin(const bp_optimizer_rule *rule, const bp_own_run *run,
                           const bp_updated *at, const bp_update *with)
{
    const bp_param *param = run->param;
    bp_rng_key key = bp_rng_key_of(rule->seed, BP_RNG_LANGEVIN, rule->member, with->number,
                                   (int64_t)bp_xxh3(param->name, strlen(param->name)));
    double decay = param->decays ? rule->weight_decay : 0,
           noise = sqrt(2 * with->rate * rule->temperature / (double)rule->data);

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < at->n; i++) {
        double slope = (double)at->g[i] * with->scale + decay * (double)at->w[i];
        double drawn = bp_rng_normal(&key, bp_optimizer_place(run, i));

        at->w[i] = (float)((double)at->w[i] - with->rate * slope + noise * drawn);
    }
}
