/* Bins of confidence and both calibration errors, on cases made by hand. test_oracles.py has
 * numpy's. */
#include "bp_test.h"

#include "statistics/calibration.h"

#include <math.h>

static void assert_near(double got, double want)
{
    if (fabs(got - want) <= 1e-12)
        return;
    print_error("%.17g is not %.17g\n", got, want);
    fail();
}

static bp_token_order *order_of(const float *confidence, const unsigned char *correct, int64_t n)
{
    bp_token_table table = {.tokens = n, .documents = 1, .score = confidence, .correct = correct};
    bp_token_order *order;

    bp_test_expect(bp_token_order_new(&order, &table), BP_OK);
    return order;
}

static double adaptive(const float *confidence, const unsigned char *correct, int64_t n)
{
    bp_token_order *order = order_of(confidence, correct, n);
    double ece = bp_calibration_ece_adaptive(order, NULL);

    bp_token_order_free(&order);
    return ece;
}

static void a_bin_ends_with_its_upper_edge(void **state)
{
    (void)state;
    assert_int_equal(bp_calibration_bin(0), 0);
    assert_int_equal(bp_calibration_bin(1e-30f), 0);
    assert_int_equal(bp_calibration_bin(1), 14);
    assert_int_equal(bp_calibration_bin(nextafterf(1, 0)), 14);
    /* a log-probability may round to a little more than 0 */
    assert_int_equal(bp_calibration_bin(nextafterf(1, 2)), 14);
    for (int k = 1; k < 15; k++) {
        float edge = (float)k / 15; /* no float is k/15: it lies on one side of it */
        bool above = 15 * (double)edge > k;

        assert_int_equal(bp_calibration_bin(edge), above ? k : k - 1);
        assert_int_equal(bp_calibration_bin(nextafterf(edge, 0)), k - 1);
        assert_int_equal(bp_calibration_bin(nextafterf(edge, 1)), k);
    }
}

/* The example of the metric "ece" of Hugging Face's evaluate: 0.3833 by this definition. */
static void three_points_have_the_error_of_the_definition(void **state)
{
    (void)state;
    static const float confidence[3] = {0.6f, 0.95f, 0.7f};
    static const unsigned char correct[3] = {1, 1, 0};
    bp_calibration sums = {0};
    double want = (0.4 + 0.05 + 0.7) / 3;

    for (int i = 0; i < 3; i++)
        bp_calibration_add(&sums, confidence[i], correct[i], 1 + i, 0.5 * i);
    assert_true(fabs(bp_calibration_ece(&sums) - want) < 1e-7); /* 0.6f is not 0.6 */
    assert_true(fabs(adaptive(confidence, correct, 3) - want) < 1e-7);
    assert_int_equal(bp_calibration_tokens(&sums), 3);
    assert_near(bp_calibration_accuracy(&sums), 2 / 3.0);
    assert_near(bp_calibration_nll(&sums), 2);
    assert_near(bp_calibration_brier(&sums), 0.5);
}

/* Two tokens in one bin, one too sure and one not sure enough: the bin's means agree. */
static void errors_within_a_bin_cancel(void **state)
{
    (void)state;
    bp_calibration sums = {0};

    bp_calibration_add(&sums, 0.5f, true, 0, 0);
    bp_calibration_add(&sums, 0.5f, false, 0, 0);
    assert_near(bp_calibration_ece(&sums), 0);
    bp_reliability bar = bp_calibration_bar(&sums, 7);
    assert_int_equal(bar.tokens, 2);
    assert_near(bar.low, 7 / 15.0);
    assert_near(bar.high, 8 / 15.0);
    assert_near(bar.confidence, 0.5);
    assert_near(bar.accuracy, 0.5);
    bar = bp_calibration_bar(&sums, 0);
    assert_int_equal(bar.tokens, 0);
    assert_true(isnan(bar.accuracy) && isnan(bar.confidence));
}

static void no_tokens_have_no_figures(void **state)
{
    (void)state;
    bp_calibration sums = {0};

    bp_calibration_add(&sums, NAN, true, 1, 1); /* was not scored */
    assert_int_equal(bp_calibration_tokens(&sums), 0);
    assert_true(isnan(bp_calibration_ece(&sums)));
    assert_true(isnan(bp_calibration_accuracy(&sums)));
    assert_true(isnan(bp_calibration_nll(&sums)));
    assert_true(isnan(bp_calibration_brier(&sums)));
    assert_true(isnan(adaptive(NULL, NULL, 0)));
}

/* Weights are how often a document counts. */
static void a_resample_is_the_merge_of_its_documents(void **state)
{
    (void)state;
    static const int32_t counts[3] = {2, 0, 1};
    bp_calibration documents[3] = {0}, whole = {0};

    for (int d = 0; d < 3; d++) {
        bp_calibration_add(&documents[d], 0.25f * (float)(d + 1), d == 1, d, 0.25 * d);
        for (int again = 0; again < counts[d]; again++)
            bp_calibration_add(&whole, 0.25f * (float)(d + 1), d == 1, d, 0.25 * d);
    }
    bp_calibration drawn = bp_calibration_of(documents, counts, 3);
    bp_calibration all = bp_calibration_of(documents, NULL, 3);
    assert_memory_equal(&drawn, &whole, sizeof whole);
    assert_int_equal(bp_calibration_tokens(&all), 3);
    assert_near(bp_calibration_accuracy(&all), 1 / 3.0);
}

