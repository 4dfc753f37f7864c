/* Methods of a search, the choices of search.method: each has a file and a row.
 *
 * A search makes trials. A trial is a configuration of `pretrain`, which is that of the search with
 * other values of some keys (its settings), and a score by which trials are ordered. The method
 * proposes and scores trials. The frame (search.c) holds the run folder, saves the results of each
 * trial against kills, decides which models search.limit admits, trains the best search.final
 * trials from scratch, and writes the table, summary.json, best.ini and the page. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include "models/family.h"

#define NAS_SETTINGS 1024 /* bytes of "model.layers=4 model.width=128", in the space's order */

typedef struct nas_trial {
    char settings[NAS_SETTINGS]; /* how its configuration differs from the search's */
    double score; /* the validation loss that the search uses, nats; NaN: not yet known */
    double order; /* trials are ordered by it, smallest first; NaN: by the score */
    double tokens_per_second; /* forward, measured here; NaN if search.limit does not need it */
    double flops;             /* of training only for this trial; 0 if it shares weights */
    int64_t parameters;
    double final_flops; /* of the training from scratch; 0 if the trial's own was as long */
    double final_loss;  /* validation loss after training from scratch; NaN if it was not done */
} nas_trial;

typedef struct nas nas;

typedef struct nas_method {
    const char *name; /* of search.method */
    bool shares;      /* its trials always share weights */
    bool free_space;  /* it finds settings without search.space */
    /** Adds faults of the configuration that need no file (bp_config_fault). May be NULL. Local. */
    void (*check)(bp_config *config);
    /** Make all trials: nas_admit, nas_propose, then nas_score, for one or many.
     *
     * Collective: over nas_mesh(self)->world; trials are equal on all ranks afterwards.
     * Errors:     BP_ERR_STOPPED asked to stop: the same command resumes; those of bp_pretrain: the
     *             same on all ranks. */
    bp_err (*run)(nas *self);
    /** The configuration of a training by all computing ranks together, as data ranks, before
     * trials have scores. NULL if there is none, or if it is that of shared weights. Local. Owns:
     * bp_config_free(). Errors: of nas_training_config. */
    bp_err (*training)(const nas *self, bp_config **out);
    /** The number of possible models. NULL: the points of search.space. */
    double (*models)(const nas *self);
} nas_method;

/* a file each */
extern const nas_method nas_differentiable, nas_evolution, nas_random, nas_ranked;
extern const bp_option nas_differentiable_options[]; /* its own keys */
/** All methods; NULL-ended (methods.c). */
extern const nas_method *const nas_methods[];
/** The method of search.method. */
const nas_method *nas_method_of(const bp_config *config);

/* ---- functions of the frame for methods ---- */

bp_config *nas_config(const nas *self); /* the search's own */
const bp_mesh *nas_mesh(const nas *self);
int64_t nas_wanted(const nas *self); /* search.trials */

int64_t nas_count(const nas *self);
/** Trial k; its members except `settings` may be changed, alike on all ranks. */
nas_trial *nas_trial_at(nas *self, int64_t k);
/** The trial with these settings, or -1. */
int64_t nas_find(const nas *self, const char *settings);

/** Can a model with these settings train here, within search.limit? Measured speeds are saved
 * against kills.
 *
 * Collective: over the mesh's world, if search.limit names tokens_per_second.
 * Errors:     those of measuring: the same on all ranks. */
bp_err nas_admit(nas *self, const char *settings, bool *admitted);

/** Append a trial without a score, or with that of an earlier start.
 *
 * Local: every rank must propose the same.
 * Errors: BP_ERR_FORMAT the earlier start had another trial at this index. */
bp_err nas_propose(nas *self, const char *settings);

/** Score one trial: sets score, and flops if it trains only for this trial. Collective over
 * `group`. */
typedef bp_err (*nas_scorer)(nas *self, MPI_Comm group, int64_t k, nas_trial *io, void *context);
/** Score those of trials [first, first + count) that have no score yet, dealt in turn to the groups
 * of ranks that mesh.members makes. Results are saved against kills (search/trials.json).
 *
 * Collective: over the mesh's world.
 * Errors:     the worst of `score`, on all ranks; those of bp_json_save. */
bp_err nas_score(nas *self, int64_t first, int64_t count, nas_scorer score, void *context);

/** The configuration of a training with these settings ("": the search's), in RUN/search/FOLDER
 * ("trials/t0003"), for bp_pretrain over a group. steps 0: the steps of the search's keys.
 * with_search: also include the keys of the search. Local. Owns: bp_config_free(). Errors:
 * BP_ERR_CONFIG a setting that its key does not allow. */
typedef struct nas_training {
    const char *settings, *folder;
    int64_t steps;
    bool with_search;
} nas_training;
bp_err nas_training_config(const nas *self, const nas_training *what, bp_config **out);
/** Train it to its end, from wherever an earlier start stopped. *loss: the last validation loss
 * (NaN: it diverged). *flops: of all its steps. Collective over `group`. Errors: those of
 * bp_pretrain but BP_ERR_SOFTWARE. */
bp_err nas_train(nas *self, MPI_Comm group, const nas_training *what, double *loss, double *flops);

/** The shape of the model of these settings. Local. Errors: BP_ERR_CONFIG it is invalid. */
bp_err nas_shape(const nas *self, const char *settings, bp_model_shape *out);
