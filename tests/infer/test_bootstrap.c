/* Standard errors over documents do not depend on the ranks that share the resamples out. */
#include "bp_test_mpi.h"

#include "base/rng.h"
#include "infer/score/tables/bootstrap.h"
#include "mesh/collective.h"
#include "statistics/resample.h"

#include <math.h>

static bp_err answer(void *context, const void *what)
{
    return bp_score_bootstrap_answer(*(MPI_Comm *)context, what);
}

/* Documents fill 17 blocks and a part, so a chunk and some more. */
static void ranks_make_no_difference(void **state)
{
    enum { N = 17 * BP_RESAMPLE_BLOCK + 5 };
    MPI_Comm world = MPI_COMM_WORLD;
    bp_requests helpers = {.group = world, .answer = answer, .context = &world};
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_TEST, 0, 0, 0);
    double shared = 0, alone = 0;

    (void)state;
    if (bp_comm_is_root(world)) {
        bp_score_draw *draws = bp_alloc("test.draws", N, sizeof *draws);

        for (int64_t d = 0; d < N; d++)
            draws[d] = (bp_score_draw){5 * bp_rng_uniform(&key, (uint64_t)d), (double)(d % 4)};
        bp_test_expect(bp_score_bootstrap(&shared, draws, N, 1, &helpers), BP_OK);
        bp_requests_end(&helpers);
        bp_test_expect(bp_score_bootstrap(&alone, draws, N, 1, NULL), BP_OK);
        bp_free(draws);
    } else {
        bp_test_expect(bp_requests_follow(&helpers), BP_OK);
    }
    assert_true(shared == alone);
    assert_true(!bp_comm_is_root(world) || (shared > 0 && shared < 1));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_make_no_difference),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
