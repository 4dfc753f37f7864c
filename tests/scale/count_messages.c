/* How many messages and bytes a rank sends: a library between a program and MPI (LD_PRELOAD), by
 * MPI's profiling interface. As MPI ends, each rank leaves a line in the folder BAGPIPE_COUNTS, its
 * number the file's name: sends, bytes sent, and calls of collectives on all ranks, on half of them
 * or more, and on fewer. Read by test_scale.py. */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_llong sends, bytes, of_all, of_many, of_few;

static void count_send(int count, MPI_Datatype type)
{
    int size = 0;

    (void)PMPI_Type_size(type, &size);
    atomic_fetch_add(&sends, 1);
    atomic_fetch_add(&bytes, (long long)count * size);
}

static void count_collective(MPI_Comm comm)
{
    int size = 1, all = 1;

    (void)PMPI_Comm_size(comm, &size);
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &all);
    atomic_fetch_add(size == all ? &of_all : 2 * size >= all ? &of_many : &of_few, 1);
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    count_send(count, type);
    return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    count_send(count, type);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Issend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    count_send(count, type);
    return PMPI_Issend(data, count, type, to, tag, comm, request);
}

int MPI_Sendrecv(const void *data, int count, MPI_Datatype type, int to, int tag, void *in,
                 int in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm,
                 MPI_Status *status)
{
    count_send(count, type);
    return PMPI_Sendrecv(data, count, type, to, tag, in, in_count, in_type, from, in_tag, comm,
                         status);
}

int MPI_Barrier(MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Barrier(comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Gather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
               MPI_Datatype type, int root, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Gather(in, in_count, in_type, out, count, type, root, comm);
}

int MPI_Gatherv(const void *in, int in_count, MPI_Datatype in_type, void *out, const int counts[],
                const int places[], MPI_Datatype type, int root, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Gatherv(in, in_count, in_type, out, counts, places, type, root, comm);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
                  MPI_Datatype type, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Allgather(in, in_count, in_type, out, count, type, comm);
}

int MPI_Alltoall(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
                 MPI_Datatype type, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Alltoall(in, in_count, in_type, out, count, type, comm);
}

int MPI_Alltoallv(const void *in, const int in_counts[], const int in_places[],
                  MPI_Datatype in_type, void *out, const int counts[], const int places[],
                  MPI_Datatype type, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Alltoallv(in, in_counts, in_places, in_type, out, counts, places, type, comm);
}

int MPI_Allgatherv(const void *in, int in_count, MPI_Datatype in_type, void *out,
                   const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Allgatherv(in, in_count, in_type, out, counts, places, type, comm);
}

int MPI_Exscan(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Exscan(in, out, count, type, op, comm);
}

int MPI_Scatter(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
                MPI_Datatype type, int root, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Scatter(in, in_count, in_type, out, count, type, root, comm);
}

int MPI_Scatterv(const void *in, const int counts[], const int places[], MPI_Datatype in_type,
                 void *out, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    count_collective(comm);
    return PMPI_Scatterv(in, counts, places, in_type, out, count, type, root, comm);
}

int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
    count_collective(comm);
    return PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    count_collective(comm);
    return PMPI_Ibarrier(comm, request);
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    count_collective(comm);
    return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

int MPI_Iallgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count,
                   MPI_Datatype type, MPI_Comm comm, MPI_Request *request)
{
    count_collective(comm);
    return PMPI_Iallgather(in, in_count, in_type, out, count, type, comm, request);
}

int MPI_Finalize(void)
{
    const char *folder = getenv("BAGPIPE_COUNTS");
    char path[4096];
    int rank = 0;
    FILE *file;

    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)snprintf(path, sizeof path, "%s/%d", folder ? folder : ".", rank);
    file = folder ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%lld %lld %lld %lld %lld\n", atomic_load(&sends), atomic_load(&bytes),
                atomic_load(&of_all), atomic_load(&of_many), atomic_load(&of_few));
        (void)fclose(file);
    }
    return PMPI_Finalize();
}
