/* Resamples: what is drawn, pairs, threads, percentile intervals. */
#include "bp_test.h"

#include "base/process/heartbeat.h"
#include "statistics/resample.h"

#include <math.h>
#include <omp.h>

/* Draw by draw, as the numbers are defined: two 64-bit words a block of Philox. */
static int64_t plain_draw(const bp_rng_key *key, int64_t i, int64_t n)
{
    uint32_t words[4];

    bp_rng_block(words, key, (uint64_t)i / 2);
    uint64_t bits = (uint64_t)words[i % 2 * 2 + 1] << 32 | words[i % 2 * 2];
    return (int64_t)(((unsigned __int128)bits * (uint64_t)n) >> 64);
}

static void counts_are_those_of_the_draws(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 511, 512, 513, 1025};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        bp_rng_key key = bp_resample_key(5, 17, 2);
        int32_t counts[1025], want[1025] = {0};

        for (int64_t i = 0; i < n; i++)
            want[plain_draw(&key, i, n)]++;
        bp_resample_counts(counts, n, &key);
        assert_memory_equal(counts, want, (size_t)n * sizeof *counts);
    }
}

/* Over 1,000 resamples of 200 documents each is drawn 1,000 times: chi-square of 199 degrees, mean
 * 199 and deviation 20; beyond 300 by chance in less than 1 of 10^5. */
static void documents_are_drawn_equally_often(void **state)
{
    (void)state;
    enum { N = 200 };
    double drawn[N] = {0}, square = 0;

    for (int64_t r = 0; r < BP_RESAMPLES; r++) {
        bp_rng_key key = bp_resample_key(3, r, 0);
        int32_t counts[N];

        bp_resample_counts(counts, N, &key);
        for (int d = 0; d < N; d++)
            drawn[d] += counts[d];
    }
    for (int d = 0; d < N; d++)
        square += (drawn[d] - BP_RESAMPLES) * (drawn[d] - BP_RESAMPLES) / BP_RESAMPLES;
    assert_true(square > 110 && square < 300);
}

static void streams_and_seeds_draw_otherwise(void **state)
{
    (void)state;
    bp_rng_key keys[4] = {bp_resample_key(1, 0, 0), bp_resample_key(1, 0, 1),
                          bp_resample_key(1, 1, 0), bp_resample_key(2, 0, 0)};
    int32_t counts[4][64];

    for (int i = 0; i < 4; i++)
        bp_resample_counts(counts[i], 64, &keys[i]);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(counts[i], counts[j], sizeof counts[i]);
}

/* ---- a bootstrap ---- */

enum { DOCUMENTS = 300, OTHERS = 70, WIDTH = 3 };

typedef struct documents {
    double one[DOCUMENTS], other[DOCUMENTS], more[OTHERS];
} documents;

/* The means of two methods over the first set, and of the second set. */
static void means(double *values, const int32_t *const *counts, const void *data)
{
    const documents *all = data;

    values[0] = values[1] = values[2] = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        values[0] += counts[0][d] * all->one[d] / DOCUMENTS;
        values[1] += counts[0][d] * all->other[d] / DOCUMENTS;
    }
    for (int d = 0; d < OTHERS; d++)
        values[2] += counts[1][d] * all->more[d] / OTHERS;
}

static documents *make_documents(void)
{
    bp_rng_key key = bp_rng_key_of(9, BP_RNG_TEST, 0, 0, 0);
    documents *all = bp_alloc("test.documents", 1, sizeof *all);

    for (int d = 0; d < DOCUMENTS; d++) {
        all->one[d] = 10 * bp_rng_normal(&key, (uint64_t)d);
        all->other[d] = all->one[d] + 1 + 0.1 * bp_rng_normal(&key, (uint64_t)(1000 + d));
    }
    for (int d = 0; d < OTHERS; d++)
        all->more[d] = bp_rng_uniform(&key, (uint64_t)(2000 + d));
    return all;
}

static const int64_t SIZES[2] = {DOCUMENTS, OTHERS};

static double *run(const documents *all, int threads)
{
    double *values = bp_alloc("test.values", BP_RESAMPLES * WIDTH, sizeof *values);
    bp_bootstrap spec = {
        .seed = 4, .resamples = BP_RESAMPLES, .groups = 2, .documents = SIZES, .width = WIDTH};
    int before = omp_get_max_threads();

    omp_set_num_threads(threads);
    bp_test_expect(bp_bootstrap_run(values, &spec, means, all), BP_OK);
    omp_set_num_threads(before);
    return values;
}

static void one_thread_heartbeats_for_each_of_its_resamples(void **state)
{
    documents *all = make_documents();
    bp_heartbeat before, after;

    (void)state;
    bp_heartbeat_read(&before);
    bp_free(run(all, 2));
    bp_heartbeat_read(&after);
    assert_int_equal(after.progress - before.progress, BP_RESAMPLES / 2);
    bp_free(all);
}

static void threads_make_no_difference(void **state)
{
    (void)state;
    documents *all = make_documents();
    double *one = run(all, 1), *three = run(all, 3);

    assert_memory_equal(one, three, BP_RESAMPLES * WIDTH * sizeof *one);
    bp_free(one);
    bp_free(three);
    bp_free(all);
}

/* Between documents the methods vary by 10, between methods by 0.1: pairs see the latter alone. The
 * deviation of a mean is s / sqrt(n); an interval is 2 * 1.96 of those, known to about 5 %. */
