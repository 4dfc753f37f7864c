/* Factors: plain loops, and the same bits on all numbers of ranks. */
#include "bp_test_mpi.h"
#include "explain/maps/factorise.h"

#include "base/mem.h"
#include "base/rng.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

enum { ROWS = 7, FACTORS = 3, BLOCKS = 4, WIDTH = 5, COLUMNS = BLOCKS * WIDTH };

static void draw(double *x, int64_t n, int64_t stream)
{
    const bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, stream);

    for (int64_t i = 0; i < n; i++)
        x[i] = fmax(0, bp_rng_uniform(&key, (uint64_t)i) - 0.2);
}

/* Steps of blocks that the ranks of `group` have in turn; w, and h on all ranks. */
static double steps(MPI_Comm group, double *w, double h[FACTORS][COLUMNS], int count)
{
    double xs[BLOCKS][ROWS * WIDTH], hs[BLOCKS][FACTORS * WIDTH], *own_h[BLOCKS], objective;
    const double *own_x[BLOCKS];
    int rank, size;

    MPI_Comm_rank(group, &rank);
    MPI_Comm_size(group, &size);
    draw(w, ROWS * FACTORS, 9);
    for (int b = 0; b < BLOCKS; b++) {
        draw(xs[b], ROWS * WIDTH, b);
        if (b == 2) /* a neuron that never fires */
            for (int i = 0; i < ROWS; i++)
                xs[b][i * WIDTH] = 0;
        draw(hs[b], FACTORS * WIDTH, 20 + b);
        own_x[b] = b % size == rank ? xs[b] : NULL;
        own_h[b] = b % size == rank ? hs[b] : NULL;
    }
    const bp_factorisation of = {
        .group = group,
        .n = ROWS,
        .k = FACTORS,
        .blocks = BLOCKS,
        .width = WIDTH,
        .x = own_x,
        .w = w,
        .h = own_h,
        .work = bp_alloc("test", bp_factorise_work(ROWS, FACTORS, BLOCKS, WIDTH), sizeof(double))};
    for (int s = 0; s < count; s++)
        bp_factorise_step(&of);
    objective = bp_factorise_objective(&of);
    memset(h, 0, FACTORS * sizeof *h);
    for (int b = 0; b < BLOCKS; b++)
        for (int f = 0; own_h[b] && f < FACTORS; f++)
            memcpy(&h[f][b * WIDTH], own_h[b] + f * WIDTH, WIDTH * sizeof(double));
    bp_all_sum_double(&h[0][0], (int64_t)FACTORS * COLUMNS, group);
    bp_free(of.work);
    return objective;
}

static void bits_do_not_depend_on_the_ranks(void **state)
{
    double w[2][ROWS * FACTORS], h[2][FACTORS][COLUMNS], objective[2];

    objective[0] = steps(MPI_COMM_SELF, w[0], h[0], 20);
    objective[1] = steps(MPI_COMM_WORLD, w[1], h[1], 20);
    bp_test_check(MPI_COMM_WORLD, memcmp(w[0], w[1], sizeof w[0]) == 0);
    bp_test_check(MPI_COMM_WORLD, memcmp(h[0], h[1], sizeof h[0]) == 0);
    bp_test_check(MPI_COMM_WORLD, memcmp(&objective[0], &objective[1], sizeof(double)) == 0);
}

static void the_objective_never_rises(void **state)
{
    double w[ROWS * FACTORS], h[FACTORS][COLUMNS], last = INFINITY;

    for (int count = 0; count < 12; count++) {
        double now = steps(MPI_COMM_WORLD, w, h, count);

        bp_test_check(MPI_COMM_WORLD, now <= last && isfinite(now));
        last = now;
    }
    for (int f = 0; f < FACTORS; f++) /* 0 / 0 */
        bp_test_check(MPI_COMM_WORLD, h[f][2 * WIDTH] == 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(bits_do_not_depend_on_the_ranks),
                                              cmocka_unit_test(the_objective_never_rises)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
