/* How MPI starts and ends, and with it a job. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/launcher.h"
#include "base/process/start_limit.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void abort_all(int status)
{
    (void)MPI_Abort(MPI_COMM_WORLD, status); /* does not come back */
}

/* srun without a PMI that this MPI knows starts every task as a world of its own: N jobs on one
 * run folder. Variables of Slurm's own PMI prove nothing, since the MPI may not use it; a world of
 * 1 started by mpirun (Open MPI's, MPICH's) is marked as such. */
static bp_err check_launcher(int size)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *pmi = getenv("PMI_SIZE");
    bp_launcher launcher = bp_launcher_find();

    if (size > 1 || !tasks || strtol(tasks, NULL, 10) < 2 || !launcher.srun || launcher.mpirun ||
        (pmi && strcmp(pmi, "1") == 0))
        return BP_OK;
    bp_log_set_speaker(strcmp(getenv("SLURM_PROCID"), "0") == 0); /* each of them is a rank 0 */
    return bp_fail(BP_ERR_CONFIG, "mpi.separate_tasks",
                   "srun started %s tasks that do not see each other: at MPI's start; use %s, or "
                   "mpirun (BAGPIPE_LAUNCH in slurm/site.env)",
                   tasks,
                   launcher.pmi || launcher.pmix
                       ? "a type of srun --mpi that this MPI was built with (srun --mpi=list, "
                         "without the one that was tried)"
                       : "srun --mpi=pmix");
}

#ifdef OPEN_MPI
#define IS_OPEN_MPI true
#else
#define IS_OPEN_MPI false
#endif

/* Open MPI without the PMI that srun speaks (5 knows none, 4 often has none) ends the program
 * within MPI_Init, by _exit and with its own long message: the remedy must be printed before. */
static void warn_of_pmi(const bp_launcher *launcher)
{
    if (IS_OPEN_MPI && launcher->srun && !launcher->mpirun && launcher->pmi && !launcher->pmix &&
        launcher->first)
        (void)fprintf(stderr, "bagpipe: srun offers PMI-2 or PMI-1, and many builds of Open MPI "
                              "know only PMIx; if MPI does not start now, use srun --mpi=pmix, or "
                              "mpirun (BAGPIPE_LAUNCH in slurm/site.env)\n");
}

static double start_seconds = 600;

void bp_mpi_start_within(double seconds)
{
    start_seconds = seconds;
}

bp_err bp_mpi_start(int *argc, char ***argv)
{
    bp_launcher launcher = bp_launcher_find();
    int provided, rank, size;

    /* Without PMI MPI can't learn of other ranks. Without this check, Open MPI 4 ends the program
     * with its own long message. */
    if (!launcher.pmix && !launcher.pmi && check_launcher(1) != BP_OK)
        return BP_ERR_CONFIG;
    /* A program without mpirun is a world of one: Open MPI 4 would start a daemon for it, and as
     * root refuse to. In isolated mode all of them would share a folder in /tmp, which one removes
     * while another looks for it: two at a time sometimes failed. No folder is needed. */
    if (!launcher.mpirun && !launcher.pmix &&
        (setenv("OMPI_MCA_ess_singleton_isolated", "1", 0) != 0 ||
         setenv("OMPI_MCA_orte_create_session_dirs", "0", 0) != 0))
        return bp_fail(BP_ERR_SYSTEM, "mpi.no_environment",
                       "the environment can't be changed: at MPI's start");
    warn_of_pmi(&launcher);
    bp_start_limit_begin(start_seconds);
    BP_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
    bp_start_limit_end();
    BP_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    BP_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    BP_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    BP_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    bp_assert_set_handler(abort_all, rank);
    bp_fault_set_rank(rank);
    bp_log_set_speaker(rank == 0);
    if (provided < MPI_THREAD_FUNNELED)
        return bp_fail(BP_ERR_SYSTEM, "mpi.no_threads",
                       "this MPI allows no threads: at MPI's start; build it with them");
    bp_err err = bp_fault_check();
    if (err == BP_OK)
        bp_fault_point("init.after_mpi");
    return err == BP_OK ? check_launcher(size) : err;
}

/* Tests set the variable: memory that a job has not freed at its end is a leak. */
static void print_balance(void)
{
    char labels[1024];

    if (!getenv("BP_BALANCE") || bp_mem_balance(labels, sizeof labels) == 0)
        return;
    for (char *p = labels; (p = strchr(p, '\n'));)
        *p = ';';
    (void)fprintf(stderr,
                  "%s: warning: memory that was not given back: %s [memory.not_given_back]\n",
                  bp_err_program(), labels);
}

static void (*at_end)(void);
static int abandoned_with = -1; /* -1: MPI can be ended */

void bp_mpi_at_end(void (*call)(void))
{
    at_end = call;
}

void bp_mpi_abandon(int status)
{
    abandoned_with = status;
}

/* Neither MPI_Finalize nor destructors of libraries: a thread is still inside of them. A launcher
 * kills the other ranks as soon as one has ended, so all ranks must get here first. */
static void leave(void)
{
    if (at_end)
        at_end();
    (void)fflush(NULL);
    bp_barrier_asleep("finalize", MPI_COMM_WORLD);
    _exit(abandoned_with);
}

void bp_mpi_finish(void)
{
    int begun, mine = abandoned_with;

    BP_MPI(MPI_Initialized(&begun));
    if (!begun)
        return;
    bp_fault_point("finalize");
    BP_MPI_WAIT("finalize", /* any rank may have */
                MPI_Allreduce(&mine, &abandoned_with, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    if (abandoned_with >= 0)
        leave();
    bp_assert_set_handler(NULL, -1); /* after MPI_Finalize nobody can be aborted */
    BP_MPI_WAIT("finalize", MPI_Finalize());
    if (at_end)
        at_end();
    print_balance();
}
