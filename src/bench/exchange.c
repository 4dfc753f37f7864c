/* Messages between ranks: all-reduce, reduce-scatter with all-gather, and pairs that send to each
 * other, on a host and across hosts. */
#include "bench/bench_priv.h"

#include "base/mem.h"
#include "bench/bench.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#define SMALLEST    1024
#define SIZE_FACTOR 16
#define BATCH_BYTES ((int64_t)1 << 20) /* small messages are timed several at a time */
#define BATCH_MOST  64
#define SHARE       4 /* all sizes together take this many times bench.seconds */
#define TAG_BENCH   601
#define TAG_RATE    602
#define RATE_BYTES  8
#define WINDOW      64 /* small messages in flight at once */

typedef struct exchange {
    MPI_Comm comm;
    float *x, *scratch;
    int64_t n;     /* floats of a message */
    int64_t batch; /* messages that are timed together */
    int partner;   /* of a pair; -1 without a partner */
    bool first;    /* the first of the pair, which sends first */
} exchange;

static void run_all_sum(void *context)
{
    exchange *e = context;

    for (int64_t k = 0; k < e->batch; k++)
        bp_all_sum(e->x, e->n, e->scratch, e->comm);
}

static void run_shards(void *context)
{
    exchange *e = context;

    for (int64_t k = 0; k < e->batch; k++) {
        bp_reduce_scatter(e->x, e->n, e->scratch, e->comm);
        bp_all_gather_shards(e->x, e->n, e->comm);
    }
}

/* There and back. */
static void run_pair(void *context)
{
    exchange *e = context;
    int64_t bytes = e->n * (int64_t)sizeof *e->x;

    for (int64_t k = 0; k < e->batch && e->partner >= 0; k++) {
        if (e->first)
            bp_send(e->x, bytes, e->partner, TAG_BENCH, e->comm);
        bp_recv(e->x, bytes, e->partner, TAG_BENCH, e->comm);
        if (!e->first)
            bp_send(e->x, bytes, e->partner, TAG_BENCH, e->comm);
    }
}

/* Small messages to and from the partner, as many at once as a node's ranks have in a sum. */
static void run_window(void *context)
{
    exchange *e = context;
    MPI_Request requests[2 * WINDOW];
    char out[RATE_BYTES] = {0}, in[WINDOW][RATE_BYTES];

    for (int64_t k = 0; k < e->batch && e->partner >= 0; k++) {
        for (int m = 0; m < WINDOW; m++) {
            BP_MPI(MPI_Irecv(in[m], RATE_BYTES, MPI_BYTE, e->partner, TAG_RATE, e->comm,
                             &requests[m]));
            BP_MPI(MPI_Isend(out, RATE_BYTES, MPI_BYTE, e->partner, TAG_RATE, e->comm,
                             &requests[WINDOW + m]));
        }
        BP_MPI(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
    }
}

/* A measurement: the work, its bytes over one rank's link, and the time of one message. */
typedef struct kind {
    const char *name;
    void (*run)(void *context);
    double legs; /* consecutive messages in one run */
} kind;

static const kind ALL_SUM = {"all_sum", run_all_sum, 1}, SHARDS = {"shards", run_shards, 1},
                  PAIR = {"send", run_pair, 2}, RATE = {"rate", run_window, WINDOW};

/* The slowest rank's seconds of one message, or NaN without messages. */
static json_t *row_json(const bench *self, int64_t bytes, const bp_spread *ranks, double links)
{
    const bp_spread *slowest = NULL;
    int at = 0;

    for (int r = 0; r < self->mesh->size; r++)
        if (ranks[r].repeats > 0 && (!slowest || ranks[r].median > slowest->median)) {
            slowest = &ranks[r];
            at = r;
        }
    if (!slowest)
        return json_null();
    return json_pack("{s:I, s:o, s:o, s:i, s:s}", "bytes", (json_int_t)bytes, "seconds",
                     bench_spread_json(slowest), "bytes_per_second",
                     bp_json_real(links * (double)bytes / slowest->median), "slowest_rank", at,
                     "slowest_host", self->hosts[at]);
}

/* One kind at one size. links: how many times its own bytes a rank's link carries. */
static json_t *measure_size(const bench *self, const kind *what, exchange *e, int64_t bytes,
                            double links)
{
    const bp_mesh *mesh = self->mesh;
    bp_spread mine = {0}, *ranks = bp_alloc("bench.ranks", mesh->size, sizeof *ranks);
    json_t *row;
    if (mesh->computes) {
        bench_task task = {what->run, e, 1};
        e->batch = BATCH_BYTES / bytes;
        e->batch = e->batch < 1 ? 1 : e->batch > BATCH_MOST ? BATCH_MOST : e->batch;
        mine = bench_together(&task, self->seconds / SHARE, true, mesh->compute);
        double parts = what->legs * (double)e->batch;
        mine.median /= parts;
        mine.low /= parts;
        mine.high /= parts;
        if ((what->run == run_pair || what->run == run_window) && e->partner < 0)
            mine.repeats = 0;
    }
    BP_MPI_WAIT("all_gather", MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ranks, sizeof mine,
                                            MPI_BYTE, mesh->world));
    row = mesh->coordinates ? row_json(self, bytes, ranks, links) : NULL;
    bp_free(ranks);
    return row;
}

