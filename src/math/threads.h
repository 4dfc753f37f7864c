/* The number of a rank's compute threads, and their cores. */
#pragma once

#include "mesh/mesh.h"

#include <mpi.h>
#include <stdbool.h>

/** Threads that this process may use: the cores of its affinity mask, limited by a quota. */
int bp_math_cores(void);
/** Physical cores of this host that the job might use, whatever its ranks are bound to: those of
 * Slurm's allocation, or of the control group. 0 if unknown. */
int bp_math_cores_of_job(void);
/** Set the OpenMP threads of all kernels (0: bp_math_cores()); also flushes denormals in every
 * thread. */
void bp_math_set_threads(int threads);
int bp_math_threads(void);
/** Threads for this rank: `asked` (math.threads) if it is not 0, else OMP_NUM_THREADS, else its
 * fair share of the cores that it may use, since ranks of a node that are not bound would
 * otherwise each take all of them. The first call in a process, over all of its job's ranks, also
 * chooses the cores that bp_math_set_threads binds the threads to (threads_priv.h), unless the
 * user has chosen the binding (OMP_PROC_BIND, OMP_PLACES ...). Collective over `comm`. */
int bp_math_threads_for(MPI_Comm comm, int asked);
/** Warn, in one line and once per process, about compute ranks with more threads than cores,
 * singly or together on a node. Or log that the ranks of a node leave cores idle, unless
 * math.threads is given. Threads must be set before; computes: this is a compute rank.
 * Collective. */
void bp_math_warn_of_threads(MPI_Comm world, bool computes);
/** The same for a planned job (plan may be NULL): one rank stands for each of plan->ranks ranks
 * (0: not given), takes as many threads as they would on a node like this one, and warns if they
 * exceed its cores. Collective over `comm`. */
int bp_math_threads_planned(MPI_Comm comm, int asked, const bp_planned_world *plan);
