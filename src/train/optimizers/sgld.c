/* Stochastic-gradient Langevin dynamics: a step down the gradient, and noise that is a function of
 * (seed, member, update, tensor, place), so that it is the same on every mesh. Called by
 * update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "base/files/hash.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* One run of w -= rate (g scale + decay w) - sqrt(2 rate temperature / data) n, n standard normal:
 * Langevin dynamics of the step size 2 rate / data.
 * Source: Welling and Teh 2011, "Bayesian learning via stochastic gradient Langevin dynamics", eq.
 * 4; the temperature: Wenzel et al. 2020, eq. 1. */
static void apply(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                  const bp_update *with)
{
    const bp_optimizer_rule *rule = &optimizer->rule;
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

const bp_optimizer_row bp_optimizer_sgld = {
    .name = "sgld", .clip = "0", .decay = "constant", .samples = true, .apply = apply};
