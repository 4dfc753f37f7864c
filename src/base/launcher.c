#include "base/launcher.h"

#include <stddef.h>
#include <stdlib.h>

bp_launcher bp_launcher_find(void)
{
    return (bp_launcher){.mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL,
                         .pmix = getenv("PMIX_RANK") != NULL,
                         .pmi = getenv("PMI_SIZE") != NULL || getenv("PMI_RANK") != NULL,
                         .srun = getenv("SLURM_PROCID") != NULL};
}
