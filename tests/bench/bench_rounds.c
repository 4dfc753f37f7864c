/* What a chain of small sums takes beside compute: ranks that compute without a pause, while the
 * progress thread of each (mesh/async.h) sums groups of parameters one after another. Prints the
 * seconds of the chain alone and beside compute, and what the chain takes of the compute.
 * Arguments: groups, floats of a group, repeats. */
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "mesh/async.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <stdio.h>
#include <stdlib.h>

#define UNIT 4096

typedef struct chain {
    bp_async *async;
    float *x, *scratch;
    int64_t groups, units;
} chain;

static volatile double sink;

/* About a tenth of a millisecond. */
static void compute_a_little(void)
{
    double x = sink;

    for (int k = 0; k < 40000; k++)
        x = x * 0.999999 + 1e-6;
    sink = x;
}

static int64_t begin(const chain *c)
{
    int64_t job = 0;

    for (int64_t g = 0; g < c->groups; g++)
        job = bp_async_reduce_scatter(c->async, c->x, c->units, UNIT, c->scratch, false);
    return job;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    chain c = {.groups = 32, .units = 4};
    int repeats = 9;
    double alone[64], beside[64], slowed[64];

    if (bp_mpi_start(&argc, &argv) != BP_OK)
        return 1;
    if (argc > 1)
        c.groups = strtoll(argv[1], NULL, 10);
    if (argc > 2)
        c.units = (strtoll(argv[2], NULL, 10) + UNIT - 1) / UNIT;
    if (argc > 3)
        repeats = atoi(argv[3]) < 64 ? atoi(argv[3]) : 64;
    c.x = bp_alloc("bench", c.units * UNIT, sizeof *c.x);
    c.scratch = bp_alloc("bench", c.units * UNIT, sizeof *c.scratch);
    if (bp_async_new(&c.async, MPI_COMM_WORLD, (int)c.groups, true) != BP_OK)
        return 1;
    for (int r = 0; r < repeats; r++) {
        BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
        double began = bp_clock_now();
        bp_async_wait(c.async, begin(&c));
        alone[r] = bp_clock_now() - began;

        BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
        double cpu = bp_clock_now();
        int64_t loops = 0;
        for (; loops < 100; loops++)
            compute_a_little();
        double each = (bp_clock_now() - cpu) / (double)loops;

        BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
        began = bp_clock_now();
        int64_t job = begin(&c);
        for (loops = 0; !bp_async_is_done(c.async, job); loops++)
            compute_a_little();
        beside[r] = bp_clock_now() - began;
        slowed[r] = 1 - (double)loops * each / beside[r];
        bp_async_wait(c.async, job);
    }
    qsort(alone, (size_t)repeats, sizeof *alone, by_size);
    qsort(beside, (size_t)repeats, sizeof *beside, by_size);
    qsort(slowed, (size_t)repeats, sizeof *slowed, by_size);
    if (bp_comm_is_root(MPI_COMM_WORLD))
        printf("%lld sums of %lld floats: %.3f ms alone, %.3f ms beside compute (%.1f us more a "
               "sum), which it takes "
               "%.0f %% of\n",
               (long long)c.groups, (long long)(c.units * UNIT), 1e3 * alone[repeats / 2],
               1e3 * beside[repeats / 2],
               1e6 * (beside[repeats / 2] - alone[repeats / 2]) / (double)c.groups,
               100 * slowed[repeats / 2]);
    bp_async_free(&c.async);
    bp_free(c.x);
    bp_free(c.scratch);
    bp_mpi_finish();
    return 0;
}