static void pairs_see_what_methods_differ_in(void **state)
{
    (void)state;
    documents *all = make_documents();
    double *values = run(all, 2);
    bp_interval one, difference, none;

    bp_test_expect(bp_interval_of(&one, values, BP_RESAMPLES, WIDTH, BP_PLAIN_PERCENTILES), BP_OK);
    bp_test_expect(bp_interval_of_difference(&difference, values + 1, values, BP_RESAMPLES, WIDTH,
                                             BP_PLAIN_PERCENTILES),
                   BP_OK);
    bp_test_expect(
        bp_interval_of_difference(&none, values, values, BP_RESAMPLES, WIDTH, BP_PLAIN_PERCENTILES),
        BP_OK);
    assert_true(fabs((one.high - one.low) / (2 * 1.96 * 10 / sqrt(DOCUMENTS)) - 1) < 0.2);
    assert_true(fabs((difference.high - difference.low) / (2 * 1.96 * 0.1 / sqrt(DOCUMENTS)) - 1) <
                0.2);
    assert_true(difference.low < 1 && difference.high > 1);
    assert_true(none.low == 0 && none.high == 0);
    bp_free(values);
    bp_free(all);
}

/* ---- one document ---- */

typedef struct few {
    int64_t count;
    double values[6]; /* NaN: the document has none */
} few;

/* The mean of what documents have; NaN where none of them is drawn. */
static void mean_of_few(double *values, const int32_t *const *counts, const void *data)
{
    const few *all = data;
    double sum = 0, n = 0;

    for (int64_t d = 0; d < all->count; d++) {
        if (isnan(all->values[d]))
            continue;
        sum += counts[0][d] * all->values[d];
        n += counts[0][d];
    }
    values[0] = sum / n;
}

static void expect_interval(const few *all, bool is_there)
{
    double values[BP_RESAMPLES];
    bp_bootstrap spec = {
        .seed = 1, .resamples = BP_RESAMPLES, .groups = 1, .documents = &all->count, .width = 1};
    bp_interval interval;

    bp_test_expect(bp_bootstrap_run(values, &spec, mean_of_few, all), BP_OK);
    bp_test_expect(bp_interval_of(&interval, values, BP_RESAMPLES, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_int_equal(!isnan(interval.low), is_there);
    assert_int_equal(!isnan(interval.high), is_there);
}

/* Others that have no value say nothing of a spread; two of one value do. */
static void what_rests_on_one_document_has_no_interval(void **state)
{
    (void)state;
    expect_interval(&(few){1, {2}}, false);
    expect_interval(&(few){2, {2, NAN}}, false);
    expect_interval(&(few){6, {NAN, NAN, NAN, NAN, 2, NAN}}, false);
    expect_interval(&(few){2, {2, 2}}, true);
    expect_interval(&(few){6, {NAN, 2, NAN, NAN, 2, NAN}}, true);
    expect_interval(&(few){6, {NAN, 2, NAN, NAN, 3, NAN}}, true);
}

/* ---- intervals ---- */

static void an_interval_is_of_percentiles(void **state)
{
    (void)state;
    double values[82];
    bp_interval interval;

    for (int i = 0; i < 81; i++)
        values[i] = (i * 37) % 81; /* 0 .. 80 in some order: 2.5 % of 80 steps are 2 */
    bp_test_expect(bp_interval_of(&interval, values, 81, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_true(interval.low == 2 && interval.high == 78);
    values[81] = 1000;
    bp_test_expect(bp_interval_of(&interval, values, 82, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_true(fabs(interval.low - 2.025) < 1e-12 && fabs(interval.high - 78.975) < 1e-12);
}

static void values_that_are_not_finite_are_left_out(void **state)
{
    (void)state;
    static const double values[6] = {NAN, 3, INFINITY, 1, -INFINITY, NAN};
    bp_interval interval;

    bp_test_expect(bp_interval_of(&interval, values, 6, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_true(fabs(interval.low - 1.05) < 1e-12 && fabs(interval.high - 2.95) < 1e-12);
    bp_test_expect(bp_interval_of(&interval, values, 3, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_true(isnan(interval.low) && isnan(interval.high));
    bp_test_expect(bp_interval_of(&interval, values, 0, 1, BP_PLAIN_PERCENTILES), BP_OK);
    assert_true(isnan(interval.low) && isnan(interval.high));
}

static void memory_that_is_short_is_reported(void **state)
{
    (void)state;
    static const int64_t many = INT64_MAX / 2;
    double value = 0;
    bp_interval interval;
    bp_bootstrap spec = {.resamples = 1, .groups = 1, .documents = &many, .width = 1};

    bp_test_expect(bp_interval_of(&interval, &value, INT64_MAX / 2, 1, BP_PLAIN_PERCENTILES),
                   BP_ERR_SYSTEM);
    assert_true(isnan(interval.low));
    bp_test_expect(bp_bootstrap_run(&value, &spec, means, NULL), BP_ERR_SYSTEM);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_the_draws),
        cmocka_unit_test(documents_are_drawn_equally_often),
        cmocka_unit_test(streams_and_seeds_draw_otherwise),
        cmocka_unit_test(one_thread_heartbeats_for_each_of_its_resamples),
        cmocka_unit_test(threads_make_no_difference),
        cmocka_unit_test(pairs_see_what_methods_differ_in),
        cmocka_unit_test(what_rests_on_one_document_has_no_interval),
        cmocka_unit_test(an_interval_is_of_percentiles),
        cmocka_unit_test(values_that_are_not_finite_are_left_out),
        cmocka_unit_test(memory_that_is_short_is_reported),
    };
    return BP_TEST_RUN(tests);
}
