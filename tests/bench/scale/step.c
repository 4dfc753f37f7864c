/* A training step's messages under SimGrid's SMPI: what `bagpipe pretrain --plan --ranks N
 * --schedule FILE` wrote, carried out by N ranks with a progress thread each, on a simulated
 * network. Compute is time that passes, messages have their real sizes and partners
 * (src/mesh/shard.h) and no content. Argument: the file. Prints the seconds of a step, that of a
 * later one, as its gathers reach into the next. Started by simulate.py.
 *
 * World rank 2 r is rank r of the job, 2 r + 1 its progress thread, both on r's node. */
#include "mesh/shard.h"

#include <jansson.h>
#include <mpi.h>
#include <simgrid/semaphore.h>
#include <smpi/smpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS    3
#define SPEED    1e9       /* FLOP/s of a simulated host: simulate.py */
#define PIECE    1048576.0 /* bytes: additions of one go on while others travel */
#define TAG_SUM  2
#define TAG_PIPE 3 /* and 4: backward */
#define TAG_TP   5
#define TAG_MEET 6
#define TAG_TIED 7
#define TAG_ROWS 8
#define TAG_BACK 9
#define JOBS_END (-1)

/* Between a rank and its progress thread. All ranks are threads of one process; as messages, those
 * of all ranks that wait would stand in one list of SimGrid's, which each message searches. */
typedef struct job_queue {
    sg_sem_t given, done; /* one count a job */
    int (*jobs)[2];       /* [capacity]: group, gathers; job k at k modulo capacity */
    size_t put, taken, capacity;
    bool *is_done; /* [2 groups]: of group g at 2 g + gathers, until it was waited for */
} job_queue;

typedef struct simulation {
    json_t *file, *stage;
    job_queue *queue;
    int rank, ranks, P, D, T, p, d, t;
    double memory_bandwidth, latency, pause, value_bytes;
    bool overlap;
    char *bytes; /* of any message; shared by all */
    MPI_Request coming[2], leaving[2];
    size_t looked_at[2];
    volatile bool *
        waits; /* [ranks] for the progress thread, which then makes no pauses; all in one process */
} simulation;

