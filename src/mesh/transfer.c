/* Point-to-point: bytes and floats to a rank, nonblocking, with a wait that sleeps between
 * polls. */
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/trace.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include <limits.h>
#include <string.h>

#define POLL_SECONDS 0.0005 /* of ranks that wait asleep */

#define BLOCK_BYTES  (1 << 20)
#define TAG_NONE     7002

/* A datatype of `bytes` bytes, for messages longer than an int can count: whole blocks, then the
 * rest.
 */
static MPI_Datatype large_type(int64_t bytes)
{
    int64_t blocks = bytes / BLOCK_BYTES;
    int lengths[2] = {bp_mpi_count(blocks), (int)(bytes % BLOCK_BYTES)};
    MPI_Aint places[2] = {0, (MPI_Aint)(blocks * BLOCK_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, out;

    BP_MPI(MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &types[0]));
    BP_MPI(MPI_Type_create_struct(2, lengths, places, types, &out));
    BP_MPI(MPI_Type_commit(&out));
    BP_MPI(MPI_Type_free(&types[0]));
    return out;
}

/* Count and datatype of a message; release_type() when the call that uses them has returned. */
static int describe(MPI_Datatype *type, int64_t bytes)
{
    BP_ASSERT(bytes >= 0);
    if (bytes <= INT_MAX) {
        *type = MPI_BYTE;
        return (int)bytes;
    }
    *type = large_type(bytes);
    return 1;
}

static void release_type(MPI_Datatype *type)
{
    if (*type != MPI_BYTE)
        BP_MPI(MPI_Type_free(type)); /* messages under way keep it alive */
}

void bp_poll(const char *what, bool (*is_over)(void *context), void *context)
{
    bp_heartbeat_enter(what);
    while (!is_over(context))
        bp_clock_sleep(POLL_SECONDS);
    bp_heartbeat_leave();
}

static bool is_complete(void *request)
{
    int complete;

    BP_MPI(MPI_Test(request, &complete, MPI_STATUS_IGNORE));
    return complete;
}

void bp_wait_asleep(const char *what, MPI_Request *request)
{
    bp_poll(what, is_complete, request);
}

void bp_barrier_asleep(const char *what, MPI_Comm comm)
{
    MPI_Request request;

    BP_MPI(MPI_Ibarrier(comm, &request));
    bp_wait_asleep(what, &request);
}

void bp_bcast_bytes(void *data, int64_t bytes, int root, MPI_Comm comm)
{
    MPI_Datatype type;
    int count = describe(&type, bytes);

    BP_MPI_WAIT("bcast", MPI_Bcast(data, count, type, root, comm));
    release_type(&type);
}

void bp_bcast_text(char **text, int root, MPI_Comm comm)
{
    bool sends = bp_comm_rank(comm) == root;
    int64_t bytes = sends && *text ? (int64_t)strlen(*text) : -1;

    BP_MPI_WAIT("bcast", MPI_Bcast(&bytes, 1, MPI_INT64_T, root, comm));
    if (!sends) {
        *text = bytes < 0 ? NULL : bp_alloc("mesh.text", bytes + 1, 1);
    }
    if (bytes > 0)
        bp_bcast_bytes(*text, bytes, root, comm);
}

void bp_send(const void *data, int64_t bytes, int to, int tag, MPI_Comm comm)
{
    MPI_Datatype type;
    int count = describe(&type, bytes);
    int64_t began = bp_trace_now();

    BP_MPI_WAIT("send", MPI_Send(data, count, type, to, tag, comm));
    bp_trace_flight(BP_TRACE_SEND, began, (double)bytes);
    release_type(&type);
}

void bp_recv(void *data, int64_t bytes, int from, int tag, MPI_Comm comm)
{
    bp_transfer transfer;

    bp_recv_start(&transfer, data, bytes, from, tag, comm);
    bp_wait(&transfer);
}

void bp_send_start(bp_transfer *transfer, const void *data, int64_t bytes, int to, int tag,
                   MPI_Comm comm)
{
    MPI_Datatype type;
    int count = describe(&type, bytes);

    BP_MPI(MPI_Isend(data, count, type, to, tag, comm, &transfer->request));
    release_type(&type);
    transfer->expected_bytes = -1;
    transfer->bytes = bytes;
    transfer->began = bp_trace_now();
    transfer->under_way = true;
}

void bp_recv_start(bp_transfer *transfer, void *data, int64_t bytes, int from, int tag,
                   MPI_Comm comm)
{
    MPI_Datatype type;
    int count = describe(&type, bytes);

    BP_MPI(MPI_Irecv(data, count, type, from, tag, comm, &transfer->request));
    release_type(&type);
    transfer->expected_bytes = transfer->bytes = bytes;
    transfer->began = bp_trace_now();
    transfer->under_way = true;
}

void bp_wait(bp_transfer *transfer)
{
    MPI_Status status;
    MPI_Count got;

    if (!transfer->under_way)
        return;
    BP_MPI_WAIT(transfer->expected_bytes < 0 ? "send" : "recv",
                MPI_Wait(&transfer->request, &status));
    transfer->under_way = false;
    bp_trace_flight(transfer->expected_bytes < 0 ? BP_TRACE_SEND : BP_TRACE_RECEIVE,
                    transfer->began, (double)transfer->bytes);
    if (transfer->expected_bytes < 0)
        return;
    BP_MPI(MPI_Get_elements_x(&status, MPI_BYTE, &got));
    BP_ASSERT(got ==
              (MPI_Count)transfer->expected_bytes); /* a shorter message: the two sides disagree */
}

void bp_transfers_move(MPI_Comm comm)
{
    int there; /* no message has this tag: only the call matters */

    BP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_NONE, comm, &there, MPI_STATUS_IGNORE));
}
