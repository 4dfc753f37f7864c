/* Inside the optimizers: what rules share. */
#pragma once

#include "train/optimizers/optimizer.h"

bp_updated bp_optimizer_at(const bp_optimizer *optimizer, const bp_own_run *run, float *values,
                           const float *gradients);
bp_adamw bp_optimizer_adam(const bp_optimizer_rule *rule, const bp_own_run *run,
                           const bp_update *with);
/** Checksums of a run's bits, and a record that they have changed. */
void bp_optimizer_sum_run(const bp_optimizer *optimizer, int run, const float *values,
                          uint32_t sums[BP_SUMS]);
void bp_optimizer_note_change(bp_optimizer *optimizer, int run, const uint32_t sums[BP_SUMS]);

/** The settings of the rules of torch.optim; `keep` is the share that means of squares keep. */
bp_torch_rule bp_optimizer_torch(const bp_optimizer_rule *rule, const bp_own_run *run,
                                 const bp_update *with, double keep);
/** The index of element i of a run in the whole tensor, which keys the noise. */
uint64_t bp_optimizer_place(const bp_own_run *run, int64_t i);
