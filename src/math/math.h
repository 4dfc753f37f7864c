/* What the math layer runs on: the CPU it found, the precision chosen, the threads. */
#ifndef BP_MATH_MATH_H
#define BP_MATH_MATH_H

#include "base/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include <mpi.h>
#include <stdbool.h>

extern const bp_option bp_math_options[]; /* math.precision, math.threads */

/** Values of bp_math_options (docs: --help). */
typedef struct bp_math_keys {
    const char *precision;
    int64_t threads;
} bp_math_keys;

static inline const bp_math_keys *bp_math_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_math_options);
}

typedef enum bp_precision { BP_F32, BP_BF16 } bp_precision;

/** bf16 matrix products run at hardware speed here: AMX or AVX512_BF16, and a library that has
 * them. */
bool bp_math_has_bf16(void);
/** "onednn 2.6.3" or "blas", with the instruction set in use; for run.json. */
const char *bp_math_library(void);
const char *bp_math_cpu(void);
/** Threads that this process may use: the cores of its affinity mask, a quota considered. */
int bp_math_cores(void);
/** Set the OpenMP threads of all kernels (0: bp_math_cores()); also flushes denormals in every
 * thread. */
void bp_math_set_threads(int threads);
int bp_math_threads(void);
/** Threads for this rank: `asked` (math.threads) if it is not 0, else OMP_NUM_THREADS, else its
 * fair share of the cores that it may use, since ranks of a node that are not bound would otherwise
 * each take all of them. The first call in a process, over all of its job's ranks, also chooses the
 * cores that bp_math_set_threads binds so many threads to (threads_priv.h), unless the user has
 * said where they run (OMP_PROC_BIND, OMP_PLACES ...). Collective over `comm`. */
int bp_math_threads_for(MPI_Comm comm, int asked);
/** Warn, in one line and once a process, of computing ranks with more threads than cores, each by
 * itself or those of a node together. The threads are set; computes: this rank does. Collective. */
void bp_math_warn_of_threads(MPI_Comm world, bool computes);
/** The same where a job to come is planned (NULL: there is none): one rank that stands for each of
 * plan->ranks ranks (0: none are named) takes as many as they would on a node like this one, and a
 * warning says where they are more than its cores. Collective over `comm`. */
int bp_math_threads_planned(MPI_Comm comm, int asked, const bp_planned_world *plan);
/** GEMM speed of this process in FLOP/s, measured for `seconds`; 0 where it can't be measured. */
double bp_math_gemm_peak(bp_precision precision, double seconds);
/** The peak: FLOP/s of all threads multiplying in registers alone, which no product exceeds: AMX
 * tiles or VDPBF16PS in bf16, fused multiply-adds in float32 (in bf16 too where products are
 * computed so). The best of some rounds in `seconds`; 0 where there is no bf16. */
double bp_math_peak(bp_precision precision, double seconds);
/** Bytes a second that this process's threads read and write in long vectors (two reads and a write
 * of y += x), measured for `seconds`; takes 128 MiB meanwhile; 0 where they can't be had. */
double bp_math_bandwidth(double seconds);

/** math.precision as resolved: "auto" becomes bf16 or f32. BP_ERR_CONFIG: bf16 on a CPU without it.
 */
bp_err bp_math_precision(const bp_config *config, bp_precision *out);

#endif
