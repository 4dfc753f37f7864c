/* The minimum over temperatures of two-class text, where it has a formula, and at the edges. */
#include "bp_test.h"

#include "statistics/temperature.h"

#include <math.h>

enum { POINTS = 25 };

/* `right` tokens whose target has probability p, and `wrong` ones that have 1-p, of two classes. */
typedef struct two_classes {
    double beta[POINTS], value[POINTS], first[POINTS], second[POINTS];
    bp_temperature_sums sums;
} two_classes;

static double nll_at(double b, double p, double right, double wrong)
{
    double z = log(p / (1 - p)) * b;

    return (right * log1p(exp(-z)) + wrong * log1p(exp(z))) / (right + wrong);
}

static void fill(two_classes *out, double p, int right, int wrong)
{
    double logit = log(p / (1 - p));

    for (int k = 0; k < POINTS; k++) {
        double b = exp2((k - 12) / 8.0), s = 1 / (1 + exp(-b * logit));

        out->beta[k] = b;
        out->value[k] = (right + wrong) * nll_at(b, p, right, wrong);
        out->first[k] = logit * (wrong * s - right * (1 - s));
        out->second[k] = logit * logit * (right + wrong) * s * (1 - s);
    }
    out->sums = (bp_temperature_sums){.points = POINTS,
                                      .tokens = right + wrong,
                                      .beta = out->beta,
                                      .value = out->value,
                                      .first = out->first,
                                      .second = out->second};
}

/* The best b makes the model right as often as it says: sigmoid(b logit p) = right / all. */
static void the_minimum_is_where_confidence_is_accuracy(void **state)
{
    (void)state;
    static const int rights[] = {69, 75, 80, 85, 90, 95, 99};
    two_classes text;

    for (size_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        double share = rights[i] / 100.0, best = log(share / (1 - share)) / log(0.9 / 0.1);

        fill(&text, 0.9, rights[i], 100 - rights[i]);
        bp_temperature got = bp_temperature_fit(&text.sums);
        assert_false(got.at_edge);
        assert_true(fabs(got.temperature * best - 1) < 1e-6);
        assert_true(fabs(got.nll - nll_at(best, 0.9, share, 1 - share)) < 1e-9);
        assert_true(fabs(bp_temperature_nll(&text.sums, got.temperature) - got.nll) < 1e-12);
    }
}

static void a_point_of_the_grid_is_met(void **state)
{
    (void)state;
    two_classes text;

    fill(&text, 0.75, 3, 1); /* calibrated: b = 1, point 12 */
    bp_temperature got = bp_temperature_fit(&text.sums);
    assert_true(fabs(got.temperature - 1) < 1e-9);
    text.first[12] = 0; /* to the bit */
    got = bp_temperature_fit(&text.sums);
    assert_true(got.temperature == 1 && !got.at_edge && got.nll == text.value[12] / 4);
}

static void a_minimum_beyond_the_points_is_reported(void **state)
{
    (void)state;
    two_classes text;

    fill(&text, 0.9, 100, 0); /* always right: ever colder */
    bp_temperature got = bp_temperature_fit(&text.sums);
    assert_true(got.at_edge && got.temperature == 1 / text.beta[POINTS - 1]);
    assert_true(got.nll == text.value[POINTS - 1] / 100);
    fill(&text, 0.9, 50, 50); /* knows nothing: ever hotter */
    got = bp_temperature_fit(&text.sums);
    assert_true(got.at_edge && got.temperature == 1 / text.beta[0]);
    assert_true(got.nll == text.value[0] / 100);
}

/* Between points the NLL is interpolated to 1e-8; outside it is not known. */
static void nll_is_known_between_the_points(void **state)
{
    (void)state;
    two_classes text;

    fill(&text, 0.9, 83, 17);
    for (int k = 0; k < POINTS - 1; k++) {
        double b = 0.3 * text.beta[k] + 0.7 * text.beta[k + 1];

        assert_true(fabs(bp_temperature_nll(&text.sums, 1 / b) - nll_at(b, 0.9, 83, 17)) < 1e-8);
    }
    for (int k = 0; k < POINTS; k++)
        assert_true(fabs(bp_temperature_nll(&text.sums, 1 / text.beta[k]) - text.value[k] / 100) <
                    1e-9);
    assert_true(isnan(bp_temperature_nll(&text.sums, 0.1)));
    assert_true(isnan(bp_temperature_nll(&text.sums, 3)));
    assert_true(isnan(bp_temperature_nll(&text.sums, NAN)));
}

static void no_tokens_have_no_temperature(void **state)
{
    (void)state;
    two_classes text;

    fill(&text, 0.9, 0, 0);
    bp_temperature got = bp_temperature_fit(&text.sums);
    assert_true(isnan(got.temperature) && isnan(got.nll) && !got.at_edge);
    assert_true(isnan(bp_temperature_nll(&text.sums, 1)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_minimum_is_where_confidence_is_accuracy),
        cmocka_unit_test(a_point_of_the_grid_is_met),
        cmocka_unit_test(a_minimum_beyond_the_points_is_reported),
        cmocka_unit_test(nll_is_known_between_the_points),
        cmocka_unit_test(no_tokens_have_no_temperature),
    };
    return BP_TEST_RUN(tests);
}
