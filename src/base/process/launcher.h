/* What started this process, from its environment variables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct bp_launcher {
    bool mpirun; /* Open MPI's */
    bool pmix;   /* a server of PMIx knows this rank: mpirun's, or srun --mpi=pmix */
    bool pmi;    /* one of PMI-1 or PMI-2: MPICH's mpirun, or srun's own */
    bool srun;   /* a task of a Slurm step; mpirun within a step passes the step's variables on */
    bool first;  /* rank 0 or unknown: it prints before MPI is started */
    int rank, size; /* -1: not known */
} bp_launcher;

bp_launcher bp_launcher_find(void);
/** The rank in another process's environment, as /proc has it: strings, each terminated by 0, with
 * another 0 at the end; -1 if unknown. */
int bp_launcher_rank_in(const char *environment, size_t bytes);
