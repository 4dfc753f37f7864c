/* How fast matrices over ranks are here: mpirun -n RANKS bench_distributed N ROWS [BLOCK].
 * Adds x^T x of ROWS rows, in chunks of 1,024, to an N x N matrix, finds its eigenvectors. Prints
 * seconds, and the rate of the operations that the textbook counts; then the same by the
 * processors' time, which others on the machine do not lengthen. */
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/rng.h"
#include "math/math.h"
#include "math/scalapack/distributed.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define CHUNK 1024

static void fill(void *context, int64_t row, int64_t first, int64_t count, double *values)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);

    (void)context;
    for (int64_t i = 0; i < count; i++) /* a spectrum over six decades */
        values[i] = (bp_rng_uniform(&key, (uint64_t)(row * 65536 + first + i)) - 0.5) *
                    exp(-7e-4 * (double)(first + i));
}

typedef struct stopwatch {
    double wall, processor;
} stopwatch;

/* Processor seconds of all ranks. */
static stopwatch look(MPI_Comm comm)
{
    struct rusage used;
    stopwatch now;

    BP_MPI(MPI_Barrier(comm));
    BP_ASSERT(getrusage(RUSAGE_SELF, &used) == 0);
    now.processor = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    bp_all_sum_double(&now.processor, 1, comm);
    now.wall = bp_clock_now();
    return now;
}

static void report(MPI_Comm comm, const char *what, stopwatch start, double operations)
{
    stopwatch end = look(comm);
    double wall = end.wall - start.wall, processor = end.processor - start.processor;

    if (bp_comm_is_root(comm))
        printf("%-6s %8.2f s  %6.1f GFLOP/s; %8.2f processor-seconds, %6.1f GFLOP/s of a core\n",
               what, wall, operations / wall * 1e-9, processor, operations / processor * 1e-9);
}

static bp_err run(MPI_Comm comm, int64_t n, int64_t rows, int64_t block)
{
    bp_grid *grid = NULL;
    bp_distributed *x = NULL, *c = NULL, *vectors = NULL;
    double *values = bp_alloc("bench", n, sizeof *values), real = (double)n;
    stopwatch start;
    bp_err err = bp_grid_new(&grid, comm);

    if (err == BP_OK)
        err = bp_distributed_new(&x, grid, CHUNK, n, block);
    if (err == BP_OK)
        err = bp_distributed_new(&c, grid, n, n, block);
    if (err == BP_OK)
        err = bp_distributed_new(&vectors, grid, n, n, block);
    if (err == BP_OK) {
        bp_distributed_visit(x, NULL, fill);
        start = look(comm);
        for (int64_t r = 0; r < rows; r += CHUNK)
            bp_distributed_add_gram(c, 1.0 / (double)rows, x);
        report(comm, "gram", start, (double)rows * real * real);
        start = look(comm);
        err = bp_distributed_eigen(c, values, vectors, NULL, NULL);
        report(comm, "eigen", start, 16.0 / 3 * real * real * real);
    }
    bp_distributed_free(&vectors);
    bp_distributed_free(&c);
    bp_distributed_free(&x);
    bp_grid_free(&grid);
    bp_free(values);
    return err;
}

int main(int argc, char **argv)
{
    bp_err err = bp_mpi_start(&argc, &argv);

    if (err == BP_OK && argc < 3)
        err = BP_FAIL(BP_ERR_USAGE, "command.wrong_count", "bench_distributed N ROWS [BLOCK]");
    if (err == BP_OK) {
        bp_math_set_threads(bp_math_threads_for(MPI_COMM_WORLD, 0));
        err = run(MPI_COMM_WORLD, atoll(argv[1]), atoll(argv[2]), argc > 3 ? atoll(argv[3]) : 0);
    }
    if (err != BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        fprintf(stderr, "%s\n", bp_err_message());
    bp_mpi_finish();
    return (int)err;
}
