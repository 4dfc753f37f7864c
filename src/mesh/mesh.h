/* The process mesh: members x pipeline x data x tensor ranks, tensor fastest, and a coordinator. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "base/process/heartbeat.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

extern const bp_option bp_mesh_options[]; /* mesh.* */

/** Values of bp_mesh_options (docs: --help). */
typedef struct bp_mesh_keys {
    int64_t members;
    int64_t pipeline;
    int64_t data;
    int64_t tensor;
    int64_t expert;
    const char *coordinator;
    int64_t micro_batch;
    const char *schedule;
    int64_t chunks;
    bool overlap;
    const char *sequence_parallel;
    const char *sums;
} bp_mesh_keys;

static inline const bp_mesh_keys *bp_mesh_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_mesh_options);
}

typedef struct bp_mesh_shape {
    /* ranks along each axis; data 0: all ranks that the other axes leave */
    int members, pipeline, data, tensor;
    enum { BP_COORDINATOR_AUTO, BP_COORDINATOR_SHARED, BP_COORDINATOR_DEDICATED } coordinator;
    int expert; /* data ranks that share out the experts of each layer; 0 is 1: each has all */
} bp_mesh_shape;

/** This rank's place, and communicators by axis. On a dedicated coordinator `computes` is false,
 * the coordinates are -1 and all communicators but `world` are MPI_COMM_NULL. */
typedef struct bp_mesh {
    MPI_Comm
        world; /* a duplicate of the communicator given: all ranks; the coordinator is rank 0 */
    MPI_Comm compute; /* the computing ranks: world without a dedicated coordinator */
    MPI_Comm member;  /* this member's ranks: pipeline x data x tensor, tensor fastest */
    MPI_Comm model; /* one copy of the model: pipeline x tensor, tensor fastest; rank 0 leads it */
    MPI_Comm pipeline, data, tensor; /* along one axis */
    /* a replica: copies of all members that see the same windows: members x pipeline x tensor,
     * tensor fastest; the same ranks as `model` where there is one member. Rank 0 leads it. */
    MPI_Comm replica;
    MPI_Comm across; /* ranks with the same place in each member: rank r is in member r */
    /* Data ranks, in their order: consecutive ones in `expert` share out experts; those in
     * `expert_data`, one from each such group, hold the same experts (expert data parallel)
     */
    MPI_Comm expert, expert_data;
    struct bp_lockstep *lockstep;  /* of `expert`, while data ranks have work of their own
                                      (mesh/lockstep.h): a job that trains has none; borrowed */
    int expert_ranks, expert_rank; /* size of `expert`, and this rank's place */
    int rank, size;                /* in world */
    int members, pipeline_ranks, data_ranks, tensor_ranks;   /* extents of the axes */
    int member_index, pipeline_rank, data_rank, tensor_rank; /* this rank's coordinates */
    bool dedicated;                                          /* the coordinator does not compute */
    bool coordinates; /* this rank is the coordinator (world rank 0) */
    bool computes;
} bp_mesh;

/** Data ranks that share out experts. */
static inline int bp_mesh_shape_experts(const bp_mesh_shape *of)
{
    return of->expert > 1 ? of->expert : 1;
}

/** Read mesh.* of a checked configuration. */
bp_mesh_shape bp_mesh_shape_of(const bp_config *config);

/** Fit the shape to a world of `size` ranks: fills data, chooses the coordinator (SHARED or
 * DEDICATED).
 *
 * Errors: BP_ERR_CONFIG: the world does not fit; the message says which sizes would.
 */
bp_err bp_mesh_shape_fit(bp_mesh_shape *shape, int size);

/** A planned job, simulated by one process. */
typedef struct bp_planned_world {
    int ranks; /* 0: the product of the mesh's axes, where mesh.data is mesh.expert by default */
    int nodes; /* filled by the ranks one after another */
    const char *network;  /* a file with the network's measured speed (--network); NULL: defaults */
    const char *schedule; /* a file to write a training step to (--schedule); may be NULL */
} bp_planned_world;

/** Fit the shape to a planned job of `ranks` ranks (bp_planned_world). Errors: as
 * bp_mesh_shape_fit. */
bp_err bp_mesh_shape_plan(bp_mesh_shape *shape, int ranks);

/** Build the mesh over `comm`.
 *
 * Collective: over `comm`; the shape has been fitted to its size and is equal on all ranks
 * (BP_ASSERT). Returns BP_OK.
 */
bp_err bp_mesh_new(bp_mesh **out, MPI_Comm comm, const bp_mesh_shape *shape);

/** The mesh that a configuration asks for, and its fitted shape. With `plan` (NULL: this job
 * runs), one process plans a job: its mesh has only itself, and the shape is that of the planned
 * job.
 *
 * Collective: over `world`. Errors: BP_ERR_CONFIG, those of bp_mesh_shape_fit.
 */
bp_err bp_mesh_open(bp_mesh **out, bp_mesh_shape *shape, const bp_config *config, MPI_Comm world,
                    const bp_planned_world *plan);
void bp_mesh_free(bp_mesh **mesh); /* collective over world */

/** MPI_Init_thread for a program (requests MPI_THREAD_MULTIPLE): MPI's errors end the program with
 * its text; BP_ASSERT goes through MPI_Abort; only rank 0 speaks. Without mpirun it is a world of
 * one rank. bp_mpi_finish ends MPI.
 *
 * Errors: BP_ERR_SYSTEM an MPI without threads; BP_ERR_CONFIG srun started several tasks as worlds
 * of their own. Print the error and call bp_mpi_finish all the same.
 */
bp_err bp_mpi_start(int *argc, char ***argv);
/** Let bp_mpi_start wait this many seconds for the other ranks (base/process/start_limit.h),
 * instead of 600; 0: no limit. Call before bp_mpi_start. */
void bp_mpi_start_within(double seconds);
void bp_mpi_finish(void);
/** Set a function that bp_mpi_finish() calls after MPI has ended; NULL: no call. */
void bp_mpi_at_end(void (*call)(void));
/** A thread is still inside an uninterruptible library call (mesh/long_call.h), so MPI can't be
 * finalized any more. bp_mpi_finish() then waits until all ranks have called it, and ends the
 * process with `status`, whichever rank called this. Local. */
void bp_mpi_abandon(int status);

/** Report an MPI failure: MPI's text, file and line, then MPI_Abort. */
#define BP_MPI(call) bp_mpi_check((call), #call, __FILE__, __LINE__)
void bp_mpi_check(int status, const char *call, const char *file, int line);

/** The same for a call that waits for other ranks: reported to the watchdog as `what`
 * (base/process/heartbeat.h). */
#define BP_MPI_WAIT(what, call)                                                                    \
    do {                                                                                           \
        bp_heartbeat_enter(what);                                                                  \
        BP_MPI(call);                                                                              \
        bp_heartbeat_leave();                                                                      \
    } while (0)

/** A count for MPI: BP_ASSERTs that it fits an int. */
int bp_mpi_count(int64_t n);

/** All ranks hold the worst code and its message (of the lowest rank that has it), or BP_OK.
 * Collective over `comm`. */
bp_err bp_agree(MPI_Comm comm, bp_err err);

int bp_comm_rank(MPI_Comm comm);
int bp_comm_size(MPI_Comm comm);
bool bp_comm_is_root(MPI_Comm comm);

/** This host's name in Slurm (sbatch --exclude takes no other), else MPI's name; cut to bytes - 1.
 * Local, between MPI_Init and MPI_Finalize. */
void bp_host_name(char *out, size_t bytes);
