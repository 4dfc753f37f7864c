/* The speed of matrix products on this host. */
#pragma once

#include "train/loop/trainer.h"

/** estimate.peak (FLOP/s) and estimate.cores of this process, measured for 0.2 s, or less where the
 * training is short. Local. */
void bp_trainer_measure_peak(trainer *self);
/** The same for a plan, of all ranks of the mesh. Ranks of another machine (`asked`) have a core
 * for each of their threads: where these take turns on the cores here, so many cores like them are
 * taken. Local. */
void bp_trainer_plan_peak(trainer *self, const bp_planned_world *asked);
/** The same over all ranks that compute: the sum of their peaks, the least of their shares; equal
 * on all ranks. Collective over world. */
void trainer_measure_peaks(trainer *self);