static void fail(const char *what)
{
    fprintf(stderr, "step: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 65);
    exit(65);
}

static double number(const json_t *array, size_t at)
{
    return json_number_value(json_array_get(array, at));
}

static double rate(const simulation *s, const char *key)
{
    return json_number_value(json_object_get(json_object_get(s->file, "rates"), key));
}

static int mesh(const simulation *s, const char *axis)
{
    return (int)json_integer_value(json_object_get(json_object_get(s->file, "mesh"), axis));
}

static void compute(double seconds)
{
    if (seconds > 0)
        smpi_execute_flops(seconds * SPEED);
}

static int rank_at(const simulation *s, int p, int d, int t)
{
    return (p * s->D + d) * s->T + t;
}

static int count_of(double bytes)
{
    if (bytes < 0 || bytes > 2147483647.0)
        fail("a message is larger than an int counts");
    return (int)bytes;
}

/* ---- the progress thread ---- */

static void exchange(const simulation *s, double sent, double received, int partner, int tag)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

    if (received > 0)
        MPI_Irecv(s->bytes, count_of(received), MPI_BYTE, partner, tag, MPI_COMM_WORLD,
                  &requests[0]);
    if (sent > 0)
        MPI_Isend(s->bytes, count_of(sent), MPI_BYTE, partner, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* A reduce-scatter of a group, or its gather, with the data ranks that hold it. */
static void carry_out(const simulation *s, int g, bool gathers)
{
    const json_t *group = json_array_get(json_object_get(s->stage, "groups"), (size_t)g);
    int64_t units = (int64_t)number(group, 0), unit = (int64_t)number(group, 1);
    int holders = (int)number(group, 2), stride = (int)number(group, 3);
    bp_shard_round rounds[BP_SHARD_ROUNDS];
    int count = bp_shard_rounds(rounds, units, s->d / stride, holders);

    for (int n = 0; n < count; n++) {
        const bp_shard_round *round = &rounds[gathers ? count - 1 - n : n];
        int partner = 2 * rank_at(s, s->p, round->partner * stride + s->d % stride, s->t) + 1;
        double sent = (double)((gathers ? round->kept : round->sent) * unit),
               kept = (double)((gathers ? round->sent : round->kept) * unit),
               value = gathers ? 4 : s->value_bytes,
               adds = gathers ? 0 : 12 * kept / s->memory_bandwidth;

        if (sent + kept == 0)
            continue;
        exchange(s, sent * value, kept * value, partner, TAG_SUM);
        if (kept * value > PIECE)
            adds *= PIECE / (kept * value);
        compute(adds + (s->overlap && !s->waits[s->rank] ? s->pause : 0));
    }
}

static void progress(const simulation *s)
{
    job_queue *q = s->queue;

    for (;;) {
        const int *job = q->jobs[q->taken % q->capacity];

        sg_sem_acquire(q->given);
        q->taken++;
        if (job[0] == JOBS_END)
            return;
        carry_out(s, job[0], job[1] != 0);
        q->is_done[2 * job[0] + job[1]] = true;
        sg_sem_release(q->done);
    }
}

/* ---- the rank itself ---- */

static void give(const simulation *s, int g, int gathers)
{
    job_queue *q = s->queue;
    int *job = q->jobs[q->put++ % q->capacity];

    if (q->put - q->taken >= q->capacity)
        fail("more jobs than groups");
    job[0] = g;
    job[1] = gathers;
    sg_sem_release(q->given);
}

static void await(const simulation *s, int g, int gathers)
{
    bool *is_done = &s->queue->is_done[2 * g + gathers];

    s->waits[s->rank] = true;
    while (!*is_done)
        sg_sem_acquire(s->queue->done);
    *is_done = false;
    s->waits[s->rank] = false;
}

static bool is(const json_t *op, const char *name)
{
    return strcmp(json_string_value(json_array_get(op, 0)), name) == 0;
}

/* Post the receive of the next operation of that direction that has one. */
static void post_next(simulation *s, int backward)
{
    const json_t *ops = json_object_get(s->stage, "ops");
    int from = (s->p + (backward ? 1 : s->P - 1)) % s->P;

    for (; s->looked_at[backward] < json_array_size(ops); s->looked_at[backward]++) {
        const json_t *op = json_array_get(ops, s->looked_at[backward]);

        if (!is(op, "receive") || (int)number(op, 1) != backward)
            continue;
        s->looked_at[backward]++;
        MPI_Irecv(s->bytes, count_of(number(op, 2)), MPI_BYTE, 2 * rank_at(s, from, s->d, s->t),
                  TAG_PIPE + backward, MPI_COMM_WORLD, &s->coming[backward]);
        return;
    }
}

static void receive(simulation *s, int backward)
{
    MPI_Wait(&s->coming[backward], MPI_STATUS_IGNORE);
    post_next(s, backward);
}

static void send(simulation *s, int backward, double bytes)
{
    int to = (s->p + (backward ? s->P - 1 : 1)) % s->P;

    MPI_Wait(&s->leaving[backward], MPI_STATUS_IGNORE);
    MPI_Isend(s->bytes, count_of(bytes), MPI_BYTE, 2 * rank_at(s, to, s->d, s->t),
              TAG_PIPE + backward, MPI_COMM_WORLD, &s->leaving[backward]);
}

/* Tensor ranks, a power of two: as bp_reduce_scatter, or its inverse. */
static void tensor(const simulation *s, int rounds, double bytes)
{
    for (int n = 0; n < rounds; n++)
        for (int bit = 1; bit < s->T; bit <<= 1) {
            double part = bytes / rounds * ((double)s->T / (2 * bit)) / (s->T - 1);

            exchange(s, part, part, 2 * rank_at(s, s->p, s->d, s->t ^ bit), TAG_TP);
        }
}

/* The data rank of a group of E that is `turn` positions after this one. */
static int in_group(const simulation *s, int E, int turn)
{
    int at = s->d % E;

    return 2 * rank_at(s, s->p, s->d - at + (at + turn) % E, s->t);
}

/* Rows to the other ranks of a group of E, and results for theirs, a part for each; the next one's
 * rows travel while one computes. Half of the own part comes first, half last. */
static void experts(const simulation *s, double seconds, double rows, double back, int rounds)
{
    int E = mesh(s, "expert");
    MPI_Request *all = calloc(4 * (size_t)E, sizeof *all);

    if (!all)
        fail("no memory");
    compute(rounds * s->latency);
    for (int k = 0; k < 4 * E; k++)
        all[k] = MPI_REQUEST_NULL;
    for (int turn = 1; turn < E; turn++) {
        MPI_Irecv(s->bytes, count_of(rows / (E - 1)), MPI_BYTE, in_group(s, E, E - turn), TAG_ROWS,
                  MPI_COMM_WORLD, &all[4 * turn]);
        MPI_Irecv(s->bytes, count_of(back / (E - 1)), MPI_BYTE, in_group(s, E, turn), TAG_BACK,
                  MPI_COMM_WORLD, &all[4 * turn + 1]);
    }
    for (int turn = 0; turn < E; turn++) {
        if (turn + 1 < E) {
            if (turn > 0)
                MPI_Wait(&all[4 * turn - 2], MPI_STATUS_IGNORE);
            MPI_Isend(s->bytes, count_of(rows / (E - 1)), MPI_BYTE, in_group(s, E, turn + 1),
                      TAG_ROWS, MPI_COMM_WORLD, &all[4 * turn + 6]);
        }
        MPI_Wait(&all[4 * turn], MPI_STATUS_IGNORE);
        compute(seconds / (turn == 0 ? 2 * E : E));
        if (turn > 0)
            MPI_Isend(s->bytes, count_of(back / (E - 1)), MPI_BYTE, in_group(s, E, E - turn),
                      TAG_BACK, MPI_COMM_WORLD, &all[4 * turn + 3]);
    }
    compute(seconds / (2 * E));
    MPI_Waitall(4 * E, all, MPI_STATUSES_IGNORE);
    free(all);
}

/* All ranks: a dissemination barrier, and what other rounds of small messages take. */
static void meet(const simulation *s, int rounds)
{
    int done = 0;

    for (int step = 1; step < s->ranks; step <<= 1, done++) {
        int to = (s->rank + step) % s->ranks, from = (s->rank + s->ranks - step) % s->ranks;

        MPI_Sendrecv(s->bytes, 8, MPI_BYTE, 2 * to, TAG_MEET, s->bytes, 8, MPI_BYTE, 2 * from,
                     TAG_MEET, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    compute((rounds - done) * s->latency);
}

static void run_op(simulation *s, const json_t *op, bool first)
{
    if (is(op, "compute")) {
        compute(number(op, 1));
    } else if (is(op, "receive")) {
        receive(s, (int)number(op, 1));
    } else if (is(op, "send")) {
        send(s, (int)number(op, 1), number(op, 2));
    } else if (is(op, "tensor")) {
        tensor(s, (int)number(op, 1), number(op, 2));
    } else if (is(op, "experts")) {
        experts(s, number(op, 1), number(op, 2), number(op, 3), (int)number(op, 4));
    } else if (is(op, "reduce") || is(op, "gather")) {
        int gathers = is(op, "gather");

        give(s, (int)number(op, 1), gathers);
        if (s->overlap)
            compute(number(op, 2));
        else
            await(s, (int)number(op, 1), gathers);
    } else if (is(op, "reduced")) {
        const json_t *ops = json_object_get(s->stage, "ops"), *other;
        size_t k;

        json_array_foreach((json_t *)ops, k, other) if (is(other, "reduce") && s->overlap)
            await(s, (int)number(other, 1), 0);
    } else if (is(op, "gathered")) {
        if (!first && s->overlap)
            await(s, (int)number(op, 1), 1);
    } else if (is(op, "tied")) {
        exchange(s, number(op, 1), number(op, 1), 2 * rank_at(s, s->P - 1 - s->p, s->d, s->t),
                 TAG_TIED);
    } else if (is(op, "agree")) {
        meet(s, (int)number(op, 1));
    } else {
        fail("an operation that is not known");
    }
}

/* What the last step began is waited for. */
static void end(const simulation *s)
{
    const json_t *ops = json_object_get(s->stage, "ops"), *op;
    size_t k;

    json_array_foreach((json_t *)ops, k, op) if (is(op, "gather") && s->overlap)
        await(s, (int)number(op, 1), 1);
    give(s, JOBS_END, 0);
}

static void work(simulation *s)
{
    const json_t *ops = json_object_get(s->stage, "ops"), *op;
    double began = 0;
    size_t k;

    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS - 1)
            began = MPI_Wtime();
        for (int way = 0; way < 2; way++) {
            s->looked_at[way] = 0;
            post_next(s, way);
        }
        json_array_foreach((json_t *)ops, k, op) run_op(s, op, step == 0);
        MPI_Waitall(2, s->leaving, MPI_STATUSES_IGNORE);
    }
    if (s->rank == 0)
        printf("%.9g\n", MPI_Wtime() - began);
    end(s);
}

static size_t largest(const json_t *value)
{
    size_t most = 1 << 20, k;
    const json_t *stage, *one;

    json_array_foreach((json_t *)json_object_get(value, "stages"), k, stage)
    {
        size_t n;

        json_array_foreach(json_object_get(stage, "groups"), n, one)
        {
            size_t bytes = (size_t)(4 * number(one, 0) * number(one, 1));
            most = bytes > most ? bytes : most;
        }
        json_array_foreach(json_object_get(stage, "ops"), n, one)
        {
            for (size_t at = 2; at < json_array_size(one); at++)
                most = (size_t)number(one, at) > most ? (size_t)number(one, at) : most;
        }
    }
    return most;
}

static void make_queue(job_queue *q, const json_t *stage)
{
    size_t groups = json_array_size(json_object_get(stage, "groups"));

    q->capacity = 2 * groups + 2;
    q->jobs = calloc(q->capacity, sizeof *q->jobs);
    q->is_done = calloc(2 * groups + 1, sizeof *q->is_done);
    q->given = sg_sem_init(0);
    q->done = sg_sem_init(0);
}

int main(int argc, char **argv)
{
    /* of all ranks, as they are threads of one process */
    static json_t *file;
    static char *shared;
    static bool *waits;
    static job_queue *queues;
    json_error_t error;
    simulation s = {.coming = {MPI_REQUEST_NULL, MPI_REQUEST_NULL},
                    .leaving = {MPI_REQUEST_NULL, MPI_REQUEST_NULL}};
    int world, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!file && argc == 2)
        file = json_load_file(argv[1], 0, &error);
    s.file = file;
    if (!s.file)
        fail("needs a file that --plan --schedule wrote");
    s.rank = world / 2;
    s.ranks = (int)json_integer_value(json_object_get(s.file, "ranks"));
    s.P = mesh(&s, "pipeline");
    s.D = mesh(&s, "data");
    s.T = mesh(&s, "tensor");
    if (size != 2 * s.ranks || s.P * s.D * s.T != s.ranks || (s.T & (s.T - 1)) != 0)
        fail("needs two processes for each rank of the mesh, and a power of two of tensor ranks");
    s.t = s.rank % s.T;
    s.d = s.rank / s.T % s.D;
    s.p = s.rank / s.T / s.D;
    s.stage = json_array_get(json_object_get(s.file, "stages"), (size_t)s.p);
    s.memory_bandwidth = rate(&s, "compute.memory_bandwidth");
    s.pause = rate(&s, "network.round_pause");
    s.latency = rate(&s, s.ranks > (int)json_integer_value(json_object_get(s.file, "node_ranks"))
                             ? "network.node_latency"
                             : "network.inner_latency");
    s.value_bytes = json_number_value(json_object_get(s.file, "value_bytes"));
    s.overlap = json_is_true(json_object_get(s.file, "overlap"));
    if (!shared)
        shared = SMPI_SHARED_MALLOC(largest(s.file));
    s.bytes = shared;
    if (!waits)
        waits = calloc((size_t)s.ranks, sizeof *waits);
    s.waits = waits;
    if (!queues)
        queues = calloc((size_t)s.ranks, sizeof *queues);
    s.queue = &queues[s.rank];
    if (!s.queue->given)
        make_queue(s.queue, s.stage);
    if (world % 2 == 0)
        work(&s);
    else
        progress(&s);
    MPI_Finalize();
    return 0;
}
