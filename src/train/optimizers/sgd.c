/* torch.optim's SGD with momentum. Called by update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "math/kernels/kernels.h"

static bp_update_sums update(const bp_optimizer *optimizer, const bp_own_run *run,
                             const bp_updated *at, const bp_update *with)
{
    bp_torch_rule rule = bp_optimizer_torch(&optimizer->rule, run, with, 0);

    return bp_sgd_update(at, &rule);
}

const bp_optimizer_row bp_optimizer_sgd = {.name = "sgd", .prefix = {"sgd.m/"}, .update = update};
