/* The memory plan and the time of a training as tables for people. */
#pragma once

#include "train/loop/trainer.h"

/** Model, mesh, steps, `plan` of a rank of `stage`, what is known of the node, and the time of the
 * steps that are left. Local; only the coordinator's log shows it. */
void bp_training_plan_print(const trainer *self, const bp_plan *plan, int stage);
/** Prints the highest peak of all ranks next to the plan. Collective over world. */
void plan_print_peak(const trainer *self);
