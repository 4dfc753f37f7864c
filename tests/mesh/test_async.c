/* Sums and gathers beside compute: the bits of those that wait, in any mixture, and none left
 * behind.
 */
#include "bp_test_mpi.h"

#include "mesh/async.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

enum { JOBS = 3, SHARD = 70000 }; /* several pieces */

static float value(int rank, int job, int64_t i)
{
    return (float)((rank * 31 + job * 7 + i * 13) % 1009) * 1.1e-3F + 1e-7F * (float)(i % 17);
}

static void fill(float *x, int job, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value(bp_comm_rank(MPI_COMM_WORLD), job, i);
}

/* Sum and gather every job's vector by a async, in units, of which ranks have not the same number,
 * and by calls that wait; give other messages in between. Which rank owns an element does not
 * matter to its sum where the ranks are a power of two. */
static bool agrees(bool beside)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    int64_t unit = (size & (size - 1)) == 0 ? 24 : 1, units = (int64_t)SHARD * 4 * size / unit + 1;
    int64_t n = units * unit, job = 0;
    int64_t scratch = bp_reduce_scatter_scratch(units, size) * unit;
    float *x = bp_alloc("test", JOBS * n, sizeof *x), *plain = bp_alloc("test", n, sizeof *plain);
    float *workspace = bp_alloc("test", scratch + 1, sizeof *workspace);
    bp_async *async;
    bool same = true;

    bp_test_expect(bp_async_new(&async, MPI_COMM_WORLD, 2 * JOBS, beside), BP_OK);
    for (int k = 0; k < JOBS; k++)
        fill(x + k * n, k, n);
    for (int k = 0; k < JOBS; k++) {
        (void)bp_async_reduce_scatter(async, x + k * n, units, unit, workspace, false);
        job = bp_async_all_gather(async, x + k * n, units, unit, false);
        (void)bp_all_sum_int(k, MPI_COMM_WORLD);
    }
    bp_async_wait(async, job);
    for (int k = 0; k < JOBS; k++) {
        fill(plain, k, n);
        bp_reduce_scatter(plain, n, workspace, MPI_COMM_WORLD);
        bp_all_gather_shards(plain, n, MPI_COMM_WORLD);
        same = same && memcmp(plain, x + k * n, (size_t)n * sizeof *x) == 0;
    }
    bp_async_free(&async);
    bp_free(x);
    bp_free(plain);
    bp_free(workspace);
    return same;
}

static void sums_beside_compute_have_the_bits_of_those_that_wait(void **state)
{
    bp_test_check(MPI_COMM_WORLD, agrees(true));
}

static void jobs_are_done_at_once_without_a_thread(void **state)
{
    bp_test_check(MPI_COMM_WORLD, agrees(false));
}

/* Some ranks with a thread and some without understand each other. */
static void ranks_may_differ(void **state)
{
    bp_test_check(MPI_COMM_WORLD, agrees(bp_comm_rank(MPI_COMM_WORLD) % 2 == 0));
}

/* The sum of one number that each rank has, by the queue, at whichever rank owns it: `units` of
 * them. */
static void sum_alike(float *x, int64_t n, float mine, bool bf16)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    float *scratch = bp_alloc("test", bp_reduce_scatter_scratch(n, size) + 1, sizeof *scratch);
    bp_async *async;

    bp_test_expect(bp_async_new(&async, MPI_COMM_WORLD, 1, true), BP_OK);
    bp_async_send_bf16(async, bf16);
    for (int64_t i = 0; i < n; i++)
        x[i] = mine;
    bp_async_wait(async, bp_async_reduce_scatter(async, x, n, 1, scratch, false));
    bp_async_free(&async);
    bp_free(scratch);
}

/* Every number that this rank owns of the sum is `expected`. */
static bool owns(const float *x, int64_t n, float expected)
{
    int size = bp_comm_size(MPI_COMM_WORLD), rank = bp_comm_rank(MPI_COMM_WORLD);
    int64_t first = bp_shard_first(n, rank, size), count = bp_shard_count(n, rank, size);
    bool same = true;

    for (int64_t i = first; i < first + count; i++)
        same = same && x[i] == expected;
    return same;
}

/* Numbers of few bits are summed exactly; others are rounded to 8 bits where they travel, once, and
 * added in float32. */
static void values_of_two_bytes_are_rounded_where_they_travel(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD), rank = bp_comm_rank(MPI_COMM_WORLD);
    int64_t n = (int64_t)SHARD * size + 1;
    float *x = bp_alloc("test", n, sizeof *x), little = 1.0F / 4096;
    bool good;

    sum_alike(x, n, (float)(rank + 1), true);
    good = owns(x, n, (float)(size * (size + 1) / 2));
    sum_alike(x, n, 1 + little, false);
    good = good && (size != 2 || owns(x, n, 2 + 2 * little));
    sum_alike(x, n, 1 + little, true);
    good = good && (size != 2 || owns(x, n, 2 + little)); /* one of both is its owner's own */
    sum_alike(x, n, rank == 0 ? 1 + 1.0F / 128 + 1.0F / 256 : 0, true); /* a tie, to even */
    good = good && (size != 2 || owns(x, n, rank == 0 ? 1 + 3.0F / 256 : 1 + 1.0F / 64));
    sum_alike(x, n, rank == 0 ? NAN : INFINITY, true);
    good = good && isnan(x[bp_shard_first(n, rank, size)]);
    bp_free(x);
    bp_test_check(MPI_COMM_WORLD, good);
}

static void what_nobody_waited_for_is_done_before_the_end(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD), rank = bp_comm_rank(MPI_COMM_WORLD);
    int64_t n = (int64_t)SHARD * size, first = bp_shard_first(n, rank, size);
    float *x = bp_alloc("test", n, sizeof *x);
    bp_async *async;
    bool whole = true;

    bp_test_expect(bp_async_new(&async, MPI_COMM_WORLD, 1, true), BP_OK);
    for (int64_t i = 0; i < n; i++)
        x[i] = i >= first && i < first + SHARD ? (float)i : -1;
    (void)bp_async_all_gather(async, x, n, 1, false);
    bp_async_free(&async);
    for (int64_t i = 0; i < n; i++)
        whole = whole && x[i] == (float)i;
    bp_free(x);
    bp_test_check(MPI_COMM_WORLD, whole);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_beside_compute_have_the_bits_of_those_that_wait),
        cmocka_unit_test(jobs_are_done_at_once_without_a_thread),
        cmocka_unit_test(ranks_may_differ),
        cmocka_unit_test(values_of_two_bytes_are_rounded_where_they_travel),
        cmocka_unit_test(what_nobody_waited_for_is_done_before_the_end),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
