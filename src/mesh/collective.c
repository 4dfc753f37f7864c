/* Sums over ranks with a fixed order of additions. MPI_Allreduce may choose another algorithm, and
 * so other bits, for another size, count, placement or version; here the order is fixed
 * (src/train/README.md). */
#include "mesh/collective.h"
#include "base/trace.h"
#include "mesh/collective_priv.h"
#include "mesh/mesh.h"
#include "mesh/shard.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

#define TAG_SUM     7001
#define PIECE       (INT64_C(1) << 18) /* floats, 1 MiB: one is added while others arrive */
#define PIECE_BYTES (PIECE * (int64_t)sizeof(float))
#define UNDER_WAY   16            /* pieces: a poll after a sleep finds some */
#define SMALL       INT64_C(4096) /* floats: fewer are latency-bound and use doubling */
#define STACK_PIECE 4096          /* doubles on the stack: 32 KiB */

static bool is_power_of_two(int size)
{
    return (size & (size - 1)) == 0;
}

/* x[0..n) = left + right; the left one is the lower rank's. */
static void add_ordered(float *x, const float *other, int64_t n, bool other_is_left)
{
    if (other_is_left)
        for (int64_t i = 0; i < n; i++)
            x[i] = other[i] + x[i];
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] + other[i];
}

static void finish(MPI_Request requests[2], const bp_waiting *waiting)
{
    bool again = false;
    int done;

    if (!waiting->pause) {
        BP_MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        return;
    }
    for (;;) {
        BP_MPI(MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE));
        if (done)
            return;
        waiting->pause(waiting->context, again);
        again = true;
    }
}

/* Exchange bytes piece by piece; either direction may have fewer bytes, or no bytes. */
typedef struct two_ways {
    const char *send;
    char *receive;
    int64_t send_bytes, receive_bytes;
    int partner;
    MPI_Comm comm;
    const bp_waiting *waiting;
    MPI_Request requests[UNDER_WAY][2];
    int64_t started, finished; /* pieces */
} two_ways;

/* Bytes of the piece that begins at `first`; 0 after the end. */
static int piece_bytes(int64_t bytes, int64_t first)
{
    int64_t left = bytes - first;

    return (int)(left < 0 ? 0 : left < PIECE_BYTES ? left : PIECE_BYTES);
}

static void start_piece(two_ways *way)
{
    int64_t at = way->started * PIECE_BYTES;
    int in = piece_bytes(way->receive_bytes, at), out = piece_bytes(way->send_bytes, at);
    MPI_Request *requests = way->requests[way->started++ % UNDER_WAY];

    requests[0] = requests[1] = MPI_REQUEST_NULL;
    if (in > 0)
        BP_MPI(MPI_Irecv(way->receive + at, in, MPI_BYTE, way->partner, TAG_SUM, way->comm,
                         &requests[0]));
    if (out > 0)
        BP_MPI(MPI_Isend(way->send + at, out, MPI_BYTE, way->partner, TAG_SUM, way->comm,
                         &requests[1]));
}

/* The next piece that has arrived: bytes [*first, *first + *count) of the message; false after the
 * end. */
static bool next_piece(two_ways *way, int64_t *first, int64_t *count)
{
    int64_t most = way->send_bytes > way->receive_bytes ? way->send_bytes : way->receive_bytes;

    while (way->started * PIECE_BYTES < most && way->started - way->finished < UNDER_WAY)
        start_piece(way);
    if (way->finished == way->started)
        return false;
    *first = way->finished * PIECE_BYTES;
    *count = piece_bytes(way->receive_bytes, *first);
    finish(way->requests[way->finished++ % UNDER_WAY], way->waiting);
    return true;
}

/* Exchange with a partner and add the received values to keep[0..kept) while the next pieces are
 * in transit. `send` may be `keep` itself if `scratch` is as long: then a piece must be sent
 * before it is added to; its wait ensures that. */
static void exchange_and_add(float *keep, int64_t kept, const float *send, int64_t sent,
                             float *scratch, int partner, MPI_Comm comm, const bp_waiting *waiting)
{
    bool other_is_left = partner < bp_comm_rank(comm);
    int64_t first, count, size = (int64_t)sizeof(float);
    two_ways way = {.send = (const char *)send,
                    .receive = (char *)scratch,
                    .send_bytes = sent * size,
                    .receive_bytes = kept * size,
                    .partner = partner,
                    .comm = comm,
                    .waiting = waiting};

    while (next_piece(&way, &first, &count))
        if (count > 0)
            add_ordered(keep + first / size, scratch + first / size, count / size, other_is_left);
}

/* ---- values sent in two bytes ---- */

