/* AdamW. Called by update.c. */
#include "train/optimizers/optimizer_priv.h"

#include "math/kernels/kernels.h"

static bp_update_sums update(const bp_optimizer *optimizer, const bp_own_run *run,
                             const bp_updated *at, const bp_update *with)
{
    bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, with);

    return bp_adamw_update(at->w, at->m, at->v, at->g, at->n, &rule);
}

const bp_optimizer_row bp_optimizer_adamw = {
    .name = "adamw", .prefix = {"adamw.m/", "adamw.v/"}, .update = update};
