/* Risk and coverage, on cases made by hand. test_oracles.py has numpy's. */
#include "bp_test.h"

#include "statistics/risk.h"

#include <math.h>

static bp_risk risk_of(const float *uncertainty, const unsigned char *correct, const float *nll,
                       int64_t n)
{
    bp_token_table table = {
        .tokens = n, .documents = 1, .score = uncertainty, .correct = correct, .nll = nll};
    bp_token_order *order;
    bp_risk risk;

    bp_test_expect(bp_token_order_new(&order, &table), BP_OK);
    bp_risk_of(&risk, order, NULL);
    bp_token_order_free(&order);
    return risk;
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) <= 1e-14)
        return;
    print_error("%.17g is not %.17g\n", got, want);
    fail();
}

/* From the most certain on: right, right, wrong, right. Risks 0, 0, 1/3, 1/4. */
static void risk_is_that_of_the_most_certain(void **state)
{
    (void)state;
    static const float uncertainty[4] = {0.3f, 0.1f, 0.4f, 0.2f}, nll[4] = {4, 1, 2, 3};
    static const unsigned char correct[4] = {0, 1, 1, 1};
    bp_risk risk = risk_of(uncertainty, correct, nll, 4);

    assert_int_equal(risk.tokens, 4);
    assert_near(risk.area_error, (0 + 0 + 1 / 3.0 + 1 / 4.0) / 4);
    assert_near(risk.area_nll, (1 + 2 + 8 / 3.0 + 10 / 4.0) / 4);
    assert_near(risk.error[49], 0);
    assert_near(risk.error[74], 1 / 3.0);
    assert_near(risk.error[99], 1 / 4.0);
    assert_near(risk.nll[24], 1);
    assert_near(risk.nll[99], 10 / 4.0);
    /* 60 %: 2.4 tokens, of which the third counts by 0.4 */
    assert_near(risk.error[59], 0.4 / 2.4);
    assert_near(risk.nll[59], (4 + 0.4 * 4) / 2.4);
}

static void equally_certain_tokens_are_one_group(void **state)
{
    (void)state;
    static const float uncertainty[5] = {7, 7, 7, 7, 7};
    static const unsigned char first[5] = {1, 1, 0, 0, 0}, last[5] = {0, 0, 0, 1, 1};
    bp_risk a = risk_of(uncertainty, first, NULL, 5), b = risk_of(uncertainty, last, NULL, 5);

    assert_near(a.area_error, 0.6);
    assert_memory_equal(&a, &b, sizeof a);
    for (int k = 0; k < BP_RISK_POINTS; k++)
        assert_near(a.error[k], 0.6);
}

static void one_token_is_its_own_risk(void **state)
{
    (void)state;
    static const float uncertainty[1] = {0}, nll[1] = {3};
    static const unsigned char correct[1] = {0};
    bp_risk risk = risk_of(uncertainty, correct, nll, 1);

    assert_near(risk.area_error, 1);
    assert_near(risk.area_nll, 3);
    for (int k = 0; k < BP_RISK_POINTS; k++)
        assert_near(risk.nll[k], 3);
}

static void no_tokens_have_no_risk(void **state)
{
    (void)state;
    bp_risk risk = risk_of(NULL, NULL, NULL, 0);

    assert_int_equal(risk.tokens, 0);
    assert_true(isnan(risk.area_error) && isnan(risk.area_nll));
    for (int k = 0; k < BP_RISK_POINTS; k++)
        assert_true(isnan(risk.error[k]) && isnan(risk.nll[k]));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(risk_is_that_of_the_most_certain),
        cmocka_unit_test(equally_certain_tokens_are_one_group),
        cmocka_unit_test(one_token_is_its_own_risk),
        cmocka_unit_test(no_tokens_have_no_risk),
    };
    return BP_TEST_RUN(tests);
}