/* 30 tokens, two a bin, in pairs of confidences k/32 with one correct token in odd pairs. */
static void adaptive_bins_hold_equally_many(void **state)
{
    (void)state;
    float confidence[30];
    unsigned char correct[30];
    double want = 0;

    for (int i = 0; i < 30; i++) {
        confidence[29 - i] = (float)(i / 2) / 32; /* not in order */
        correct[29 - i] = i % 4 == 3;
    }
    for (int k = 0; k < 15; k++)
        want += fabs((k % 2) - 2 * k / 32.0) / 30;
    assert_near(adaptive(confidence, correct, 30), want);
}

/* One confidence for all: every bin has the mean accuracy, whatever the order of tokens. */
static void ties_do_not_depend_on_the_order_of_tokens(void **state)
{
    (void)state;
    float confidence[45];
    unsigned char first[45], last[45];

    for (int i = 0; i < 45; i++) {
        confidence[i] = 0.5f;
        first[i] = i < 9;
        last[i] = i >= 36;
    }
    assert_near(adaptive(confidence, first, 45), 0.3);
    assert_near(adaptive(confidence, last, 45), 0.3);
}

static void fewer_tokens_than_bins_are_a_bin_each(void **state)
{
    (void)state;
    static const float confidence[4] = {0.5f, 0.25f, 1, 0};
    static const unsigned char correct[4] = {1, 0, 1, 0};

    assert_near(adaptive(confidence, correct, 4), (0.5 + 0.25) / 4);
    assert_near(adaptive(confidence, correct, 1), 0.5);
}

static void tokens_without_a_score_are_left_out(void **state)
{
    (void)state;
    static const float confidence[5] = {0.5f, NAN, 0.25f, NAN, 0.75f};
    static const unsigned char correct[5] = {1, 1, 0, 1, 1};
    static const float nll[5] = {1, 2, 3, 4, 5};
    static const int64_t starts[5] = {0, 0, 2, 2, 5}; /* two documents are empty */
    bp_token_table table = {.tokens = 5,
                            .documents = 4,
                            .score = confidence,
                            .correct = correct,
                            .nll = nll,
                            .doc_start = starts};
    bp_token_order *order;

    bp_test_expect(bp_token_order_new(&order, &table), BP_OK);
    assert_int_equal(order->tokens, 3);
    assert_int_equal(order->documents, 4);
    assert_true(order->score[0] == 0.25f && order->nll[0] == 3 && order->owner[0] == 2 * 3);
    assert_true(order->score[1] == 0.5f && order->nll[1] == 1 && order->owner[1] == 2 * 1 + 1);
    assert_true(order->score[2] == 0.75f && order->nll[2] == 5 && order->owner[2] == 2 * 3 + 1);
    bp_token_order_free(&order);
    assert_null(order);
    bp_token_order_free(&order);
}

static void memory_that_is_short_is_reported(void **state)
{
    (void)state;
    bp_token_table table = {.tokens = INT64_MAX / 16, .documents = 1};
    bp_token_order *order = (bp_token_order *)&table;

    bp_test_expect(bp_token_order_new(&order, &table), BP_ERR_SYSTEM);
    assert_null(order);
}

/* Two documents with tokens in one bin, of confidence 0.5, half of them right. */
static bp_calibration document_of(int64_t right, int64_t wrong)
{
    bp_calibration sums = {0};

    for (int64_t k = 0; k < right + wrong; k++)
        bp_calibration_add(&sums, 0.5f, k < right, 0, 0);
    return sums;
}

static void squared_error_is_less_by_what_documents_differ(void **state)
{
    (void)state;
    const bp_calibration alike[2] = {document_of(3, 1), document_of(3, 1)};
    const bp_calibration unlike[2] = {document_of(4, 0), document_of(2, 2)};
    const bp_calibration both = bp_calibration_of(unlike, NULL, 2);
    bp_calibration_gaps gaps = bp_calibration_gaps_of(alike, 2);

    assert_near(bp_calibration_squared(&gaps), 0.25 * 0.25); /* accuracy 3/4 in both */
    gaps = bp_calibration_gaps_of(unlike, 2);
    /* deviations of 1 from 4 times the ratio: 2 (1 + 1) / 8^2 */
    assert_near(gaps.noise, 4 / 64.0);
    assert_near(bp_calibration_squared(&gaps), 0);
    /* the sample itself, drawn: its plug-in error less twice the noise */
    assert_near(bp_calibration_squared_resampled(&gaps, &both), 0.25 * 0.25 - 2 * gaps.noise);
}

static void squared_error_of_nothing_is_not_a_number(void **state)
{
    (void)state;
    static const bp_calibration none[3];
    bp_calibration_gaps gaps = bp_calibration_gaps_of(none, 3);

    assert_true(isnan(bp_calibration_squared(&gaps)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bin_ends_with_its_upper_edge),
        cmocka_unit_test(three_points_have_the_error_of_the_definition),
        cmocka_unit_test(errors_within_a_bin_cancel),
        cmocka_unit_test(no_tokens_have_no_figures),
        cmocka_unit_test(a_resample_is_the_merge_of_its_documents),
        cmocka_unit_test(adaptive_bins_hold_equally_many),
        cmocka_unit_test(ties_do_not_depend_on_the_order_of_tokens),
        cmocka_unit_test(fewer_tokens_than_bins_are_a_bin_each),
        cmocka_unit_test(tokens_without_a_score_are_left_out),
        cmocka_unit_test(memory_that_is_short_is_reported),
        cmocka_unit_test(squared_error_is_less_by_what_documents_differ),
        cmocka_unit_test(squared_error_of_nothing_is_not_a_number),
    };
    return BP_TEST_RUN(tests);
}
