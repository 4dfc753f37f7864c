/* AUROC, average precision and FPR at 95 % TPR, on cases made by hand. test_oracles.py has
 * sklearn's. */
#include "bp_test.h"

#include "statistics/detection.h"

#include <math.h>

static bp_detection_figures figures_of(const double *in_domain, int64_t n, const double *shifted,
                                       int64_t m)
{
    bp_detection *detection;

    bp_test_expect(bp_detection_new(&detection, in_domain, n, shifted, m), BP_OK);
    bp_detection_figures out = bp_detection_of(detection, NULL, NULL);
    bp_detection_free(&detection);
    assert_null(detection);
    return out;
}

static void assert_figures(bp_detection_figures got, double auroc, double aupr, double fpr95)
{
    if (fabs(got.auroc - auroc) < 1e-14 && fabs(got.aupr - aupr) < 1e-14 &&
        fabs(got.fpr95 - fpr95) < 1e-14)
        return;
    print_error("%.17g %.17g %.17g\n", got.auroc, got.aupr, got.fpr95);
    fail();
}

static void scores_that_part_the_kinds_are_perfect(void **state)
{
    (void)state;
    static const double low[3] = {1, 2, 3}, high[2] = {4, 5};

    assert_figures(figures_of(low, 3, high, 2), 1, 1, 0);
    /* the wrong way round: all in-domain documents come before a shifted one */
    assert_figures(figures_of(high, 2, low, 3), 0, (1 / 3.0 + 2 / 4.0 + 3 / 5.0) / 3, 1);
}

static void equal_scores_say_nothing(void **state)
{
    (void)state;
    static const double same[5] = {2, 2, 2, 2, 2};

    assert_figures(figures_of(same, 3, same, 2), 0.5, 2 / 5.0, 1);
}

/* In descending order: shifted 9, both at 7, in-domain 5, shifted 3, in-domain 1. */
static void ties_count_half(void **state)
{
    (void)state;
    static const double in_domain[3] = {7, 5, 1}, shifted[3] = {9, 7, 3};

    assert_figures(figures_of(in_domain, 3, shifted, 3), (3 + 2.5 + 1) / 9,
                   (1 + 2 / 3.0 + 3 / 5.0) / 3, 2 / 3.0);
}

/* 20 shifted documents: 19 of them are 95 %, so the lowest one does not matter. */
static void nineteen_of_twenty_are_enough(void **state)
{
    (void)state;
    double shifted[20];
    static const double in_domain[4] = {0.5, -0.5, 30, -2};

    for (int i = 0; i < 20; i++)
        shifted[i] = i == 7 ? -1 : 1 + i;
    assert_true(figures_of(in_domain, 4, shifted, 20).fpr95 == 0.25);
    shifted[3] = -1; /* 18 of 20 above: all are needed, and so three in-domain ones */
    assert_true(figures_of(in_domain, 4, shifted, 20).fpr95 == 0.75);
}

static void one_kind_alone_has_no_figures(void **state)
{
    (void)state;
    static const double scores[2] = {1, NAN};
    bp_detection_figures got[4] = {figures_of(scores, 2, NULL, 0), figures_of(NULL, 0, scores, 2),
                                   figures_of(NULL, 0, NULL, 0),
                                   figures_of(scores, 1, scores + 1, 1)};

    for (int i = 0; i < 4; i++)
        assert_true(isnan(got[i].auroc) && isnan(got[i].aupr) && isnan(got[i].fpr95));
}

/* Documents without a score are left out, and the others keep their numbers in a resample. */
static void resamples_count_documents_by_their_number(void **state)
{
    (void)state;
    static const double in_domain[3] = {NAN, 2, 1}, shifted[3] = {3, NAN, 1.5};
    static const int32_t in_counts[3] = {5, 0, 2}, shifted_counts[3] = {1, 7, 1};
    static const int32_t none[3] = {3, 0, 0};
    bp_detection *detection;

    bp_test_expect(bp_detection_new(&detection, in_domain, 3, shifted, 3), BP_OK);
    assert_figures(bp_detection_of(detection, NULL, NULL), 0.75, (1 + 2 / 3.0) / 2, 0.5);
    assert_figures(bp_detection_of(detection, in_counts, shifted_counts), 1, 1, 0);
    assert_true(isnan(bp_detection_of(detection, none, shifted_counts).auroc));
    bp_detection_free(&detection);
    bp_detection_free(&detection);
}

static void memory_that_is_short_is_reported(void **state)
{
    (void)state;
    double score = 0;
    bp_detection *detection = (bp_detection *)&score;

    bp_test_expect(bp_detection_new(&detection, &score, INT64_MAX / 16, &score, 1), BP_ERR_SYSTEM);
    assert_null(detection);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_that_part_the_kinds_are_perfect),
        cmocka_unit_test(equal_scores_say_nothing),
        cmocka_unit_test(ties_count_half),
        cmocka_unit_test(nineteen_of_twenty_are_enough),
        cmocka_unit_test(one_kind_alone_has_no_figures),
        cmocka_unit_test(resamples_count_documents_by_their_number),
        cmocka_unit_test(memory_that_is_short_is_reported),
    };
    return BP_TEST_RUN(tests);
}
