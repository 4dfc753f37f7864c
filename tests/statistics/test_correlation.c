/* Spearman's correlation: ties, and values that are not numbers. test_oracles.py has scipy's. */
#include "bp_test.h"

#include "statistics/correlation.h"

#include <math.h>

static void ties_have_the_mean_of_their_ranks(void **state)
{
    const double x[] = {1, 2, 2, 3}, y[] = {10, 30, 20, 40};

    (void)state; /* ranks 0, 1.5, 1.5, 3 and 0, 2, 1, 3: 4.5 / sqrt(4.5 * 5) */
    assert_true(fabs(bp_spearman(x, y, 4) - 4.5 / sqrt(22.5)) < 1e-12);
}

static void a_value_that_is_no_number_makes_it_nan(void **state)
{
    (void)state;
    for (int at = 0; at < 4; at++) {
        double x[] = {1, 2, 3, 4};
        const double y[] = {4, 3, 1, 2};

        x[at] = NAN;
        assert_true(isnan(bp_spearman(x, y, 4)));
        assert_true(isnan(bp_spearman(y, x, 4)));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_have_the_mean_of_their_ranks),
        cmocka_unit_test(a_value_that_is_no_number_makes_it_nan),
    };
    return BP_TEST_RUN(tests);
}
