/* Shared by methods whose members are passes with newly drawn masks, each a function of the seed
 * and the number of the pass. */
#pragma once

#include "uncertainty/methods/method.h"

typedef struct bp_passes {
    bp_member_sampler sampler;
    float rate;
    uint64_t seed;
} bp_passes;

extern const bp_member_sampler_ops bp_dropout_sampler, bp_dropconnect_sampler;

/** A sampler of uncertainty.passes members, with run.seed. Owns: the caller's,
 * bp_member_sampler_ops.free. */
bp_member_sampler *bp_passes_new(const bp_member_sampler_ops *ops, const bp_method_case *at,
                                 double rate);

/** bp_member_sampler_ops and rows of the table, of both methods. */
void bp_passes_identify(const bp_member_sampler *sampler, char *text, size_t bytes);
void bp_passes_free(bp_member_sampler *sampler);
/** Refuses a model whose networks have no dropout. Errors: BP_ERR_CONFIG. */
bp_err bp_passes_check(const bp_member_sampler *sampler, const bp_member_place *at);
void bp_passes_warn(const bp_method_case *at, const char *word, double rate);
void bp_passes_print_plan(const bp_method_case *at, int64_t fit_bytes);
