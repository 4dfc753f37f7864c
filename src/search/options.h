/* The keys of a search, and the tables of its jobs. */
#pragma once

#include "base/config/config.h"

extern const bp_option bp_nas_options[]; /* search.* */

/** Values of bp_nas_options (docs: --help). */
typedef struct bp_nas_keys {
    const char *method, *space, *limit, *ranker;
    int64_t trials, final, steps;
    bool shared;
    int64_t shared_steps;
    int64_t population;
    double mutation, crossover;
} bp_nas_keys;

static inline const bp_nas_keys *bp_nas_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_nas_options);
}

/* The tables of a search's jobs, NULL-ended lists. */
typedef struct bp_nas_jobs {
    const bp_option *const *pretrain, *const *search;
} bp_nas_jobs;
