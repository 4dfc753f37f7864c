/* torch.optim's RMSprop; the moment of momentum exists only if there is momentum. Called by
 * update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "math/kernels/kernels.h"

static int moments(const bp_optimizer_rule *rule)
{
    return rule->momentum == 0 ? 1 : 2;
}

static bp_update_sums update(const bp_optimizer *optimizer, const bp_own_run *run,
                             const bp_updated *at, const bp_update *with)
{
    bp_torch_rule rule = bp_optimizer_torch(&optimizer->rule, run, with, optimizer->rule.alpha);

    return bp_rmsprop_update(at, &rule);
}

const bp_optimizer_row bp_optimizer_rmsprop = {.name = "rmsprop",
                                               .prefix = {"rmsprop.v/", "rmsprop.m/"},
                                               .epsilon = "1e-8",
                                               .momentum = "0",
                                               .moments = moments,
                                               .update = update};