static uint16_t to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) /* a NaN, which rounding could turn into infinity */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void add_bf16(float *x, const uint16_t *other, int64_t n, bool other_is_left)
{
    if (other_is_left)
        for (int64_t i = 0; i < n; i++)
            x[i] = from_bf16(other[i]) + x[i];
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] + from_bf16(other[i]);
}

/* As exchange_and_add; scratch has room for the values sent and those received, two bytes each. */
static void exchange_and_add_bf16(float *keep, int64_t kept, const float *send, int64_t sent,
                                  float *scratch, int partner, MPI_Comm comm,
                                  const bp_waiting *waiting)
{
    bool other_is_left = partner < bp_comm_rank(comm);
    uint16_t *leaving = (uint16_t *)(void *)scratch, *coming = leaving + sent;
    int64_t first, count, size = (int64_t)sizeof *coming;
    two_ways way = {.send = (const char *)leaving,
                    .receive = (char *)coming,
                    .send_bytes = sent * size,
                    .receive_bytes = kept * size,
                    .partner = partner,
                    .comm = comm,
                    .waiting = waiting};

    for (int64_t i = 0; i < sent; i++)
        leaving[i] = to_bf16(send[i]);
    while (next_piece(&way, &first, &count))
        if (count > 0)
            add_bf16(keep + first / size, coming + first / size, count / size, other_is_left);
}

/* Rabenseifner 2004, "Optimization of collective reduction operations", but neighbours first:
 * halves of the vector go to the neighbour, then quarters to the neighbour's neighbour. The
 * additions form the tree of pairs of neighbours. */
static void halve(float *x, int64_t units, int64_t unit, bool bf16, float *scratch, MPI_Comm comm,
                  const bp_waiting *waiting)
{
    bp_shard_round rounds[BP_SHARD_ROUNDS];
    int count = bp_shard_rounds(rounds, units, bp_comm_rank(comm), bp_comm_size(comm));

    for (int k = 0; k < count; k++)
        (bf16 ? exchange_and_add_bf16 : exchange_and_add)(
            x + rounds[k].keep * unit, rounds[k].kept * unit, x + rounds[k].send * unit,
            rounds[k].sent * unit, scratch, rounds[k].partner, comm, waiting);
}

/* What each rank sends and receives to gather the shards of this many bytes. */
static double shared_bytes(int64_t bytes, int size)
{
    return (double)(bytes - bytes / size);
}

static const bp_waiting SPINNING = {NULL, NULL};

void bp_reduce_scatter_units(float *x, int64_t n, int64_t unit, bool bf16, float *scratch,
                             MPI_Comm comm, const bp_waiting *waiting)
{
    int64_t value = (int64_t)(bf16 ? sizeof(uint16_t) : sizeof(float));
    double bytes = shared_bytes(n * value, bp_comm_size(comm));
    int64_t began = bp_trace_now();

    BP_ASSERT(n >= 0 && n % unit == 0);
    bp_trace_add(0, bytes);
    halve(x, n / unit, unit, bf16, scratch, comm, waiting);
    bp_trace_flight(BP_TRACE_REDUCE, began, bytes);
}

void bp_reduce_scatter(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    bp_heartbeat_enter("reduce_scatter");
    bp_reduce_scatter_units(x, n, 1, false, scratch, comm, &SPINNING);
    bp_heartbeat_leave();
}

static void exchange(const char *send, int64_t send_bytes, char *receive, int64_t receive_bytes,
                     int partner, MPI_Comm comm, const bp_waiting *waiting)
{
    int64_t first, count;
    two_ways way = {.send = send,
                    .receive = receive,
                    .send_bytes = send_bytes,
                    .receive_bytes = receive_bytes,
                    .partner = partner,
                    .comm = comm,
                    .waiting = waiting};

    while (next_piece(&way, &first, &count))
        ;
}

/* halve() backwards. */
static void gather(char *x, int64_t units, int64_t unit, MPI_Comm comm, const bp_waiting *waiting)
{
    bp_shard_round rounds[BP_SHARD_ROUNDS];
    int count = bp_shard_rounds(rounds, units, bp_comm_rank(comm), bp_comm_size(comm));

    for (int k = count - 1; k >= 0; k--)
        exchange(x + rounds[k].keep * unit, rounds[k].kept * unit, x + rounds[k].send * unit,
                 rounds[k].sent * unit, rounds[k].partner, comm, waiting);
}

void bp_all_gather_units(void *x, int64_t bytes, int64_t unit, MPI_Comm comm,
                         const bp_waiting *waiting)
{
    double shared = shared_bytes(bytes, bp_comm_size(comm));
    int64_t began = bp_trace_now();

    BP_ASSERT(bytes >= 0 && bytes % unit == 0);
    bp_trace_add(0, shared);
    gather(x, bytes / unit, unit, comm, waiting);
    bp_trace_flight(BP_TRACE_GATHER, began, shared);
}

