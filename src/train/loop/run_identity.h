/* What makes two starts of a training the same run, and what a later one may change. */
#ifndef BP_TRAIN_LOOP_RUN_IDENTITY_H
#define BP_TRAIN_LOOP_RUN_IDENTITY_H

#include "train/loop/trainer.h"

/** bp_run_spec.may_change of a training, and of an ensemble: pretrain lacks the keys that it alone
 * has. */
extern const char *const trainer_may_change[];
/** bp_run_spec.keeps_bits of a training: no sum gets another order (docs/architecture.md, "What a
 * resume may change"). Local. */
bool trainer_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now);
/** Opens `run`. Collective over world. Owns: bp_run_close(). Errors: those of bp_run_open. */
bp_err trainer_open_run(trainer *self);

#endif
