/* :dropout, passes with dropout at test time.
 *
 * Source: Gal and Ghahramani 2016, "Dropout as a Bayesian approximation".
 *
 * Called by jobs/uncertainty.c. */
#include "uncertainty/methods/list.h"
#include "uncertainty/methods/passes.h"

typedef struct bp_dropout_keys {
    double rate;
} bp_dropout_keys;

const bp_option bp_dropout_method_options[] = {
    {BP_REAL_KEY("uncertainty.dropout", "0.1", 0, 0.99),
     .help = "rate of :dropout; not the model's own, which a checkpoint does not record",
     .at = BP_AT(bp_dropout_keys, rate)},
    {.key = NULL}};

static double rate_of(const bp_config *config)
{
    return ((const bp_dropout_keys *)bp_config_bound(config, bp_dropout_method_options))->rate;
}

static bp_err add(bp_member_sampler *sampler, bp_member_place *at)
{
    const bp_passes *self = (const bp_passes *)sampler;
    bp_err err = bp_passes_check(sampler, at);

    if (err == BP_OK)
        at->model->ops->set_dropout(at->model, self->rate, self->seed);
    at->dropout = at->member;
    return err;
}

const bp_member_sampler_ops bp_dropout_sampler = {.word = "dropout",
                                                  .member = "pass",
                                                  .kind = BP_MEMBER_PASSES,
                                                  .identify = bp_passes_identify,
                                                  .add = add,
                                                  .free = bp_passes_free};

static bp_member_sampler *new_sampler(const bp_method_case *at)
{
    return bp_passes_new(&bp_dropout_sampler, at, rate_of(at->config));
}

static void warn(const bp_method_case *at)
{
    bp_passes_warn(at, "dropout", rate_of(at->config));
}

const bp_uncertainty_method bp_dropout_method = {
    .word = "dropout", .warn = warn, .sampler = new_sampler, .print_plan = bp_passes_print_plan};
