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

/* One level of the division of a vector among `members` ranks, which are `stride` apart: those with
 * an even index keep the first `low` items, the others the rest. */
typedef struct level {
    int64_t first, count, low; /* items that the members have together */
    int member, members, stride;
} level;

/* As many shares for the even members as there are of them: nobody has more than ceil(n / size). */
static int64_t low_part(int64_t n, int members)
{
    int64_t even = (members + 1) / 2;

    return n / members * even + (n % members * even + members - 1) / members;
}

static level first_level(int64_t n, int rank, int size)
{
    return (level){0, n, low_part(n, size), rank, size, 1};
}

static level next_level(const level *at)
{
    bool odd = at->member % 2 != 0;
    level next = {.first = odd ? at->first + at->low : at->first,
                  .count = odd ? at->count - at->low : at->low,
                  .member = at->member / 2,
                  .members = odd ? at->members / 2 : (at->members + 1) / 2,
                  .stride = 2 * at->stride};

    next.low = low_part(next.count, next.members);
    return next;
}

static level last_level(int64_t n, int rank, int size)
{
    level at = first_level(n, rank, size);

    BP_ASSERT(n >= 0 && rank >= 0 && rank < size);
    while (at.members > 1)
        at = next_level(&at);
    return at;
}

int64_t bp_shard_first(int64_t n, int rank, int size)
{
    return last_level(n, rank, size).first;
}

int64_t bp_shard_count(int64_t n, int rank, int size)
{
    return last_level(n, rank, size).count;
}

int64_t bp_reduce_scatter_scratch(int64_t n, int size)
{
    return size == 1 ? 0 : low_part(n, size);
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

/* Bytes both ways, piece by piece; one of the ways may have fewer, or none. */
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

/* Bytes of the piece that begins at `first`; none after the end. */
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

/* The next piece that is there: bytes [*first, *first + *count) of what is received; false after
 * the end. */
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

/* Exchange with a partner and add what comes to keep[0..kept), the next pieces travelling
 * meanwhile. `send` may be `keep` itself if `scratch` is as long: then a piece must have left
 * before it is added to, and it has when its wait returns. */
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

/* Of an odd number of members the last one has no partner: it gives its part of the odd members'
 * items to the one before it, and later takes their sum from there. */
static bool is_alone(const level *at)
{
    return at->members % 2 == 1 && at->member == at->members - 1;
}

static bool has_three(const level *at)
{
    return at->members % 2 == 1 && at->member == at->members - 2;
}

/* Rabenseifner 2004, "Optimization of collective reduction operations", but neighbours first:
 * halves of the vector go to the neighbour, then quarters to the neighbour's neighbour. What is
 * added up so is the tree of pairs of neighbours. Any number of ranks takes ceil(log2) rounds. */
static void halve(float *x, int64_t units, int64_t unit, float *scratch, MPI_Comm comm,
                  const bp_waiting *waiting)
{
    int rank = bp_comm_rank(comm);
    level at = first_level(units, rank, bp_comm_size(comm));

    for (; at.members > 1; at = next_level(&at)) {
        bool odd = at.member % 2 != 0;
        float *low = x + at.first * unit, *high = low + at.low * unit;
        int64_t lows = at.low * unit, highs = (at.count - at.low) * unit;
        int before = rank - at.stride, after = rank + at.stride;

        if (is_alone(&at))
            exchange_and_add(NULL, 0, high, highs, scratch, before, comm, waiting);
        else
            exchange_and_add(odd ? high : low, odd ? highs : lows, odd ? low : high,
                             odd ? lows : highs, scratch, odd ? before : after, comm, waiting);
        if (has_three(&at))
            exchange_and_add(high, highs, NULL, 0, scratch, after, comm, waiting);
    }
}

/* What each rank sends, and receives, so that the shards of this many bytes meet. */
static double shared_bytes(int64_t bytes, int size)
{
    return (double)(bytes - bytes / size);
}

static const bp_waiting SPINNING = {NULL, NULL};

void bp_reduce_scatter_units(float *x, int64_t n, int64_t unit, float *scratch, MPI_Comm comm,
                             const bp_waiting *waiting)
{
    double bytes = shared_bytes(n * (int64_t)sizeof(float), bp_comm_size(comm));
    int64_t began = bp_trace_now();

    BP_ASSERT(n >= 0 && n % unit == 0);
    bp_trace_add(0, bytes);
    halve(x, n / unit, unit, scratch, comm, waiting);
    bp_trace_flight(BP_TRACE_REDUCE, began, bytes);
}

void bp_reduce_scatter(float *x, int64_t n, float *scratch, MPI_Comm comm)
{
    bp_heartbeat_enter("reduce_scatter");
    bp_reduce_scatter_units(x, n, 1, scratch, comm, &SPINNING);
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
    int rank = bp_comm_rank(comm), levels = 0;
    level all[32], at = first_level(units, rank, bp_comm_size(comm));

    for (; at.members > 1; at = next_level(&at))
        all[levels++] = at;
    while (levels > 0) {
        at = all[--levels];
        bool odd = at.member % 2 != 0;
        char *low = x + at.first * unit, *high = low + at.low * unit;
        int64_t lows = at.low * unit, highs = (at.count - at.low) * unit;
        int before = rank - at.stride, after = rank + at.stride;

        if (is_alone(&at))
            exchange(NULL, 0, high, highs, before, comm, waiting);
        else
            exchange(odd ? high : low, odd ? highs : lows, odd ? low : high, odd ? lows : highs,
                     odd ? before : after, comm, waiting);
        if (has_three(&at))
            exchange(high, highs, NULL, 0, after, comm, waiting);
    }
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
