/* The keys of score.*. */
#pragma once

#include "base/config/config.h"

/** score.*: what is scored, and (the rule, which other jobs that score also have) how. */
extern const bp_option bp_score_options[], bp_score_rule_options[];

/** Values of bp_score_options (docs: --help). */
typedef struct bp_score_keys {
    const char *model;
    const char *corpus;
    const char *candidates;
    const char *questions, *questions_form;
    const char *vectors;
    bool vectors_norm;
    const char *select;
    const char *cluster;
    int64_t member;
    const char *bag_cluster;
    bool tokens, boundaries, entropy;
    bool states;
    const char *mix;
    double mix_scale;
    const char *neighbours; /* neighbours.* from here on */
    int64_t nearest;
    double temperature, weight;
    int64_t neighbours_memory;
} bp_score_keys;

static inline const bp_score_keys *bp_score_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_score_options);
}

/** Values of bp_score_rule_options (docs: --help). */
typedef struct bp_score_rule_keys {
    const char *convention;
    int64_t context;
    int64_t stride;
    const char *prefix;
    bool prefix_every;
    bool end;
    bool cut;
    int64_t memory;
    int64_t span_stride, answer_tokens; /* 0: the checkpoint's value */
} bp_score_rule_keys;

static inline const bp_score_rule_keys *bp_score_rule_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_score_rule_options);
}
