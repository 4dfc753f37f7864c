/* The sets of units of a score: additional results of windows, or results that replace those of
 * windows. A set is a row of the list in sets_list.c; the job names no set. */
#pragma once

#include "infer/score/scorer.h"

/* A file of RUN/score. */
typedef struct score_file {
    const char *name;
    bool (*is_written)(const scorer *self); /* in this run; NULL: always */
} score_file;

/* Members are NULL if a set has nothing to do. All except is_asked and bytes are used only if the
 * set is requested. */
struct score_set {
    bool (*is_asked)(const scorer *self); /* decided by the keys and the model */
    const score_file *files;              /* files of its merge, ended by one without a name */
    /** Make its state (scorer_own()), after the corpora, the plan and scorer.key exist. Collective
     * over world. Errors: the same on all ranks; `close` follows. */
    bp_err (*open)(scorer *self, void **own);
    void (*close)(void *own);
    /** bp_work.units; NULL if its figures come from the parts of windows. */
    const bp_work_units *(*units)(scorer *self);
    /** Write files from the parts of windows, before the files of windows. On the coordinator. */
    bp_err (*merge_windows)(scorer *self, bp_parts *parts);
    /** Members of summary.json, after its own units are merged. On the coordinator. */
    void (*summarise)(const scorer *self, json_t *summary);
    /** Returns an input of the run, identified by content. Local. */
    bp_run_identity (*identify)(const scorer *self);
    /** Bytes of a rank that leads or coordinates, for windows of `inputs` inputs; models->config
     * may be that of another job that scores, without score.*. Local. */
    int64_t (*bytes)(const bp_work_models *models, int64_t inputs);
    /** Log the planned work, and the figures. On the coordinator. */
    void (*say)(const scorer *self);
    void (*report)(const scorer *self);
};

/** All sets, NULL-ended. A set whose merge others need comes first. */
extern const score_set *const scorer_sets[];
/** The index of the next requested set after `k` (-1 at the start); -1 if there are no more. */
int scorer_next_set(const scorer *self, int k);
/** The state that `open` of a set made; NULL before. */
void *scorer_own(const scorer *self, const score_set *set);

/** Call the members of these names for all requested sets. */
bp_err scorer_open_sets(scorer *self);
void scorer_close_sets(scorer *self);
int64_t scorer_sets_bytes(const bp_work_models *models, int64_t inputs);
/** The names of all files, NULL-ended. */
void scorer_list_files(const char *names[SCORE_FILES_MOST + 1]);
bool scorer_writes(const scorer *self, const char *file);

extern const score_set score_task_set, score_candidates_set, score_states_set, score_windows_set;
