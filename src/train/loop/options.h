/* The keys of checkpoint.*, and what a training reports to a job around it. */
#ifndef BP_TRAIN_LOOP_OPTIONS_H
#define BP_TRAIN_LOOP_OPTIONS_H

#include "base/config.h"
#include "base/json.h"

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

/** What a training reports to a job around it, on the training's coordinator alone. */
typedef struct bp_pretrain_hooks {
    void *context;
    /** Training goes on from `step`, and metrics.jsonl is cut back to it. Not called where nothing
     * is left to do. An error ends the training: all its ranks have it. */
    bp_err (*started)(void *context, int64_t step);
    /** A line went to metrics.jsonl; borrowed. May be NULL. */
    void (*metric)(void *context, const json_t *line);
} bp_pretrain_hooks;

#endif
