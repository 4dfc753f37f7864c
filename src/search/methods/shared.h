/* Shared weights: one training of the largest model of the space, in which each step trains a
 * random part, and trials that are scored with its weights.
 *
 * Source: Guo et al. 2020, Single Path One-Shot Neural Architecture Search with Uniform Sampling;
 * Wang et al. 2020, HAT: Hardware-Aware Transformers, section 3.1, for elastic layers of a
 * Transformer: a part has the first layers, and of each tensor the first rows and columns. */
#pragma once

#include "search/nas.h"
#include "train/loop/part.h"

/** The part of a training of shared weights that draws each step's model. Its hooks' context is the
 * nas. */
extern const bp_training_part nas_elastic;
/** The point of the space that step `step` trains, and its shape: a function only of (run.seed,
 * step), so the same at any number of ranks. Local. Errors: BP_ERR_CONFIG no model of the space is
 * valid. */
bp_err nas_elastic_draw(const nas *self, int64_t step, bp_model_shape *out);

/** The parts of the training of shared weights; its configuration, in RUN/search/shared. Local.
 * Owns: bp_config_free(). Errors: of nas_training_config. */
void nas_shared_parts(const bp_training_part *out[TRAINING_PARTS_MAX + 1]);
bp_err nas_shared_config(const nas *self, bp_config **out);

/** Can models of the space share weights? Local. Errors: BP_ERR_CONFIG a feature that does not
 * support parts. */
bp_err nas_elastic_check(const nas *self);

/** Train the shared weights to their end, in RUN/search/shared, from wherever an earlier start
 * stopped, and call `body` with them: nas_score_shared may be called there.
 *
 * Collective: over mesh->world, as `body` is.
 * Errors:     those of bp_pretrain and of `body`: the same on all ranks. */
bp_err nas_with_shared(nas *self, bp_err (*body)(nas *self));
/** Score all trials without a score by the shared weights: the validation loss of that part.
 * Collective over mesh->world. Errors: BP_ERR_STOPPED; those of bp_trainer_validate and nas_keep:
 * the same on all ranks. */
bp_err nas_score_shared(nas *self);
