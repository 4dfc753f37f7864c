/* LAMB: a parameter's step is relative to the norm of its weights. Called by update.c. */
#include "train/optimizers/totals.h"

#include <math.h>

static void add_squares(const bp_summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_optimizer *optimizer = s->optimizer;
    bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, s->with);

    bp_lamb_squares(optimizer->totals + run->total, optimizer->scratch, at,
                    run->param->place + run->within, &rule);
}

static int64_t totals_of(const bp_param *param)
{
    (void)param;
    return BP_TOTALS_LEAST;
}

static void prepare(bp_optimizer *optimizer, float *values, const float *gradients,
                    const bp_update *with)
{
    const bp_summing s = {optimizer, values, gradients, with};

    for (int k = 0; k < optimizer->run_count; k++) {
        const bp_own_run *run = &optimizer->runs[k];
        bp_updated at = bp_optimizer_at(optimizer, run, values, gradients);
        bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, with);

        bp_lamb_moments(&at, &rule);
    }
    bp_totals_clear(optimizer);
    bp_totals_over_data(&s, add_squares);
    bp_totals_each(optimizer, NULL, bp_totals_over_tensor);
}

/* The ratio of both norms. As in the authors' program, it is 1 if a norm is 0, and for biases and
 * norms, which do not decay. */
static void apply(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                  const bp_update *with)
{
    const double *totals = optimizer->totals + run->total;
    bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, with);
    bool adapts = run->param->decays && totals[BP_TOTAL_WEIGHTS] > 0 && totals[BP_TOTAL_STEPS] > 0;

    bp_lamb_apply(at, &rule, adapts ? sqrt(totals[BP_TOTAL_WEIGHTS] / totals[BP_TOTAL_STEPS]) : 1);
}

const bp_optimizer_row bp_optimizer_lamb = {.name = "lamb",
                                            .prefix = {"lamb.m/", "lamb.v/"},
                                            .epsilon = "1e-6",
                                            .apply = apply,
                                            .totals = totals_of,
                                            .prepare = prepare};
