/* Keys of a part that has no place in a training. */
#ifndef BP_TRAIN_PARTS_KEYS_H
#define BP_TRAIN_PARTS_KEYS_H

#include "train/loop/trainer.h"

/** Refuses keys of a table that begin with `section`, of another objective. Local. Errors:
 * BP_ERR_CONFIG. */
bp_err keys_refuse(const trainer *self, const bp_option *table, const char *section);

#endif
