/* The time that rounds of a sum oversleep beside compute: each rank computes without pause while
 * its progress thread (mesh/async.h) sums small groups one after another. Called by exchange.c. */
#include "bench/bench_priv.h"

#include "base/mem.h"
#include "math/kernels/kernels.h"
#include "math/threads.h"
#include "mesh/async.h"
#include "mesh/shard.h"

#define SUMS  32 /* one after another, as groups of a backward pass */
#define UNIT  4096
#define UNITS 4
#define SHARE 2     /* both measurements together take bench.seconds */
#define STEPS 40000 /* of arithmetic between two polls: a tenth of a millisecond */

typedef struct sums {
    bp_async *async;
    float *x, *scratch;
} sums;

static volatile double sink;

/* Computes on all cores of a training. */
static void compute_a_little(void)
{
    double all = 0;

#pragma omp parallel num_threads(bp_math_threads()) reduction(+ : all)
    {
        double x = 0;

        for (int k = 0; k < STEPS; k++)
            x = x * 0.999999 + 1e-6;
        all += x;
    }
    sink = all;
}

static int64_t begin(const sums *s)
{
    int64_t job = 0;

    for (int k = 0; k < SUMS; k++)
        job = bp_async_reduce_scatter(s->async, s->x, UNITS, UNIT, s->scratch, false);
    return job;
}

static void run_alone(void *context)
{
    const sums *s = context;

    bp_async_wait(s->async, begin(s));
}

static void run_beside(void *context)
{
    const sums *s = context;
    int64_t job = begin(s);

    while (!bp_async_is_done(s->async, job))
        compute_a_little();
    bp_async_wait(s->async, job);
}

/* The slowest rank's medians of both, per round of one sum. */
static void measure(bench *self, sums *s, json_t *into)
{
    const bench_task tasks[2] = {{run_alone, s, 1}, {run_beside, s, 1}};
    bp_spread spreads[2] = {{0}};
    double medians[2] = {0};
    bp_shard_round rounds[BP_SHARD_ROUNDS];
    int count = bp_shard_rounds(rounds, UNITS, 0, (int)bench_ranks(self));

    for (int k = 0; self->mesh->computes && k < 2; k++) {
        spreads[k] = bench_together(&tasks[k], self->seconds / SHARE, true, self->mesh->compute);
        medians[k] = spreads[k].median / (SUMS * count);
    }
    BP_MPI_WAIT("all_max",
                MPI_Allreduce(MPI_IN_PLACE, medians, 2, MPI_DOUBLE, MPI_MAX, self->mesh->world));
    if (into)
        bench_put(into, "rounds",
                  json_pack("{s:i, s:i, s:I, s:o, s:o}", "sums", SUMS, "rounds", count, "bytes",
                            (json_int_t)(UNITS * UNIT * (int)sizeof(float)), "alone_seconds",
                            bp_json_real(medians[0]), "beside_seconds", bp_json_real(medians[1])));
}

bp_err bench_rounds(bench *self, json_t *into)
{
    sums s = {0};
    bp_err err = BP_OK;

    if (self->mesh->computes) {
        s.x = bp_alloc("bench.rounds", UNITS * UNIT, sizeof *s.x);
        s.scratch = bp_alloc("bench.rounds", UNITS * UNIT, sizeof *s.scratch);
        bp_zero(s.x, UNITS * UNIT); /* sums of zeros stay zeros */
        err = bp_async_new(&s.async, self->mesh->compute, SUMS, true);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK)
        measure(self, &s, into);
    bp_async_free(&s.async);
    bp_free(s.x);
    bp_free(s.scratch);
    return err;
}