static void gather_units(void *x, int64_t bytes, int64_t unit, MPI_Comm comm)
{
    bp_heartbeat_enter("all_gather");
    bp_all_gather_units(x, bytes, unit, comm, &SPINNING);
    bp_heartbeat_leave();
}

void bp_all_gather_bytes(void *x, int64_t bytes, MPI_Comm comm)
{
    gather_units(x, bytes, 1, comm);
}

void bp_all_gather_shards(float *x, int64_t n, MPI_Comm comm)
{
    gather_units(x, n * (int64_t)sizeof(float), (int64_t)sizeof(float), comm);
}

static void sum_floats(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);

    if (n > SMALL || !is_power_of_two(size)) {
        bp_reduce_scatter(x, n, scratch, comm);
        bp_all_gather_shards(x, n, comm);
        return;
    }
    for (int bit = 1; bit < size; bit <<= 1) /* the same tree, with whole vectors */
        exchange_and_add(x, n, x, n, scratch, rank ^ bit, comm, &SPINNING);
}

void bp_all_sum(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    BP_ASSERT(n >= 0);
    if (bp_comm_size(comm) == 1 || n == 0)
        return;
    bp_heartbeat_enter("all_sum");
    sum_floats(x, n, scratch, comm);
    bp_heartbeat_leave();
}

static void add_doubles(double *x, const double *other, int n, bool other_is_left)
{
    for (int i = 0; i < n; i++)
        x[i] = other_is_left ? other[i] + x[i] : x[i] + other[i];
}

static void all_sum_few_doubles(double *x, int n, MPI_Comm comm)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    double other[STACK_PIECE];

    if (is_power_of_two(size)) {
        for (int bit = 1; bit < size; bit <<= 1) {
            int partner = rank ^ bit;
            BP_MPI(MPI_Sendrecv(x, n, MPI_DOUBLE, partner, TAG_SUM, other, n, MPI_DOUBLE, partner,
                                TAG_SUM, comm, MPI_STATUS_IGNORE));
            add_doubles(x, other, n, partner < rank);
        }
        return;
    }
    for (int bit = 1; bit < size; bit <<= 1) {
        if (rank & bit) {
            BP_MPI(MPI_Send(x, n, MPI_DOUBLE, rank - bit, TAG_SUM, comm));
            break;
        }
        if (rank + bit < size) {
            BP_MPI(MPI_Recv(other, n, MPI_DOUBLE, rank + bit, TAG_SUM, comm, MPI_STATUS_IGNORE));
            add_doubles(x, other, n, false);
        }
    }
    BP_MPI(MPI_Bcast(x, n, MPI_DOUBLE, 0, comm));
}

void bp_all_sum_double(double *x, int64_t n, MPI_Comm comm)
{
    bp_heartbeat_enter("all_sum");
    for (int64_t first = 0; first < n; first += STACK_PIECE)
        all_sum_few_doubles(x + first, (int)(n - first < STACK_PIECE ? n - first : STACK_PIECE),
                            comm);
    bp_heartbeat_leave();
}

/* MPI_MAX is undefined for NaN, so ranks could get different maxima. Here NaN wins. */
static void max_or_nan(void *in, void *inout, int *n, MPI_Datatype *type)
{
    const float *a = in;
    float *b = inout;

    (void)type;
    for (int i = 0; i < *n; i++)
        if (isnan(a[i]) || a[i] > b[i])
            b[i] = isnan(a[i]) ? NAN : a[i];
}

static pthread_once_t max_once = PTHREAD_ONCE_INIT;
static MPI_Op max_operation;

static void make_max_operation(void)
{
    BP_MPI(MPI_Op_create(max_or_nan, 1, &max_operation));
}

void bp_all_max(float *x, int64_t n, MPI_Comm comm)
{
    int status = pthread_once(&max_once, make_max_operation);

    BP_ASSERT(status == 0);
    for (int64_t first = 0; first < n; first += PIECE)
        BP_MPI_WAIT("all_max", MPI_Allreduce(MPI_IN_PLACE, x + first,
                                             (int)(n - first < PIECE ? n - first : PIECE),
                                             MPI_FLOAT, max_operation, comm));
}

int64_t bp_all_sum_int(int64_t value, MPI_Comm comm)
{
    int64_t sum;

    BP_MPI_WAIT("all_sum", MPI_Allreduce(&value, &sum, 1, MPI_INT64_T, MPI_SUM, comm));
    return sum;
}

int64_t bp_all_max_int(int64_t value, MPI_Comm comm)
{
    int64_t most;

    BP_MPI_WAIT("all_max", MPI_Allreduce(&value, &most, 1, MPI_INT64_T, MPI_MAX, comm));
    return most;
}
