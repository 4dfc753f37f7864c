/* Resamples: what is drawn, pairs, threads, percentile intervals. */
#include "bp_test.h"

#include "base/process/heartbeat.h"
#include "statistics/resample.h"

#include <math.h>
#include <omp.h>

/* Half k of a block of the generator. */
static uint64_t plain_word(const bp_rng_key *key, uint64_t block, uint64_t k)
{
    uint32_t words[4];

    bp_rng_block(words, key, block);
    return (uint64_t)words[2 * k + 1] << 32 | words[2 * k];
}

typedef struct bits {
    const bp_rng_key *key;
    uint64_t next; /* word of the splits */
} bits;

/* A binary fraction of random bits is below p: digit by digit, as the numbers are defined. */
static int64_t plain_trials(bits *from, int64_t trials, uint64_t p)
{
    int64_t happened = 0;

    for (; trials > 0; trials -= 64) {
        int64_t now = trials < 64 ? trials : 64, open = now;
        int verdict[64];

        for (int64_t i = 0; i < now; i++)
            verdict[i] = -1;
        for (int digit = 63; open > 0 && digit >= 0 && (p << (63 - digit)) != 0; digit--) {
            uint64_t word =
                plain_word(from->key, (UINT64_C(1) << 63) + from->next / 2, from->next % 2);

            from->next++;
            for (int64_t i = 0; i < now; i++)
                if (verdict[i] < 0 && (word >> i & 1) != (p >> digit & 1)) {
                    verdict[i] = (int)(p >> digit & 1);
                    open--;
                }
        }
        for (int64_t i = 0; i < now; i++)
            happened += verdict[i] == 1;
    }
    return happened;
}

static void plain_counts(int32_t *counts, bits *from, int64_t first, int64_t end, int64_t trials)
{
    int64_t half = BP_RESAMPLE_BLOCK, n = end - first;

    if (n > BP_RESAMPLE_BLOCK) {
        while (2 * half < n)
            half *= 2;
        int64_t left = plain_trials(
            from, trials, (uint64_t)(((unsigned __int128)half << 64) / (unsigned __int128)n));

        plain_counts(counts, from, first, first + half, left);
        plain_counts(counts, from, first + half, end, trials - left);
        return;
    }
    for (int64_t i = 0; i < trials; i++) {
        uint64_t at = (uint64_t)(n < BP_RESAMPLE_BLOCK ? i : i / 5);
        uint64_t word = plain_word(from->key, (uint64_t)first + at / 2, at % 2);

        counts[first + (n < BP_RESAMPLE_BLOCK
                            ? (int64_t)(((unsigned __int128)word * (uint64_t)n) >> 64)
                            : (int64_t)(word >> 12 * (i % 5) & (BP_RESAMPLE_BLOCK - 1)))]++;
    }
}

static void counts_are_those_of_the_draws(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1,    2,    3,    511,   512,   513,  1025,
                                    4095, 4096, 4097, 12288, 20000, 32768};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s], sum = 0;
        bp_rng_key key = bp_resample_key(5, 17, 2);
        bits from = {&key, 0};
        int32_t *counts = bp_alloc("test.counts", n, sizeof *counts);
        int32_t *want = bp_alloc("test.counts", n, sizeof *want);

        plain_counts(want, &from, 0, n, n);
        bp_resample_counts(counts, n, &key);
        assert_memory_equal(counts, want, (size_t)n * sizeof *counts);
        for (int64_t d = 0; d < n; d++)
            sum += counts[d];
        assert_int_equal(sum, n);
        bp_free(want);
        bp_free(counts);
    }
}

/* Blocks of n documents have multinomial numbers of draws: variances n p (1 - p), covariances
 * -n p q, each known to 4.5 % from 1,000 resamples; five of those. */
static void blocks_have_multinomial_numbers(void **state)
{
    (void)state;
    enum { N = 3 * BP_RESAMPLE_BLOCK + 1000, BLOCKS = 4 };
    double mean[BLOCKS] = {0}, product[BLOCKS][BLOCKS] = {{0}};

    for (int64_t r = 0; r < BP_RESAMPLES; r++) {
        bp_rng_key key = bp_resample_key(8, r, 0);
        int32_t draws[BLOCKS];

        bp_resample_split(draws, N, &key);
        for (int i = 0; i < BLOCKS; i++) {
            mean[i] += draws[i];
            for (int j = 0; j < BLOCKS; j++)
                product[i][j] += (double)draws[i] * draws[j];
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        double p = (i < 3 ? BP_RESAMPLE_BLOCK : 1000.0) / N;

        mean[i] /= BP_RESAMPLES;
        assert_true(fabs(mean[i] - N * p) < 5 * sqrt(N * p * (1 - p) / BP_RESAMPLES));
        for (int j = 0; j <= i; j++) {
            double q = (j < 3 ? BP_RESAMPLE_BLOCK : 1000.0) / N;
            double got = product[i][j] / BP_RESAMPLES - mean[i] * mean[j];
            double want = i == j ? N * p * (1 - p) : -N * p * q;

            assert_true(fabs(got - want) < 0.225 * N * sqrt(p * (1 - p) * q * (1 - q)));
        }
    }
}

/* ---- sums ---- */

static void put_ratio(double *values, const double *sums, const void *data)
{
    (void)data;
    values[0] = sums[0] / sums[1];
    values[1] = sums[2];
}

/* By columns, blocks and threads as by counts of whole resamples; a column with a NaN has none. */
static void sums_are_those_of_the_counts(void **state)
{
    (void)state;
    enum { N = 2 * BP_RESAMPLE_BLOCK + 77, RESAMPLES = 40 };
    const int64_t n = N;
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    double *columns[3], values[3][RESAMPLES][2];
    const bp_bootstrap spec = {
        .seed = 6, .resamples = RESAMPLES, .groups = 1, .documents = &n, .width = 2};
    int32_t *counts = bp_alloc("test.counts", N, sizeof *counts);
    int before = omp_get_max_threads();

    for (int c = 0; c < 3; c++) {
        columns[c] = bp_alloc("test.columns", N, sizeof *columns[c]);
        for (int d = 0; d < N; d++)
            columns[c][d] = c == 1 ? 1 + d % 5 : bp_rng_uniform(&key, (uint64_t)(c * N + d));
    }
    columns[2][BP_RESAMPLE_BLOCK] = NAN;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        bp_test_expect(bp_bootstrap_of_sums(&values[threads - 1][0][0], &spec,
                                            (const double *const *)columns, 3, put_ratio, NULL),
                       BP_OK);
    }
    omp_set_num_threads(before);
    for (int64_t r = 0; r < RESAMPLES; r++) {
        bp_rng_key drawn = bp_resample_key(6, r, 0);
        double above = 0, below = 0;

        bp_resample_counts(counts, N, &drawn);
        for (int d = 0; d < N; d++) {
            above += counts[d] * columns[0][d];
            below += counts[d] * columns[1][d];
        }
        assert_true(fabs(values[0][r][0] - above / below) < 1e-12);
        assert_true(values[0][r][0] == values[1][r][0] && values[0][r][0] == values[2][r][0]);
        assert_true(isnan(values[0][r][1]));
    }
    bp_free(counts);
    for (int c = 0; c < 3; c++)
        bp_free(columns[c]);
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
        cmocka_unit_test(blocks_have_multinomial_numbers),
        cmocka_unit_test(sums_are_those_of_the_counts),
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
