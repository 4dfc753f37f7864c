/* Reduces the errors of all ranks to one: the worst code with the message of the lowest rank that
 * has it. Also queries of a communicator, and failed MPI calls. */
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bp_mpi_check(int status, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown MPI error";
    const char *base = strrchr(file, '/');
    int length, rank = -1;

    if (status == MPI_SUCCESS)
        return;
    (void)MPI_Error_string(status, text, &length); /* the default text stays if this fails too */
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bp_err_last_words(BP_ERR_SYSTEM, "mpi.failed", "MPI failed: %s: %.120s: at %s:%d, rank %d",
                      text, call, !base ? file : base + 1, line, rank);
    (void)MPI_Abort(MPI_COMM_WORLD, BP_ERR_SYSTEM);
    abort();
}

int bp_mpi_count(int64_t n)
{
    BP_ASSERT(n >= 0 && n <= INT_MAX);
    return (int)n;
}

int bp_comm_rank(MPI_Comm comm)
{
    int rank;

    BP_MPI(MPI_Comm_rank(comm, &rank));
    return rank;
}

int bp_comm_size(MPI_Comm comm)
{
    int size;

    BP_MPI(MPI_Comm_size(comm, &size));
    return size;
}

bool bp_comm_is_root(MPI_Comm comm)
{
    return bp_comm_rank(comm) == 0;
}

void bp_host_name(char *out, size_t bytes)
{
    const char *slurm = getenv("SLURMD_NODENAME");
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length;

    BP_MPI(MPI_Get_processor_name(name, &length)); /* often with a domain */
    if (slurm && slurm[0] != '\0') {
        /* some launchers give all ranks the first node's environment: then it names another host */
        bool same = strcspn(slurm, ".") == strcspn(name, ".") &&
                    strncmp(slurm, name, strcspn(name, ".")) == 0;
        name[strcspn(name, ".")] = '\0';
        (void)snprintf(out, bytes, "%s", same ? slurm : name);
        return;
    }
    (void)snprintf(out, bytes, "%s", name);
}

/* One small reduction without a failure; the message is sent only after a failure. */
bp_err bp_agree(MPI_Comm comm, bp_err err)
{
    struct {
        int severity, rank;
    } mine = {bp_err_severity(err), bp_comm_rank(comm)}, worst;
    char message[BP_ERR_MESSAGE_BYTES];
    int code = (int)err;

    BP_MPI_WAIT("agree", MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC,
                                       comm)); /* ties: the lowest rank */
    if (worst.severity == 0)
        return BP_OK;
    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    BP_MPI_WAIT("agree", MPI_Bcast(&code, 1, MPI_INT, worst.rank, comm));
    BP_MPI_WAIT("agree", MPI_Bcast(message, sizeof message, MPI_CHAR, worst.rank, comm));
    if (mine.rank != worst.rank)
        bp_err_set_message(message);
    return (bp_err)code;
}
