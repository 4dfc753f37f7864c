/* :dropconnect, models whose weights are dropped (models/network/dropconnect.h). Called by
 * jobs/uncertainty.c. */
#include "uncertainty/methods/list.h"
#include "uncertainty/methods/passes.h"

typedef struct bp_dropconnect_keys {
    double rate;
} bp_dropconnect_keys;

const bp_option bp_dropconnect_method_options[] = {
    {BP_REAL_KEY("uncertainty.dropconnect", "0.1", 0, 0.99),
     .help = "rate of :dropconnect; not the model's own, which a checkpoint does not record",
     .at = BP_AT(bp_dropconnect_keys, rate)},
    {.key = NULL}};

static double rate_of(const bp_config *config)
{
    return ((const bp_dropconnect_keys *)bp_config_bound(config, bp_dropconnect_method_options))
        ->rate;
}

static void wish(const bp_member_sampler *sampler, int64_t member, bp_model_wish *wish)
{
    const bp_passes *self = (const bp_passes *)sampler;

    wish->dropconnect = (bp_dropconnect){.rate = self->rate, .seed = self->seed, .draw = member};
}

static bp_err add(bp_member_sampler *sampler, bp_member_place *at)
{
    return bp_passes_check(sampler, at);
}

const bp_member_sampler_ops bp_dropconnect_sampler = {.word = "dropconnect",
                                                      .member = "pass",
                                                      .kind = BP_MEMBER_WEIGHTS,
                                                      .identify = bp_passes_identify,
                                                      .wish = wish,
                                                      .add = add,
                                                      .free = bp_passes_free};

static bp_member_sampler *new_sampler(const bp_method_case *at)
{
    return bp_passes_new(&bp_dropconnect_sampler, at, rate_of(at->config));
}

static void warn(const bp_method_case *at)
{
    bp_passes_warn(at, "dropconnect", rate_of(at->config));
}

const bp_uncertainty_method bp_dropconnect_method = {.word = "dropconnect",
                                                     .warn = warn,
                                                     .sampler = new_sampler,
                                                     .print_plan = bp_passes_print_plan};
