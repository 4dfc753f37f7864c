/* What a bench makes of its measurements: statistics, FLOPs, names of models. */
#include "bp_test.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "bench/bench_priv.h"
#include "statistics/resample.h"

#include <math.h>
#include <string.h>

static void quantiles_are_those_of_numpy(void **state)
{
    (void)state;
    const double sorted[] = {1, 2, 4, 8};

    assert_float_equal(bp_quantile(sorted, 4, 0), 1, 0);
    assert_float_equal(bp_quantile(sorted, 4, 1), 8, 0);
    assert_float_equal(bp_quantile(sorted, 4, 0.5), 3, 1e-12);
    assert_float_equal(bp_quantile(sorted, 4, 0.9), 6.8, 1e-12); /* numpy.quantile(x, 0.9) */
    assert_float_equal(bp_quantile(sorted, 1, 0.3), 1, 0);
}

static void spread_is_the_middle_and_eight_in_ten(void **state)
{
    (void)state;
    double values[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 10, 0};
    bp_spread spread = bp_spread_of(values, 11);

    assert_float_equal(spread.median, 5, 1e-12);
    assert_float_equal(spread.low, 1, 1e-12);
    assert_float_equal(spread.high, 9, 1e-12);
    assert_int_equal(spread.repeats, 11);
    assert_int_equal(bp_spread_of(values, 0).repeats, 0);
}

static void what_was_slow_is_low_as_a_rate(void **state)
{
    (void)state;
    bp_spread seconds = {.median = 2, .low = 1, .high = 4, .repeats = 7}, none = {0};
    bp_spread rate = bp_spread_rate(&seconds, 8);

    assert_float_equal(rate.median, 4, 0);
    assert_float_equal(rate.low, 2, 0);
    assert_float_equal(rate.high, 8, 0);
    assert_int_equal(rate.repeats, 7);
    assert_int_equal(bp_spread_rate(&none, 8).repeats, 0);
}

/* By hand, of L 12, C 768, T 1,024, V 50,257: 12LC^2 = 84,934,656, VC = 38,597,376 and
 * 12LTC = 113,246,208. */
static void flops_of_gpt2_are_those_counted_by_hand(void **state)
{
    (void)state;
    const bp_model_shape *shape = &bp_bench_model_at(3)->shape;

    assert_string_equal(bp_bench_model_at(3)->name, "gpt2");
    assert_float_equal(bp_model_train_flops(shape), 6.0 * (84934656 + 38597376) + 113246208, 0.5);
    assert_float_equal(bp_bench_score_flops(shape), 284812800, 0.5);
    assert_float_equal(bp_bench_form_flops(shape, 1), 2.0 * (84934656 + 38597376), 0.5);
}

static void models_are_named_by_a_list(void **state)
{
    (void)state;
    bool named[BP_BENCH_MODELS];
    const char *wrong = NULL;

    assert_true(bp_bench_models_named("gpt2,small", named, &wrong));
    assert_true(!named[0] && named[1] && !named[2] && named[3]);
    assert_true(bp_bench_models_named(" none ", named, &wrong));
    assert_false(named[0] || named[1] || named[2] || named[3]);
    assert_false(bp_bench_models_named("small, smal", named, &wrong));
    assert_string_equal(wrong, "smal");
}

static void made_up_tokens_stay_in_the_vocabulary(void **state)
{
    (void)state;
    assert_int_equal(bp_bench_token(0, 26), 0);
    assert_int_equal(bp_bench_token(1 - 1e-16, 26), 25);
    for (int k = 0; k < 1000; k++)
        assert_in_range(bp_bench_token(k / 1000.0, 8000), 0, 7999);
}

static void model_that_does_not_fit_is_left_out_with_the_reason(void **state)
{
    (void)state;
    bench self = {.mesh_shape = {.pipeline = 1, .data = 1, .tensor = 1},
                  .rank_bytes = 2147483648.0};
    const bp_model_shape *gpt2 = &bp_bench_model_at(3)->shape;
    bp_engine_spec spec = {.batch = 6, .micro_batch = 1, .schedule = BP_1F1B, .chunks = 4};
    char why[160];

    bench_check_fit(&self, &spec, gpt2, 2e9, why, sizeof why);
    assert_string_equal(why, "");
    bench_check_fit(&self, &spec, gpt2, 3221225472.0, why, sizeof why);
    assert_string_equal(why, "it takes 3.0 GiB on each rank, and there are 2.0 GiB");
    self.mesh_shape.tensor = 5;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_non_null(strstr(why, "mesh.tensor = 5"));
    self.mesh_shape.tensor = 3;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_string_equal(why, "");
    spec.sequence_parallel = BP_SEQUENCE_PARALLEL_YES;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_non_null(strstr(why, "1 x 1024 rows do not divide among mesh.tensor = 3"));
    self.mesh_shape = (bp_mesh_shape){.pipeline = 15, .data = 1, .tensor = 1};
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_non_null(strstr(why, "14 blocks"));
    self.mesh_shape.pipeline = 4;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_string_equal(why, "");
    spec.schedule = BP_INTERLEAVED;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_non_null(strstr(why, "mesh.pipeline = 4 x mesh.chunks = 4"));
    spec.chunks = 2;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_non_null(strstr(why, "bench.micro_batches = 6 is not a multiple of mesh.pipeline = 4"));
    self.mesh_shape.pipeline = 3;
    bench_check_fit(&self, &spec, gpt2, 0, why, sizeof why);
    assert_string_equal(why, "");
}

