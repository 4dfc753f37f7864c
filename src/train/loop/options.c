/* The keys of checkpoint.*. */
#include "train/loop/options.h"

const bp_option bp_checkpoint_options[] = {
    {"checkpoint.every", BP_OPTION_INT, "500", 1, 1e12, NULL, "steps",
     "a checkpoint; one is always committed after the last step", false,
     .at = BP_AT(bp_checkpoint_keys, every)},
    {"checkpoint.keep", BP_OPTION_INT, "3", 1, 1e6, NULL, NULL,
     "newest checkpoints to keep, the best one besides", false,
     .at = BP_AT(bp_checkpoint_keys, keep)},
    {"checkpoint.async", BP_OPTION_BOOL, "yes", 0, 0, NULL, NULL,
     "write from a copy while training goes on; no: training waits, and needs no memory for a copy",
     false, "checkpoint.behind", .at = BP_AT(bp_checkpoint_keys, async)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};
