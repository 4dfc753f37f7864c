/* The methods that a study compares: the words after the ':' of a model in uncertainty.models.
 *
 * A method makes an ensemble of one checkpoint (infer/ensemble/member_sampler.h), perhaps after a
 * fit. The comparison does the rest, and names none of them: it refuses, plans memory, scores, fits
 * a temperature, resumes, and writes files and the page only from this table. */
#ifndef BP_UNCERTAINTY_METHODS_METHOD_H
#define BP_UNCERTAINTY_METHODS_METHOD_H

#include "base/config/config.h"
#include "infer/ensemble/member_sampler.h"
#include "models/task/task_shape.h"
#include "uncertainty/methods/fit.h"

/** A model of a study to which a method is applied. All is borrowed. */
typedef struct bp_method_case {
    const bp_config *config; /* of the study: the method's keys, corpus.*, run.seed */
    const char *name, *path; /* NAME=PATH:WORD */
    int64_t passes;          /* uncertainty.passes: how many members a method makes that has no key
                                of its own for it */
    const char *fitted;      /* the file that `fit` writes: RUN/uncertainty/WORD/NAME.h5 */
    /* From the checkpoint's manifest: */
    const bp_task_shape *task; /* kind 0: a language model */
    int64_t outcomes, width;   /* 0: unknown */
    const char *trained_on;    /* hash of its training corpus; "": unknown */
    /* Of corpus.train, on the coordinator; 0 and "": none was given. */
    int64_t train_tokens;
    const char *train_hash;
} bp_method_case;

/** A fit on the mesh of a study. */
typedef struct bp_method_fit {
    const bp_mesh *mesh;
    const bp_config *config;         /* of the method's score run */
    const bp_fit_listener *listener; /* to be called on rank 0 of mesh->compute */
} bp_method_fit;

/** A row of the table. What a method does not need is NULL; only `word` has to be there. */
typedef struct bp_uncertainty_method {
    const char *word;
    /** Faults that need neither files nor ranks (bp_config_fault). Local. */
    void (*check)(bp_config *config);
    /** Refuse a model, before any compute. Local, on the coordinator. Errors: BP_ERR_CONFIG. */
    bp_err (*suits)(const bp_method_case *at);
    /** Warn of what shows little (BP_WARN). Local, on the coordinator. */
    void (*warn)(const bp_method_case *at);
    /** How members are made of the checkpoint; NULL: as the folder has them, one or an ensemble.
     * Local, on all ranks. Owns: the caller's, bp_member_sampler_ops.free. */
    bp_member_sampler *(*sampler)(const bp_method_case *at);
    /** Write at->fitted, unless a finished file of the same fit is there. The sums of a fit have no
     * order over ranks: mesh.data may change its bits.
     *
     * Collective: over fit->mesh->compute; the report is valid on all its ranks.
     * Errors:     the same on all ranks; BP_ERR_STOPPED the listener or a signal asked for it. */
    bp_err (*fit)(const bp_method_case *at, const bp_method_fit *fit, bp_fit_report *report);
    /** What `fit` takes on a rank at its peak besides the model. The shape has been fitted. */
    int64_t (*fit_bytes)(const bp_method_case *at, const bp_mesh_shape *shape);
    /** A line of --plan: what members cost that were not measured; fit_bytes as above. */
    void (*print_plan)(const bp_method_case *at, int64_t fit_bytes);
} bp_uncertainty_method;

#endif