/* ---- the table ---- */

static json_t *figure_of(double value, double high)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:i, s:f, s:{s:f}, s:{s:f}}", "unit", "tokens/s",
                     "median", value, "low", value, "high", high, "repeats", 3, "mfu", 0.5,
                     "slowest", "median", value, "one", "median", value);
}

/* The rows of bench_print, without the time that the file has before each. */
static char *rows_of(json_t *result)
{
    const char *path = bp_test_path("bench.log");
    char *text = NULL, *rows = bp_strdup("");
    size_t bytes;

    bp_test_expect(bp_log_open(path), BP_OK);
    bench_print(result);
    bp_log_close();
    bp_test_expect(bp_file_read(path, 1 << 16, &text, &bytes), BP_OK);
    assert_non_null(strstr(text, "ranks "));
    size_t time_bytes = (size_t)(strstr(text, "ranks ") - text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *more = bp_sprintf("%s%s\n", rows, line + time_bytes);

        assert_in_range(strlen(line) - time_bytes, 1, 80);
        bp_free(rows);
        rows = more;
    }
    bp_free(text);
    json_decref(result);
    return rows;
}

static void numbers_have_four_characters_when_rounded(void **state)
{
    static const struct {
        double value;
        const char *text;
    } CASES[] = {{9.994e3, " 9.99 ktokens/s "}, {9.996e3, " 10.0 ktokens/s "},
                 {99.94e3, " 99.9 ktokens/s "}, {99.96e3, " 100 ktokens/s "},
                 {999.4e3, " 999 ktokens/s "},  {999.6e3, " 1.00 Mtokens/s "},
                 {1e18, " 1000 Ptokens/s "},    {0.5, " 0.50 tokens/s "}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        json_t *result = json_pack("{s:{s:o}}", "models", "gpt2",
                                   figure_of(CASES[k].value, 1.5 * CASES[k].value));
        char *rows = rows_of(result);

        assert_non_null(strstr(rows, CASES[k].text));
        assert_non_null(strstr(rows, " 25 % "));
        bp_free(rows);
    }
}

/* Of repeats that differ very much, and of a host with a long name. */
static void rows_fit_80_columns(void **state)
{
    json_t *link = json_pack("{s:i, s:f, s:i, s:s, s:{s:f, s:f, s:f, s:i}}", "bytes", 1 << 20,
                             "bytes_per_second", 9.996e9, "slowest_rank", 12345, "slowest_host",
                             "a-host-with-a-long-name", "seconds", "median", 1e-6, "low", 1e-6,
                             "high", 1.0, "repeats", 9);
    char *rows = rows_of(json_pack("{s:{s:o}, s:{s:[o]}}", "models", "gpt2",
                                   figure_of(9.996e3, 9.996e5), "exchange", "all_sum", link));

    (void)state;
    assert_non_null(strstr(rows, " >999% "));
    assert_non_null(strstr(rows, "all_sum 1 MiB"));
    assert_non_null(strstr(rows, "  rank 12345 on a-host-"));
    bp_free(rows);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_numpy),
        cmocka_unit_test(spread_is_the_middle_and_eight_in_ten),
        cmocka_unit_test(what_was_slow_is_low_as_a_rate),
        cmocka_unit_test(flops_of_gpt2_are_those_counted_by_hand),
        cmocka_unit_test(models_are_named_by_a_list),
        cmocka_unit_test(made_up_tokens_stay_in_the_vocabulary),
        cmocka_unit_test(model_that_does_not_fit_is_left_out_with_the_reason),
        cmocka_unit_test(numbers_have_four_characters_when_rounded),
        cmocka_unit_test(rows_fit_80_columns),
    };
    return BP_TEST_RUN(tests);
}
