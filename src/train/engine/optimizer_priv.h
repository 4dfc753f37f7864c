/* Inside the optimizers: what the rules that look at whole parameters share with the others. */
#ifndef BP_TRAIN_ENGINE_OPTIMIZER_PRIV_H
#define BP_TRAIN_ENGINE_OPTIMIZER_PRIV_H

#include "train/engine/optimizer.h"

bp_updated bp_optimizer_at(const bp_optimizer *optimizer, const bp_own_run *run, float *values,
                           const float *gradients);
bp_adamw bp_optimizer_adam(const bp_optimizer_rule *rule, const bp_own_run *run,
                           const bp_update *with);
/** What is guarded: the sums of a run's bits, and that they have changed. */
void bp_optimizer_sum_run(const bp_optimizer *optimizer, int run, const float *values,
                          uint32_t sums[BP_SUMS]);
void bp_optimizer_note_change(bp_optimizer *optimizer, int run, const uint32_t sums[BP_SUMS]);

/** One run of w -= rate (g scale + decay w) - sqrt(2 rate temperature / data) n, n standard normal:
 * Langevin dynamics of the step size 2 rate / data. Local.
 * Source: Welling and Teh 2011, "Bayesian learning via stochastic gradient Langevin dynamics", eq.
 * 4; the temperature: Wenzel et al. 2020, eq. 1. */
void bp_optimizer_langevin(const bp_optimizer_rule *rule, const bp_own_run *run,
                           const bp_updated *at, const bp_update *with);

/** The place of element i of a run in the whole tensor: it keys the noise. */
uint64_t bp_optimizer_place(const bp_own_run *run, int64_t i);

/** One run of the variational online Gauss-Newton method: q(w) = N(mu, temperature / (data p)) with
 *   s = beta2 s + (1 - beta2) scored squares,  p = s / (1 - beta2^number) + weight_decay + epsilon,
 *   mu = mu - rate (g scale + weight_decay mu) / p,  w = a sample of q.
 * The first update takes the weights that it finds for mu. squares[n], of the run. Local.
 * Source: Khan et al. 2018, "Fast and scalable Bayesian deep learning by weight-perturbation in
 * Adam", eq. 8 and 9; epsilon: the damping of Osawa et al. 2019, algorithm 1. The correction of s
 * is Adam's. */
void bp_optimizer_vogn(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                       const bp_update *with);

/* ---- LAMB and Adafactor: a parameter's step depends on sums over all of it ---- */

static inline bool bp_optimizer_is_layerwise(const bp_optimizer_rule *rule)
{
    return rule->kind == BP_LAMB || rule->kind == BP_ADAFACTOR;
}
/** Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_optimizer_layerwise_init(bp_optimizer *optimizer);
/** Moments, and the sums. Collective over mesh->data and mesh->tensor. */
void bp_optimizer_layerwise_prepare(bp_optimizer *optimizer, float *values, const float *gradients,
                                    const bp_update *with);
/** The weights of a run. Local. */
void bp_optimizer_layerwise_apply(const bp_optimizer *optimizer, const bp_own_run *run,
                                  const bp_updated *at, const bp_update *with);

#endif