static json_t *measure_sizes(const bench *self, const kind *what, exchange *e, double links)
{
    int64_t most = bp_bench_keys_of(self->config)->message;
    json_t *rows = self->result ? json_array() : NULL;

    for (int64_t bytes = SMALLEST; bytes <= most; bytes *= SIZE_FACTOR) {
        int64_t ranks =
            self->mesh->pipeline_ranks * self->mesh->data_ranks * self->mesh->tensor_ranks;
        int64_t n = bytes / (int64_t)sizeof(float);
        e->n = (n + ranks - 1) / ranks * ranks; /* a shard for each */
        json_t *row = measure_size(self, what, e, e->n * (int64_t)sizeof(float), links);
        if (rows)
            (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- partners ---- */

/* Sizes of messages there and back, and the rate of small ones. */
static void measure_pairs(const bench *self, exchange *e, MPI_Comm comm, const char *const names[2],
                          json_t *into)
{
    bool any = false;

    if (self->mesh->computes) {
        int rank = bp_comm_rank(comm), other = rank ^ 1;

        e->comm = comm;
        e->partner = other < bp_comm_size(comm) ? other : -1;
        e->first = rank < other;
        any = e->partner >= 0;
    }
    any = bp_all_max_int(any, self->mesh->world) != 0;
    bench_put(into, names[0], any ? measure_sizes(self, &PAIR, e, 1) : into ? json_null() : NULL);
    bench_put(into, names[1],
              any    ? measure_size(self, &RATE, e, RATE_BYTES, 1)
              : into ? json_null()
                     : NULL);
}

static void measure_all(const bench *self, exchange *e, json_t *into)
{
    const bp_mesh *mesh = self->mesh;
    double ranks = (double)(mesh->size - mesh->dedicated), links = 2 * (ranks - 1) / ranks;
    MPI_Comm node = MPI_COMM_NULL, across = MPI_COMM_NULL;

    e->comm = mesh->compute;
    bench_put(into, ALL_SUM.name, measure_sizes(self, &ALL_SUM, e, links));
    bench_put(into, SHARDS.name, measure_sizes(self, &SHARDS, e, links));
    if (mesh->computes) { /* ranks of one host; and those of one number on their hosts */
        BP_MPI_WAIT("comm_split", MPI_Comm_split_type(mesh->compute, MPI_COMM_TYPE_SHARED, 0,
                                                      MPI_INFO_NULL, &node));
        BP_MPI_WAIT("comm_split", MPI_Comm_split(mesh->compute, bp_comm_rank(node),
                                                 bp_comm_rank(mesh->compute), &across));
    }
    measure_pairs(self, e, node, (const char *const[2]){"send_host", "rate_host"}, into);
    measure_pairs(self, e, across, (const char *const[2]){"send_across", "rate_across"}, into);
    if (mesh->computes) {
        BP_MPI(MPI_Comm_free(&node));
        BP_MPI(MPI_Comm_free(&across));
    }
}

bp_err bench_exchange(bench *self)
{
    const bp_mesh *mesh = self->mesh;
    int64_t ranks = mesh->size - mesh->dedicated;
    int64_t n = bp_bench_keys_of(self->config)->message / (int64_t)sizeof(float) + ranks;
    exchange e = {.partner = -1};
    json_t *object = NULL;
    bp_err err = BP_OK;

    if (ranks == 1) {
        bench_put(self->result, "exchange", json_null());
        return BP_OK;
    }
    if (mesh->computes) {
        e.x = bp_try_alloc("bench.exchange", n, sizeof(float));
        e.scratch = bp_try_alloc("bench.exchange", n, sizeof(float));
        if (!e.x || !e.scratch)
            err = bp_fail_memory("messages (see bench.message)", 2 * n, sizeof(float));
    }
    err = bp_agree(mesh->world, err);
    if (err == BP_OK) {
        if (mesh->computes)
            bp_zero(e.x, n); /* sums of zeros stay zeros; and pages that are there */
        object = self->result ? json_object() : NULL;
        bench_put(self->result, "exchange", object);
        measure_all(self, &e, object);
        err = bench_rounds(self, object);
    }
    bp_free(e.x);
    bp_free(e.scratch);
    return err;
}
