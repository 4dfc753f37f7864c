/* Methods of a search: a file and a row each, what search.method asks for.
 *
 * A search makes trials. A trial is a configuration of `pretrain`: that of the search, with other
 * values of some keys (its settings), and a score by which the search orders it. How trials are
 * proposed and scored is the method's. The frame (search.c) holds the run folder, keeps what is
 * known of each trial over a kill, refuses trials beyond search.limit, trains the best
 * search.final of them from scratch, and writes the table, summary.json, best.ini and the page. */
#ifndef BP_SEARCH_METHOD_H
#define BP_SEARCH_METHOD_H

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include "models/family.h"
#include "run/run_folder.h"

/** Settings: "model.layers=4 model.width=128", keys in the order of search.space. */
#define BP_SEARCH_SETTINGS 1024

typedef struct bp_search_trial {
    char settings[BP_SEARCH_SETTINGS]; /* what its configuration has unlike the search's */
    double score;              /* of the search, nats: a validation loss, lower is better; NaN: not known yet */
    double tokens_per_second;  /* of its forward pass, measured here; NaN: not measured */
    int64_t parameters;        /* of its model */
    int64_t steps;             /* optimizer steps that were made for this trial alone; 0: shared weights */
    double final_loss;         /* validation loss after training from scratch; NaN: it was not */
} bp_search_trial;

typedef struct bp_search bp_search;

typedef struct bp_search_method {
    const char *name;             /* of search.method */
    const char *help;             /* one line: what it does */
    const bp_option *options;     /* its own keys; NULL: none */
    bool free_space;              /* it finds settings without search.space */
    /** Faults of the configuration that need no file (bp_config_fault). NULL: none. Local. */
    void (*check)(bp_config *config);
    /** Make all trials: bp_search_propose, then bp_search_score, one after another or many at a time.
     *
     * Collective: over bp_search_mesh(self)->world; trials are equal on all ranks afterwards.
     * Errors:     BP_ERR_STOPPED asked to stop: the same command goes on; those of bp_pretrain: the
     *             same on all ranks. */
    bp_err (*run)(bp_search *self);
} bp_search_method;

extern const bp_search_method *const bp_search_methods[]; /* NULL-ended: methods.c */
/** NULL: there is none of this name. */
const bp_search_method *bp_search_method_named(const char *name);

/* ---- what a method asks of the frame ---- */

const bp_config *bp_search_config(const bp_search *self); /* the search's own */
const bp_mesh *bp_search_mesh(const bp_search *self);
/** search.trials: how many the method makes at most. */
int64_t bp_search_wanted(const bp_search *self);

int64_t bp_search_count(const bp_search *self);
const bp_search_trial *bp_search_trial_at(const bp_search *self, int64_t trial);

/** Append a trial without a score. What an earlier start found of it (score, speed) is filled in.
 *
 * Local: every rank proposes the same.
 * Errors: BP_ERR_FORMAT an earlier start had another trial at this place. */
bp_err bp_search_propose(bp_search *self, const char *settings);

/** Score trials [first, first + count) that have no score yet, side by side on groups of ranks:
 * `score` is called on all ranks of a group (a communicator) for one trial after another, and sets
 * score and steps. The frame then keeps what it found over a kill (search/trials.jsonl).
 *
 * Collective: over the mesh's world; `score` over its group.
 * Errors:     the first failure of `score`, on all ranks; BP_ERR_IO of the journal. */
typedef bp_err (*bp_search_scorer)(bp_search *self, MPI_Comm group, int64_t trial,
                                   bp_search_trial *io, void *context);
bp_err bp_search_score(bp_search *self, int64_t first, int64_t count, bp_search_scorer score,
                       void *context);

/** The configuration of a `pretrain` with these settings in RUN/search/FOLDER ("trials/t0003"),
 * with run.seed of the search, for bp_pretrain(group, *out, parts, hooks). Local. Owns: the
 * caller's, bp_config_free(). Errors: BP_ERR_CONFIG a setting that its key does not take. */
bp_err bp_search_training(const bp_search *self, const char *settings, const char *folder,
                          bp_config **out);
/** The last validation loss in metrics.jsonl of such a training (NaN: there is none), and its last
 * step. Collective over `group`; the same on all its ranks. Errors: BP_ERR_IO, BP_ERR_FORMAT. */
bp_err bp_search_read_loss(MPI_Comm group, const bp_config *training, double *loss, int64_t *step);

#endif
