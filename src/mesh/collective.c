/* Sums over ranks with a fixed order of additions. MPI_Allreduce may choose another algorithm, and
 * so other bits, for another size, count, placement or version; here the order is part of the
 * result (src/train/README.md). */
#include "mesh/collective.h"
#include "base/trace.h"
#include "mesh/collective_priv.h"
#include "mesh/mesh.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

#define TAG_SUM     7001
#define PIECE       (INT64_C(1) << 18) /* floats: 1 MiB, so that one is added while others travel */
#define PIECE_BYTES (PIECE * (int64_t)sizeof(float))
#define UNDER_WAY   16            /* pieces: a rank that sleeps between polls finds some at each */
#define SMALL       INT64_C(4096) /* floats: fewer go by doubling, where latency is what counts */
#define STACK_PIECE 512           /* doubles on the stack */

static bool is_power_of_two(int size)
{
    return (size & (size - 1)) == 0;
}

int64_t bp_shard_first(int64_t n, int rank, int size)
{
    int64_t place = rank;

    BP_ASSERT(rank >= 0 && rank < size && n % size == 0);
    if (is_power_of_two(size)) {
        place = 0;
        for (int bit = 1; bit < size; bit <<= 1)
            place = 2 * place + ((rank & bit) != 0);
    }
    return place * (n / size);
}

int64_t bp_reduce_scatter_scratch(int64_t n, int size)
{
    if (size == 1)
        return 0;
    return is_power_of_two(size) ? n / 2 : n;
}

/* x[0..n) = left + right, where the lower rank's part is the left one. */
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

/* As many bytes both ways, piece by piece. */
typedef struct two_ways {
    const char *send;
    char *receive;
    int64_t bytes;
    int to, from;
    MPI_Comm comm;
    const bp_waiting *waiting;
    MPI_Request requests[UNDER_WAY][2];
    int64_t started, finished; /* pieces */
} two_ways;

/* The next piece that is there: bytes [*first, *first + the result); 0 after the end. */
static int64_t next_piece(two_ways *way, int64_t *first)
{
    while (way->started * PIECE_BYTES < way->bytes && way->started - way->finished < UNDER_WAY) {
        int64_t at = way->started * PIECE_BYTES,
                count = way->bytes - at < PIECE_BYTES ? way->bytes - at : PIECE_BYTES;
        MPI_Request *requests = way->requests[way->started++ % UNDER_WAY];

        BP_MPI(MPI_Irecv(way->receive + at, (int)count, MPI_BYTE, way->from, TAG_SUM, way->comm,
                         &requests[0]));
        BP_MPI(MPI_Isend(way->send + at, (int)count, MPI_BYTE, way->to, TAG_SUM, way->comm,
                         &requests[1]));
    }
    if (way->finished == way->started)
        return 0;
    *first = way->finished * PIECE_BYTES;
    finish(way->requests[way->finished++ % UNDER_WAY], way->waiting);
    return way->bytes - *first < PIECE_BYTES ? way->bytes - *first : PIECE_BYTES;
}

/* Send `bytes` bytes to one rank while as many come from another (or the same). */
static void exchange(const void *send, void *receive, int64_t bytes, int to, int from,
                     MPI_Comm comm, const bp_waiting *waiting)
{
    two_ways way = {.send = send,
                    .receive = receive,
                    .bytes = bytes,
                    .to = to,
                    .from = from,
                    .comm = comm,
                    .waiting = waiting};
    int64_t first;

    while (next_piece(&way, &first) > 0)
        ;
}

/* Exchange with a partner and add what comes to keep[0..n), the next pieces travelling meanwhile.
 * `send` may be `keep` itself if `scratch` is as long: then a piece must have left before it is
 * added to, and it has when its wait returns. */
static void exchange_and_add(float *keep, const float *send, float *scratch, int64_t n, int partner,
                             MPI_Comm comm, const bp_waiting *waiting)
{
    bool other_is_left = partner < bp_comm_rank(comm);
    int64_t first, count, size = (int64_t)sizeof(float);
    two_ways way = {.send = (const char *)send,
                    .receive = (char *)scratch,
                    .bytes = n * size,
                    .to = partner,
                    .from = partner,
                    .comm = comm,
                    .waiting = waiting};

    while ((count = next_piece(&way, &first)) > 0)
        add_ordered(keep + first / size, scratch + first / size, count / size, other_is_left);
}

/* Rabenseifner 2004, "Optimization of collective reduction operations", but neighbours first:
 * halves of the vector go to the neighbour, then quarters to the neighbour's neighbour. What is
 * added up so is the tree of pairs of neighbours. */
static void halve(float *x, int64_t n, float *scratch, MPI_Comm comm, const bp_waiting *waiting)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);

    for (int bit = 1; bit < size; bit <<= 1) {
        float *low = x, *high = x + n / 2;
        bool keeps_high = (rank & bit) != 0;
        n /= 2;
        x = keeps_high ? high : low;
        exchange_and_add(x, keeps_high ? low : high, scratch, n, rank ^ bit, comm, waiting);
    }
}

/* Each rank collects all ranks' versions of its own shard, and adds them in rank order. */
static void collect_in_order(float *x, int64_t n, float *scratch, MPI_Comm comm,
                             const bp_waiting *waiting)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t shard = n / size;

    for (int shift = 1; shift < size; shift++) {
        int to = (rank + shift) % size, from = (rank - shift + size) % size;
        exchange(x + to * shard, scratch + from * shard, shard * (int64_t)sizeof(float), to, from,
                 comm, waiting);
    }
    float *mine = x + rank * shard, *sum = scratch + rank * shard;
    memcpy(sum, mine, (size_t)shard * sizeof(float));
    memcpy(mine, scratch, (size_t)shard * sizeof(float)); /* rank 0's part, maybe our own */
    for (int r = 1; r < size; r++)
        add_ordered(mine, scratch + r * shard, shard, false);
}

