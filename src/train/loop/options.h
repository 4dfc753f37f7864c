/* The keys of checkpoint.*, and what must hold for the keys of a training. */
#ifndef BP_TRAIN_LOOP_OPTIONS_H
#define BP_TRAIN_LOOP_OPTIONS_H

#include "base/config.h"

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
void bp_pretrain_check(bp_config *config);
/** The same but for mesh.members, of which an ensemble has more. */
void bp_pretrain_check_model(bp_config *config);

/** Keys that a fine-tuning needs: for bp_config_require_by. Its defaults, and faults as above. A
 * configuration with task.kind, of a job that has bp_task_options, is one of a fine-tuning: what
 * follows trains for a task then. Local. */
void bp_finetune_require(bp_config *config);
void bp_finetune_check(bp_config *config);
void bp_finetune_check_model(bp_config *config);

#endif
