/* Callbacks to the job around a training. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"

#include <stdint.h>

/** What a training reports to a job around it, on the training's coordinator only. */
typedef struct bp_pretrain_hooks {
    void *context;
    /** Training goes on from `step`, and metrics.jsonl is cut back to it. Not called where nothing
     * is left to do. An error ends the training: all its ranks have it. */
    bp_err (*started)(void *context, int64_t step);
    /** A line went to metrics.jsonl; borrowed. May be NULL. */
    void (*metric)(void *context, const json_t *line);
} bp_pretrain_hooks;
