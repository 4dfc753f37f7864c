/* The keys of generate.*. */
#pragma once

#include "base/config/config.h"

extern const bp_option bp_generate_options[];

/** Values of bp_generate_options (docs: --help). */
typedef struct bp_generate_keys {
    const char *model;
    const char *prompts;
    const char *template_path;
    const char *references;
    const char *prefix;
    bool cut;
    const char *strategy;
    int64_t tokens;
    int64_t rounds;
    bool remask;
    int64_t samples;
    const char *entails;
    bool entails_prompt;
    double temperature;
    int64_t top_k;
    double top_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    int64_t no_repeat_ngram;
    int64_t beams;
    double length_penalty;
    const char *stop;
    int64_t end;
    const char *first;
    const char *last;
    const char *language;
    const char *source_language;
    int64_t batch;
} bp_generate_keys;

static inline const bp_generate_keys *bp_generate_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_generate_options);
}