/* What each rank sends, and receives, so that the shards of this many bytes meet. */
static double shared_bytes(int64_t bytes, int size)
{
    return (double)(bytes - bytes / size);
}

static const bp_waiting SPINNING = {NULL, NULL};

void bp_reduce_scatter_so(float *x, int64_t n, float *scratch, MPI_Comm comm,
                          const bp_waiting *waiting)
{
    int size = bp_comm_size(comm);
    double bytes = shared_bytes(n * (int64_t)sizeof(float), size);
    int64_t began = bp_trace_now();

    BP_ASSERT(n >= 0 && n % size == 0);
    bp_trace_add(0, bytes);
    if (is_power_of_two(size))
        halve(x, n, scratch, comm, waiting);
    else
        collect_in_order(x, n, scratch, comm, waiting);
    bp_trace_flight(BP_TRACE_REDUCE, began, bytes);
}

void bp_reduce_scatter(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    bp_heartbeat_enter("reduce_scatter");
    bp_reduce_scatter_so(x, n, scratch, comm, &SPINNING);
    bp_heartbeat_leave();
}

static void gather(char *x, int64_t bytes, MPI_Comm comm, const bp_waiting *waiting)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t shard = bytes / size;

    BP_ASSERT(bytes >= 0 && bytes % size == 0);
    if (!is_power_of_two(size)) { /* a ring: what came last goes on to the right */
        for (int step = 0; step < size - 1; step++) {
            int out = (rank - step + size) % size, in = (rank - step - 1 + size) % size;
            exchange(x + out * shard, x + in * shard, shard, (rank + 1) % size,
                     (rank - 1 + size) % size, comm, waiting);
        }
        return;
    }
    int64_t first = bp_shard_first(bytes, rank, size);
    for (int bit = size / 2; bit >= 1; bit /= 2) { /* halve() backwards */
        bool has_high = (rank & bit) != 0;
        int64_t other = has_high ? first - shard : first + shard;
        exchange(x + first, x + other, shard, rank ^ bit, rank ^ bit, comm, waiting);
        if (has_high)
            first = other;
        shard *= 2;
    }
}

void bp_all_gather_bytes_so(void *x, int64_t bytes, MPI_Comm comm, const bp_waiting *waiting)
{
    double shared = shared_bytes(bytes, bp_comm_size(comm));
    int64_t began = bp_trace_now();

    bp_trace_add(0, shared);
    gather(x, bytes, comm, waiting);
    bp_trace_flight(BP_TRACE_GATHER, began, shared);
}

void bp_all_gather_bytes(void *x, int64_t bytes, MPI_Comm comm)
{
    bp_heartbeat_enter("all_gather");
    bp_all_gather_bytes_so(x, bytes, comm, &SPINNING);
    bp_heartbeat_leave();
}

void bp_all_gather_shards(float *x, int64_t n, MPI_Comm comm)
{
    bp_all_gather_bytes(x, n * (int64_t)sizeof(float), comm);
}

/* From rank to rank, each adding its part on the right; the last one broadcasts the sum. */
static void chain(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t bytes = n * (int64_t)sizeof(float);

    if (rank > 0) {
        bp_recv(scratch, bytes, rank - 1, TAG_SUM, comm);
        add_ordered(x, scratch, n, true);
    }
    if (rank < size - 1)
        bp_send(x, bytes, rank + 1, TAG_SUM, comm);
    bp_bcast_bytes(x, bytes, size - 1, comm);
}

static void sum_floats(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t by_halves = n > SMALL ? n - n % size : 0;

    if (by_halves > 0) {
        bp_reduce_scatter(x, by_halves, scratch, comm);
        bp_all_gather_shards(x, by_halves, comm);
    }
    x += by_halves;
    n -= by_halves;
    if (n > 0 && !is_power_of_two(size))
        chain(x, n, scratch, comm);
    else if (n > 0) /* the same tree as halve(), with whole vectors: for few floats */
        for (int bit = 1; bit < size; bit <<= 1)
            exchange_and_add(x, x, scratch, n, rank ^ bit, comm, &SPINNING);
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
    if (rank > 0) {
        BP_MPI(MPI_Recv(other, n, MPI_DOUBLE, rank - 1, TAG_SUM, comm, MPI_STATUS_IGNORE));
        add_doubles(x, other, n, true);
    }
    if (rank < size - 1)
        BP_MPI(MPI_Send(x, n, MPI_DOUBLE, rank + 1, TAG_SUM, comm));
    BP_MPI(MPI_Bcast(x, n, MPI_DOUBLE, size - 1, comm));
}

void bp_all_sum_double(double *x, int64_t n, MPI_Comm comm)
{
    bp_heartbeat_enter("all_sum");
    for (int64_t first = 0; first < n; first += STACK_PIECE)
        all_sum_few_doubles(x + first, (int)(n - first < STACK_PIECE ? n - first : STACK_PIECE),
                            comm);
    bp_heartbeat_leave();
}

/* MPI_MAX leaves open what becomes of a NaN, and ranks could end up with different maxima. Here NaN
 * wins. */
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
