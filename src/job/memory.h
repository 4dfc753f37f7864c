/* The memory of a node that a job's ranks take, estimated from manifests before any weight is
 * read. */
#pragma once

#include "base/config/json.h"
#include "mesh/mesh.h"
#include "mesh/node_memory.h"
#include "models/model.h"

/** The models of a job, from their manifests. */
typedef struct bp_work_models {
    const bp_config *config;
    bool ensemble;
    json_t **states; /* [count] of manifests */
    int64_t count;
    int64_t members; /* members of the ensemble: the models, or those drawn from one; else 1 */
} bp_work_models;

/** A rank of a mesh; a dedicated coordinator computes nothing. */
typedef struct bp_work_place {
    const bp_mesh_shape *mesh;
    int stage, member;
    bool computes;
} bp_work_place;

typedef struct bp_work_memory {
    const bp_config *config;
    const bp_planned_world *plan; /* a planned job, whose memory is also printed; NULL: this job */
    int64_t process_bytes;        /* of a process before it opens a model */
    const char *model;            /* the path of a CHECKPOINT or ensemble */
    bool mixed;                   /* always apply it as an ensemble */
    int64_t drawn;                /* number of members drawn from that one model */
    bool apart;                   /* each drawn member is a separate model */
    const char *remedy;           /* advice if no mesh would suffice: "use a smaller model" */
    /** Add the memory of a rank at `place` to *out. Errors: BP_ERR_SYSTEM; any other error means
     * that the size is unknown, and nothing is checked. Local. */
    bp_err (*rank)(const void *context, const bp_work_models *models, const bp_work_place *place,
                   bp_rank_memory *out);
    const void *context;
} bp_work_memory;

/** The memory of all models of a rank. */
typedef struct bp_work_model_bytes {
    int64_t weights, work, decode; /* of this rank's members: sum, maximum, sum */
    int64_t node;                  /* of all members, shared by all ranks of a node */
    bp_model_memory widest;        /* the maximum over members */
} bp_work_model_bytes;

/** Consecutive members of one shape are estimated once. Local. Errors: those of
 * bp_model_estimate. */
bp_err bp_work_model_bytes_of(bp_work_model_bytes *out, const bp_work_models *models,
                              const bp_model_task *task, int member);

/** Checks that the ranks of each node fit into its memory. If that can't be estimated (a manifest
 * without sizes, a mesh that the model does not fit), the code that opens the models reports it.
 *
 * *alone_fits (may be NULL): whether the one rank that represents all ranks of a planned job can
 * hold it all.
 *
 * Collective: over `world`; shape (fitted) and spec are equal on all ranks.
 * Errors:     BP_ERR_SYSTEM they do not fit, with the mesh that would: the same on all ranks. */
bp_err bp_work_memory_check(MPI_Comm world, const bp_mesh_shape *shape, const bp_work_memory *spec,
                            bool *alone_fits);
