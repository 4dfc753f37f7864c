/* Benchmarks of a machine and this build: matrix products, memory, corpora, tokenizers, messages,
 * training and scoring. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include <mpi.h>

extern const bp_option bp_bench_options[]; /* bench.* */

/** Values of bp_bench_options (docs: --help). */
typedef struct bp_bench_keys {
    double seconds;
    const char *models;
    int64_t micro_batches;
    int64_t corpus;
    int64_t message;
} bp_bench_keys;

static inline const bp_bench_keys *bp_bench_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_bench_options);
}

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_bench_check(bp_config *config);

/** Measure on all ranks, write RUN/bench.json, and print it as a table. A run that is finished is
 * printed again.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a mesh that does not fit, another run's folder;
 *             BP_ERR_BUSY another job holds it; BP_ERR_SYSTEM memory is short; BP_ERR_IO disk full;
 *             BP_ERR_INPUT, BP_ERR_FORMAT tokenizer.path; BP_ERR_STOPPED asked to stop: the same
 *             command begins anew.
 */
bp_err bp_bench(MPI_Comm world, bp_config *config);

/** Print the planned measurements and their memory. Collective over `world`; one rank estimates for
 * any mesh, of the job `asked`. Errors: those of bp_bench before its first measurement.
 */
bp_err bp_bench_estimate(MPI_Comm world, bp_config *config, const bp_planned_world *asked);
