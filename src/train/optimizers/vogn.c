/* The variational online Gauss-Newton method: a Gaussian over each weight, and a step with a sample
 * of it, whose noise is a function of (seed, member, update, tensor, place). Called by
 * update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "base/files/hash.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* One run of the variational online Gauss-Newton method: q(w) = N(mu, temperature / (data p)) with
 *   s = beta2 s + (1 - beta2) scored squares,  p = s / (1 - beta2^number) + weight_decay + epsilon,
 *   mu = mu - rate (g scale + weight_decay mu) / p,  w = a sample of q.
 * The first update takes the current weights for mu. squares[n], of the run.
 * Source: Khan et al. 2018, "Fast and scalable Bayesian deep learning by weight-perturbation in
 * Adam", eq. 8 and 9; epsilon: the damping of Osawa et al. 2019, algorithm 1. The correction of s
 * is Adam's. */
static void apply(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                  const bp_update *with)
{
    const bp_optimizer_rule *rule = &optimizer->rule;
    const float *squares = optimizer->squares + run->value;
    const char *name = run->param->name;
    bp_rng_key key = bp_rng_key_of(rule->seed, BP_RNG_LANGEVIN, rule->member, with->number,
                                   (int64_t)bp_xxh3(name, strlen(name)));
    double decay = rule->weight_decay, keeps = rule->beta2;
    double adds = (1 - keeps) * (double)optimizer->scored;
    double corrects = 1 / (1 - pow(keeps, (double)with->number));
    double variance = rule->temperature / (double)rule->data;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < at->n; i++) {
        double mean = (double)(with->number == 1 ? at->w[i] : at->m[i]);
        double curve = keeps * (double)at->v[i] + adds * (double)squares[i];
        double precision = curve * corrects + decay + rule->epsilon;
        double slope = (double)at->g[i] * with->scale + decay * mean;

        mean -= with->rate * slope / precision;
        at->m[i] = (float)mean;
        at->v[i] = (float)curve;
        at->w[i] = (float)(mean + sqrt(variance / precision) *
                                      bp_rng_normal(&key, bp_optimizer_place(run, i)));
    }
}

const bp_optimizer_row bp_optimizer_vogn = {.name = "vogn",
                                            .prefix = {"vogn.mean/", "vogn.s/"},
                                            .clip = "0",
                                            .beta2 = "0.999",
                                            .samples = true,
                                            .squares = true,
                                            .apply = apply};
