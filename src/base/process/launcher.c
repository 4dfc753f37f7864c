/* Which launcher started this process, read from its environment. */
#include "base/process/launcher.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* By the first variable that is set: mpirun within a Slurm step passes the step's variables on. */
static const char *const RANKS[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                    "SLURM_PROCID"},
                         *const SIZES[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                           "SLURM_STEP_NUM_TASKS"};

#define COUNT(names) (sizeof(names) / sizeof(names)[0])

static int number_of(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    return end == text || number < 0 || number > 1000000000 ? -1 : (int)number;
}

static int first_of(const char *const *names, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const char *text = getenv(names[k]);

        if (text)
            return number_of(text);
    }
    return -1;
}

int bp_launcher_rank_in(const char *environment, size_t bytes)
{
    for (size_t k = 0; k < COUNT(RANKS); k++) {
        size_t length = strlen(RANKS[k]);

        for (const char *at = environment; at < environment + bytes; at += strlen(at) + 1)
            if (strncmp(at, RANKS[k], length) == 0 && at[length] == '=')
                return number_of(at + length + 1);
    }
    return -1;
}

bp_launcher bp_launcher_find(void)
{
    int rank = first_of(RANKS, COUNT(RANKS));
    bool known = false;

    for (size_t k = 0; k < COUNT(RANKS); k++)
        known = known || getenv(RANKS[k]);
    return (bp_launcher){.mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL,
                         .pmix = getenv("PMIX_RANK") != NULL,
                         .pmi = getenv("PMI_SIZE") || getenv("PMI_RANK"),
                         .srun = getenv("SLURM_PROCID") != NULL,
                         .first = !known || rank == 0,
                         .rank = rank,
                         .size = first_of(SIZES, COUNT(SIZES))};
}
