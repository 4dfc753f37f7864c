/* What a run folder needs to know about its job. */
#ifndef BP_RUN_RUN_SPEC_H
#define BP_RUN_RUN_SPEC_H

#include "base/config/config.h"
#include "base/config/json.h"

#include <stdbool.h>

/** What a run is of, compared by content: {"corpus.train", "9f86..."}.
 *
 * When `name` is a key of the configuration, that key's text (a path) is not compared. An empty
 * value is one that is not known: it equals everything. */
typedef struct bp_run_identity {
    const char *name, *value;
} bp_run_identity;

/** How messages call an identity whose name is not a key, and what of it may change. */
typedef struct bp_run_words {
    const char *name, *keys, *may_change;
} bp_run_words;

typedef struct bp_run_spec {
    const char *job;  /* "pretrain" */
    bool trains;      /* it writes metrics.jsonl */
    bool samples;     /* and samples.jsonl */
    bool tensorboard; /* and, from bp_run_cut_metrics on, its figures for TensorBoard */
    /* Keys that may differ on resume besides those whose bp_option says so, NULL-ended; "mesh.*"
     * stands for a section. */
    const char *const *may_change;
    /* Keys and identities that a new run which starts from this one's weights (model.init) may have
     * otherwise: their refusal says so; NULL: none. */
    const char *const *new_run_may;
    /* Others that may, but results have other bits from now on: bp_run_take_changes; NULL: none. */
    const char *const *other_bits;
    /* Does this change of such a key change no bit after all? NULL: it always does. */
    bool (*keeps_bits)(const bp_config *config, const char *key, const char *before,
                       const char *now);
    const bp_run_identity *identities; /* ended by a NULL name; NULL: none */
    const bp_run_words *words;         /* of one of them; NULL: they are called by their names */
    /* On the coordinator, of a finished run: a result that is gone, after which the run is not
     * finished, so that the job makes it again; NULL: all are there. NULL: it is not asked. */
    const char *(*missing)(const void *context);
    const void *context;
    const json_t *extra;  /* on the coordinator: members added to run.json; NULL: none */
    double watch_seconds; /* how long a owner that can't be asked is watched; 0: 60 */
} bp_run_spec;

#endif
