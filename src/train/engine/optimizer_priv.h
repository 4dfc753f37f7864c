/* Faults of memory and of arithmetic, as tests ask for them (base/fault.h): one bit of a value
 * flipped behind the engine's back, or a NaN as a computation would leave it. */
#ifndef BP_TRAIN_ENGINE_OPTIMIZER_PRIV_H
#define BP_TRAIN_ENGINE_OPTIMIZER_PRIV_H

#include "train/engine/optimizer.h"

/** train.flip_weight, train.flip_moment: in this rank's own shard; train.flip_copy: in its copy of
 * another data rank's. Local. */
void bp_inject_flips(const bp_optimizer *optimizer, float *values);
/** train.flip_loaded: one weight, the same on all ranks where the fault is armed on all. Local. */
void bp_inject_loaded(const bp_network *network, float *values);
/** train.nan_gradient: of this rank's micro-batches, before they are summed over ranks. Local. */
void bp_inject_gradient(const bp_optimizer *optimizer, float *gradients);
/** train.flip_gradient: of the sum that only this rank has; in what tensor ranks hold in common,
 * where there is such. Local. */
void bp_inject_sum(const bp_optimizer *optimizer, float *gradients);
/** train.nan_weight, train.nan_moment: as if the update of group `g` had left it, if it is the
 * group of this rank's longest run. Local. */
void bp_inject_update(bp_optimizer *optimizer, float *values, int g);

#endif
