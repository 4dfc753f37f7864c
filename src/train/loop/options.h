/* The keys of checkpoint.*, and what must hold for the keys of a training. */
#pragma once

#include "base/config/config.h"
#include "train/loop/part.h"

extern const bp_option bp_checkpoint_options[]; /* checkpoint.* */

/** Values of bp_checkpoint_options (docs: --help). */
typedef struct bp_checkpoint_keys {
    int64_t every;
    int64_t keep;
    bool async;
} bp_checkpoint_keys;

static inline const bp_checkpoint_keys *bp_checkpoint_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_checkpoint_options);
}

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_pretrain_check(bp_config *config, const bp_training_part *const *parts);
/** The same without mesh.members, of which an ensemble has more. Returns the shape as far as the
 * configuration determines it; without a family if model.init does. */
bp_model_shape bp_pretrain_check_model(bp_config *config, const bp_training_part *const *parts);

/** Keys that a fine-tuning needs: for bp_config_require_by. Its defaults, and faults as above. A
 * configuration with task.kind, of a job that has bp_task_options, is one of a fine-tuning: what
 * follows trains for a task then. Local. */
void bp_finetune_require(bp_config *config);
void bp_finetune_check(bp_config *config, const bp_training_part *const *parts);
void bp_finetune_check_model(bp_config *config);

/** Warnings of keys without effect: bp_engine_spec_warn's, and those of the parts. Local. */
void bp_pretrain_warn(const bp_config *config, const bp_training_part *const *parts);
/** bp_engine_spec_of, with what the parts ask of the engine. Local. */
bp_engine_spec bp_pretrain_spec_of(const bp_config *config, const bp_training_part *const *parts);
