/* torch.optim's Adadelta. Called by update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "math/kernels/kernels.h"

static bp_update_sums update(const bp_optimizer *optimizer, const bp_own_run *run,
                             const bp_updated *at, const bp_update *with)
{
    bp_torch_rule rule = bp_optimizer_torch(&optimizer->rule, run, with, optimizer->rule.rho);

    return bp_adadelta_update(at, &rule);
}

const bp_optimizer_row bp_optimizer_adadelta = {.name = "adadelta",
                                                .prefix = {"adadelta.v/", "adadelta.u/"},
                                                .epsilon = "1e-6",
                                                .update = update};
