/* The keys that every job has. */
#pragma once

#include "base/config/config.h"

extern const bp_option bp_run_options[]; /* run.*, tokenizer.path */

/** Values of bp_run_options (docs: --help). */
typedef struct bp_run_keys {
    const char *dir;
    int64_t seed;
    const char *tokenizer_path;
} bp_run_keys;

static inline const bp_run_keys *bp_run_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_run_options);
}
