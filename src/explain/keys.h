/* The keys of explain.*. */
#pragma once

#include "base/config/config.h"

extern const bp_option bp_explain_options[];

/** Values of bp_explain_options (docs: --help). */
typedef struct bp_explain_keys {
    const char *model, *corpus;
    const char *texts, *choose;
    int64_t examples;
    const char *methods;
    const char *target;
    const char *baseline;
    const char *separators;
    const char *masks;
    int64_t positions;
    int64_t context;
    int64_t steps;
    const char *removal, *features, *shapley;
    int64_t samples, most_words, group;
    int64_t flips, edits, beam;
    double change;
    const char *layers, *words;
    const char *datastore, *sets;
    int64_t neighbours, factors, keys;
    double perplexity;
} bp_explain_keys;

static inline const bp_explain_keys *bp_explain_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_explain_options);
}
