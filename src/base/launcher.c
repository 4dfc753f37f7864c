/* Which launcher started this process, read from its environment. */
#include "base/launcher.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* By the first variable that is there: mpirun within a Slurm step hands the step's on. */
static bool is_first(void)
{
    static const char *const RANKS[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    for (size_t k = 0; k < sizeof RANKS / sizeof RANKS[0]; k++) {
        const char *rank = getenv(RANKS[k]);

        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

bp_launcher bp_launcher_find(void)
{
    return (bp_launcher){.mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL,
                         .pmix = getenv("PMIX_RANK") != NULL,
                         .pmi = getenv("PMI_SIZE") != NULL || getenv("PMI_RANK") != NULL,
                         .srun = getenv("SLURM_PROCID") != NULL,
                         .first = is_first()};
}
