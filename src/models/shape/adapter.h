/* Adapters in a model's shape, keys and checkpoints (nn/core/adapter.h defines them). */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"
#include "io/checkpoint/checkpoint.h"
#include "nn/core/adapter.h"

/** Values of adapter.* (bp_model_options). */
typedef struct bp_adapter_keys {
    const char *kind;
    int64_t rank;
    double scale;
    const char *targets;
    bool alone; /* checkpoints hold only the trained parameters, and name the base */
} bp_adapter_keys;

/** The adapter that adapter.* requests, for a model of width C (0: not known) that starts from a
 * checkpoint with `known` (NULL: no checkpoint). Faults are added to the configuration's. */
bp_adapter bp_adapter_of(const bp_adapter_keys *keys, bp_config *config, const bp_adapter *known,
                         int64_t C);

/** The list "q,v" of these targets; there are BP_ADAPTER_TARGETS. Local. */
#define BP_ADAPTER_TARGETS 6
#define BP_ADAPTER_TEXT    64
void bp_adapter_write_targets(char text[BP_ADAPTER_TEXT], int64_t bits);

/** "adapter" of the "model" object of a checkpoint; nothing without one. Errors of reading:
 * BP_ERR_FORMAT. */
void bp_adapter_to_json(json_t *model, const bp_adapter *adapter);
bp_err bp_adapter_from_json(bp_adapter *adapter, const json_t *model, const char *where);

/** Can a checkpoint's adapter, if it has one, be merged into its weights? Errors: BP_ERR_FORMAT a
 * bottleneck adapter. Local. */
bp_err bp_adapter_check_merge(const bp_checkpoint *checkpoint);

/** Merge a checkpoint's adapter into the values of `slice`, a whole tensor of it; no effect on a
 * tensor without one. Collective over the checkpoint's communicator. Errors: BP_ERR_FORMAT,
 * BP_ERR_SYSTEM, those of bp_checkpoint_load. */
bp_err bp_adapter_merge(bp_checkpoint *checkpoint, const bp_slice *slice, float *values);
