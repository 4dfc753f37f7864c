/* The sets of units of a score: what windows are scored for besides, or in their place. A set is a
 * row of the list in sets_list.c; the job knows none of them by name. */
#ifndef BP_INFER_SCORE_SETS_H
#define BP_INFER_SCORE_SETS_H

#include "infer/score/scorer.h"

/* A file of RUN/score. */
typedef struct score_file {
    const char *name;
    bool (*is_written)(const scorer *self); /* this time; NULL: always */
} score_file;

/* Members are NULL where a set has nothing to do; all but is_asked and bytes only matter where it
 * is asked for. */
struct score_set {
    bool (*is_asked)(const scorer *self); /* by the keys and the model */
    const score_file *files;              /* of its merge, ended by one without a name */
    /** Its state, once the corpora, the plan and scorer.key are there: scorer_own(). Collective
     * over world. Errors: the same on all ranks; `close` follows. */
    bp_err (*open)(scorer *self, void **own);
    void (*close)(void *own);
    /** bp_work.units; NULL: its figures are made from the parts of windows. */
    const bp_work_units *(*units)(scorer *self);
    /** Files from the parts of windows, before those of windows. On the coordinator. */
    bp_err (*merge_windows)(scorer *self, bp_parts *parts);
    /** Members of summary.json, once its own units are merged. On the coordinator. */
    void (*summarise)(const scorer *self, json_t *summary);
    /** What identifies the run, by content. Local. */
    bp_run_identity (*identify)(const scorer *self);
    /** Bytes of a rank that leads or coordinates, for windows of `inputs` inputs; models->config
     * may be of another job that scores, without score.*. Local. */
    int64_t (*bytes)(const bp_work_models *models, int64_t inputs);
    /** Log what is about to be done, and the figures. On the coordinator. */
    void (*say)(const scorer *self);
    void (*report)(const scorer *self);
};

/** All of them, those whose merges others need first; NULL-ended. */
extern const score_set *const scorer_sets[];
/** The next set after `k` (-1 at the start) that is asked for; its place, -1: no more. */
int scorer_next_set(const scorer *self, int k);
/** What `open` of a set gave; NULL before. */
void *scorer_own(const scorer *self, const score_set *set);

/** For all sets that are asked for, as the members of those names. */
bp_err scorer_open_sets(scorer *self);
void scorer_close_sets(scorer *self);
int64_t scorer_sets_bytes(const bp_work_models *models, int64_t inputs);
/** The names of all files, NULL-ended. */
void scorer_list_files(const char *names[SCORE_FILES_MOST + 1]);
bool scorer_writes(const scorer *self, const char *file);

extern const score_set score_task_set, score_candidates_set, score_states_set, score_windows_set;

#endif
