/* How many threads a rank computes with, and on which cores. */
#ifndef BP_MATH_THREADS_H
#define BP_MATH_THREADS_H

#include "mesh/mesh.h"

#include <mpi.h>
#include <stdbool.h>

/** Threads that this process may use: the cores of its affinity mask, a quota considered. */
int bp_math_cores(void);
/** Physical cores of this host that the job might use, whatever its ranks are bound to: those of
 * Slurm's allocation, or that the control group allows. 0: not known. */
int bp_math_cores_of_job(void);
/** Set the OpenMP threads of all kernels (0: bp_math_cores()); also flushes denormals in every
 * thread. */
void bp_math_set_threads(int threads);
int bp_math_threads(void);
/** Threads for this rank: `asked` (math.threads) if it is not 0, else OMP_NUM_THREADS, else its
 * fair share of the cores that it may use, since ranks of a node that are not bound would otherwise
 * each take all of them. The first call in a process, over all of its job's ranks, also chooses the
 * cores that bp_math_set_threads binds the threads to (threads_priv.h), unless the user has
 * said where they run (OMP_PROC_BIND, OMP_PLACES ...). Collective over `comm`. */
int bp_math_threads_for(MPI_Comm comm, int asked);
/** Warn, in one line and once a process, of computing ranks with more threads than cores, each by
 * itself or those of a node together; or say in the log that the ranks of a node leave cores idle,
 * unless math.threads is given. The threads are set; computes: this rank does. Collective. */
void bp_math_warn_of_threads(MPI_Comm world, bool computes);
/** The same where a job to come is planned (NULL: there is none): one rank that stands for each of
 * plan->ranks ranks (0: none are named) takes as many as they would on a node like this one, and a
 * warning says where they are more than its cores. Collective over `comm`. */
int bp_math_threads_planned(MPI_Comm comm, int asked, const bp_planned_world *plan);

#endif
