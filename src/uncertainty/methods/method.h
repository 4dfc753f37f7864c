/* The methods that a study compares: the words after the ':' of a model in uncertainty.models.
 *
 * A method makes an ensemble from one checkpoint (infer/ensemble/member_sampler.h), some of them
 * after a fit. The comparison does the rest, using only this table: checks, memory plan, scores,
 * temperature, resumption, files and the page. */
#pragma once

#include "base/config/config.h"
#include "infer/ensemble/member_sampler.h"
#include "models/task/task_shape.h"
#include "uncertainty/methods/fit.h"

/** A model of a study to which a method is applied. All is borrowed. */
typedef struct bp_method_case {
    const bp_config *config; /* of the study: the method's keys, corpus.*, run.seed */
    const char *name, *path; /* NAME=PATH:WORD */
    int64_t passes; /* uncertainty.passes: number of members, for methods without their own key for
                       it */
    const char *fitted; /* the file that `fit` writes: RUN/uncertainty/WORD/NAME.h5 */
    /* From the checkpoint's manifest: */
    const bp_task_shape *task; /* kind 0: a language model */
    int64_t outcomes, width;   /* 0 if unknown */
    const char *trained_on;    /* hash of its training corpus; "" if unknown */
    /* Of corpus.train, on the coordinator; 0 and "" if not set. */
    int64_t train_tokens;
    const char *train_hash;
} bp_method_case;

/** A fit on the mesh of a study. */
typedef struct bp_method_fit {
    const bp_mesh *mesh;
    const bp_config *config;         /* of the method's score run */
    const bp_fit_listener *listener; /* called on rank 0 of mesh->compute */
} bp_method_fit;

/** A row of the table. Members that a method does not need are NULL; only `word` is required. */
typedef struct bp_uncertainty_method {
    const char *word;
    /** Add the faults that need neither files nor ranks (bp_config_fault). Local. */
    void (*check)(bp_config *config);
    /** Refuse a model, before any compute. Local, on the coordinator. Errors: BP_ERR_CONFIG. */
    bp_err (*suits)(const bp_method_case *at);
    /** Warn about settings that show little (BP_WARN). Local, on the coordinator. */
    void (*warn)(const bp_method_case *at);
    /** How members are made from the checkpoint; NULL: the folder's own model or ensemble. Local,
     * on all ranks. Owns: the caller's, bp_member_sampler_ops.free. */
    bp_member_sampler *(*sampler)(const bp_method_case *at);
    /** Write at->fitted, unless a finished file of the same fit exists. The sums of a fit have no
     * fixed order over ranks: mesh.data may change its bits.
     *
     * Collective: over fit->mesh->compute; the report is valid on all its ranks.
     * Errors:     the same on all ranks; BP_ERR_STOPPED on request of the listener or a signal. */
    bp_err (*fit)(const bp_method_case *at, const bp_method_fit *fit, bp_fit_report *report);
    /** Peak bytes of `fit` on a rank, without the model. The shape has been fitted. */
    int64_t (*fit_bytes)(const bp_method_case *at, const bp_mesh_shape *shape);
    /** A line of --plan: the cost of members that were not measured; fit_bytes as above. */
    void (*print_plan)(const bp_method_case *at, int64_t fit_bytes);
} bp_uncertainty_method;
