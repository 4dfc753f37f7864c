/* Methods of a search: a file and a row each, what search.method asks for.
 *
 * A search makes trials. A trial is a configuration of `pretrain`: that of the search, with other
 * values of some keys (its settings), and a score by which trials are ordered. How trials are
 * proposed and scored is the method's. The frame (search.c) holds the run folder, keeps what is
 * known of each trial over a kill, decides which models search.limit admits, trains the best
 * search.final trials from scratch, and writes the table, summary.json, best.ini and the page. */
#ifndef BP_SEARCH_METHODS_METHOD_H
#define BP_SEARCH_METHODS_METHOD_H

#include "base/config/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include "models/family.h"

#define NAS_SETTINGS 1024 /* bytes of "model.layers=4 model.width=128", in the space's order */

typedef struct nas_trial {
    char settings[NAS_SETTINGS]; /* what its configuration has unlike the search's */
    double score; /* a validation loss that the search goes by, nats; NaN: not known yet */
    double order; /* the best search.final trials have the smallest; NaN: the score */
    double tokens_per_second; /* forward, measured here; NaN: search.limit does not ask */
    double flops;             /* of training that was done for this trial alone; 0: it shares
                                 weights */
    int64_t parameters;
    double final_flops; /* of that training; 0: the trial's own was as long */
    double final_loss;  /* a validation loss after training from scratch; NaN: it was not */
} nas_trial;

typedef struct nas nas;

typedef struct nas_method {
    const char *name; /* of search.method */
    bool shares;      /* its trials always share weights */
    bool free_space;  /* it finds settings without search.space */
    /** Faults of the configuration that need no file (bp_config_fault). NULL: none. Local. */
    void (*check)(bp_config *config);
    /** Make all trials: nas_admit, nas_propose, then nas_score, of one or of many.
     *
     * Collective: over nas_mesh(self)->world; trials are equal on all ranks afterwards.
     * Errors:     BP_ERR_STOPPED asked to stop: the same command goes on; those of bp_pretrain: the
     *             same on all ranks. */
    bp_err (*run)(nas *self);
    /** The configuration of a training that all ranks which compute do together, as data ranks,
     * before trials have scores. NULL: there is none, or of shared weights. Local. Owns:
     * bp_config_free(). Errors: of nas_training_config. */
    bp_err (*training)(const nas *self, bp_config **out);
    /** How many models there are to find. NULL: the points of search.space. */
    double (*models)(const nas *self);
} nas_method;

/* a file each */
extern const nas_method nas_differentiable, nas_evolution, nas_random, nas_ranked;
extern const bp_option nas_differentiable_options[]; /* its own keys */
/** All methods; NULL-ended (methods.c). */
extern const nas_method *const nas_methods[];
/** The one that search.method names. */
const nas_method *nas_method_of(const bp_config *config);

/* ---- what a method asks of the frame ---- */

bp_config *nas_config(const nas *self); /* the search's own */
const bp_mesh *nas_mesh(const nas *self);
int64_t nas_wanted(const nas *self); /* search.trials */

int64_t nas_count(const nas *self);
/** Trial k; its members but `settings` may be changed, alike on all ranks. */
nas_trial *nas_trial_at(nas *self, int64_t k);
/** The trial that has these settings; -1: none. */
int64_t nas_find(const nas *self, const char *settings);

/** Do these settings give a model that trains here, within search.limit? A speed that is measured
 * for it is kept over a kill.
 *
 * Collective: over the mesh's world, if search.limit names tokens_per_second.
 * Errors:     those of measuring: the same on all ranks. */
bp_err nas_admit(nas *self, const char *settings, bool *admitted);

/** Append a trial without a score. Of an earlier start it has the score.
 *
 * Local: every rank proposes the same.
 * Errors: BP_ERR_FORMAT the earlier start had another trial at this place. */
bp_err nas_propose(nas *self, const char *settings);

/** Score one trial: sets score, and flops if it trains for this trial alone. Collective over
 * `group`. */
typedef bp_err (*nas_scorer)(nas *self, MPI_Comm group, int64_t k, nas_trial *io, void *context);
/** Score those of trials [first, first + count) that have no score yet, dealt in turn to the groups
 * of ranks that mesh.members makes. What they found is kept over a kill (search/trials.json).
 *
 * Collective: over the mesh's world.
 * Errors:     the worst of `score`, on all ranks; those of bp_json_save. */
bp_err nas_score(nas *self, int64_t first, int64_t count, nas_scorer score, void *context);

/** The configuration of a training with these settings ("": the search's), in RUN/search/FOLDER
 * ("trials/t0003"), for bp_pretrain over a group. steps 0: as many as the search's keys say.
 * with_search: it has the keys of the search too. Local. Owns: bp_config_free(). Errors:
 * BP_ERR_CONFIG a setting that its key does not take. */
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

/** The shape of the model of these settings. Local. Errors: BP_ERR_CONFIG it is none. */
bp_err nas_shape(const nas *self, const char *settings, bp_model_shape *out);

#endif
