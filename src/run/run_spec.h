/* What a run folder must know of its job. */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"

#include <stdbool.h>

/** An input of a run, compared by content: {"corpus.train", "9f86..."}.
 *
 * When `name` is a key of the configuration, that key's text (a path) is not compared. An empty
 * value is unknown: it equals everything. */
typedef struct bp_run_identity {
    const char *name, *value;
} bp_run_identity;

/** The words of messages for an identity whose name is not a key, and for what may change. */
typedef struct bp_run_words {
    const char *name, *keys, *may_change;
} bp_run_words;

typedef struct bp_run_spec {
    const char *job;  /* "pretrain" */
    bool trains;      /* it writes metrics.jsonl */
    bool samples;     /* and samples.jsonl */
    bool tensorboard; /* and, from bp_run_cut_metrics on, its figures for TensorBoard */
    /* Keys that may differ on resume in addition to those that bp_option allows, NULL-ended;
     * "mesh.*" is a whole section. */
    const char *const *may_change;
    /* Keys and identities that may differ in a new run that starts from this run's weights
     * (model.init), as the error message says; may be NULL. */
    const char *const *new_run_may;
    /* Other keys that may differ, but change the bits of later results: bp_run_take_changes; may be
     * NULL. */
    const char *const *other_bits;
    /* Does this change of such a key keep the bits? NULL: it never does. */
    bool (*keeps_bits)(const bp_config *config, const char *key, const char *before,
                       const char *now);
    const bp_run_identity *identities; /* ended by a NULL name; may be NULL */
    const bp_run_words *words;         /* words for one of them; NULL: messages use their names */
    /* On the coordinator, for a finished run: returns a missing result, NULL if all are there; then
     * those of bp_run_add_result are looked for. A missing result makes the run unfinished, so that
     * the job makes it again. NULL: nothing is looked for. */
    const char *(*missing)(const void *context);
    const void *context;
    const json_t *extra;  /* on the coordinator: members added to run.json; may be NULL */
    double watch_seconds; /* how long an unreachable owner is watched; 0: 60 */
} bp_run_spec;
