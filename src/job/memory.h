/* What the ranks of a job take of a node's memory, estimated from manifests before any weight is
 * read. */
#ifndef BP_JOB_MEMORY_H
#define BP_JOB_MEMORY_H

#include "base/config/json.h"
#include "mesh/mesh.h"
#include "mesh/node_memory.h"
#include "models/model.h"

/** The models of a job, as their manifests have them. */
typedef struct bp_work_models {
    const bp_config *config;
    bool ensemble;
    json_t **states; /* [count] of manifests */
    int64_t count;
    int64_t members; /* of the ensemble: the models, or those drawn from one; else 1 */
} bp_work_models;

/** A rank of a mesh; a dedicated coordinator computes nothing. */
typedef struct bp_work_place {
    const bp_mesh_shape *mesh;
    int stage, member;
    bool computes;
} bp_work_place;

typedef struct bp_work_memory {
    const bp_config *config;
    const bp_planned_world *plan; /* a job to come, which is printed, too; NULL: this one */
    int64_t process_bytes;        /* of a process before it opens a model */
    const char *model;            /* the path of a CHECKPOINT or ensemble */
    bool mixed;                   /* it is applied as an ensemble in any case */
    int64_t drawn;                /* members that are drawn from that one model; 0: none */
    bool apart;                   /* each of them is a model of its own */
    const char *remedy;           /* if no mesh would suffice: "use a smaller model" */
    /** Add what a rank at `place` takes to what is in *out. Errors: BP_ERR_SYSTEM; any other says
     * that the size is unknown, and nothing is checked. Local. */
    bp_err (*rank)(const void *context, const bp_work_models *models, const bp_work_place *place,
                   bp_rank_memory *out);
    const void *context;
} bp_work_memory;

/** What the models of a rank take together. */
typedef struct bp_work_model_bytes {
    int64_t weights, work, decode; /* of the members here: all, the most of one, all */
    int64_t node;                  /* that all ranks of a node share, of all members */
    bp_model_memory widest;        /* of all members */
} bp_work_model_bytes;

/** Members of one shape that follow one another are estimated once. Local. Errors: those of
 * bp_model_estimate. */
bp_err bp_work_model_bytes_of(bp_work_model_bytes *out, const bp_work_models *models,
                              const bp_model_task *task, int member);

/** The ranks of each node fit into its memory. What can't be estimated (a manifest without the
 * sizes, a mesh that the model does not fit) is left to what opens the models.
 *
 * *alone_fits (NULL: not asked): one rank, which represents all ranks of a job to come, can hold it
 * all.
 *
 * Collective: over `world`; shape (fitted) and spec are equal on all ranks.
 * Errors:     BP_ERR_SYSTEM they do not fit, with the mesh that would: the same on all ranks. */
bp_err bp_work_memory_check(MPI_Comm world, const bp_mesh_shape *shape, const bp_work_memory *spec,
                            bool *alone_fits);

#endif
