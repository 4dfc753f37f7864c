/* Passes with their own masks: shared by :dropout and :dropconnect. Called by dropconnect.c and
 * dropout.c. */
#include "uncertainty/methods/passes.h"

#include "base/config/run_options.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

bp_member_sampler *bp_passes_new(const bp_member_sampler_ops *ops, const bp_method_case *at,
                                 double rate)
{
    bp_passes *self = bp_alloc("uncertainty.passes", 1, sizeof *self);

    *self = (bp_passes){.sampler = {.ops = ops, .count = at->passes},
                        .rate = (float)rate,
                        .seed = (uint64_t)bp_run_keys_of(at->config)->seed};
    return &self->sampler;
}

void bp_passes_identify(const bp_member_sampler *sampler, char *text, size_t bytes)
{
    const bp_passes *self = (const bp_passes *)sampler;

    snprintf(text, bytes, "%s %" PRId64 " %.9g %" PRIu64, sampler->ops->word, sampler->count,
             (double)self->rate, self->seed);
}

void bp_passes_free(bp_member_sampler *sampler)
{
    bp_free(sampler);
}

bp_err bp_passes_check(const bp_member_sampler *sampler, const bp_member_place *at)
{
    if (!at->model->ops->set_dropout)
        return BP_FAIL(BP_ERR_CONFIG, "ensemble.no_dropout",
                       "a model of kind %s has no dropout for passes at test time: at member "
                       "%" PRId64 "; leave :%s out",
                       at->model->info.kind, at->member, sampler->ops->word);
    return BP_OK;
}

void bp_passes_warn(const bp_method_case *at, const char *word, double rate)
{
    if (!(rate > 0))
        BP_WARN("comparison.no_dropout",
                "all passes of method %s are the same without dropout: at uncertainty.%s; "
                "give a rate, such as 0.1",
                at->name, word);
    if (at->passes == 1)
        BP_WARN("comparison.one_pass",
                "one pass of method %s has nothing to disagree with: at uncertainty.passes; take "
                "2 or more",
                at->name);
}

void bp_passes_print_plan(const bp_method_case *at, int64_t fit_bytes)
{
    (void)fit_bytes;
    bp_log("  %" PRId64 " passes take up to that many times as long", at->passes);
}
