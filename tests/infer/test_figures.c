/* Figures of a summary: hand-made sums, null rules, the bootstrap, labels over several corpora. */
#include "bp_test_mpi.h"

#include "base/process/heartbeat.h"
#include "base/rng.h"
#include "scoring_world.h"

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

static bool is_null(const json_t *object, const char *key)
{
    return json_is_null(json_object_get(object, key));
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) <= 1e-12 * fabs(want))
        return;
    print_error("%.17g is not %.17g\n", got, want);
    fail();
}

/* Three tokens of 1, 2 and 4 nats, 2 words, 14 bytes. */
static bp_score_sums three_tokens(void)
{
    return (bp_score_sums){.documents = 2,
                           .tokens = 3,
                           .nll = bp_fixed_of(7),
                           .square = bp_fixed_of(1 + 4 + 16),
                           .bytes = 14,
                           .words = 2,
                           .words_split = 4};
}

static void figures_are_those_of_the_definitions(void **state)
{
    (void)state;
    bp_score_sums sums = three_tokens();
    json_t *figures = bp_score_figures(&sums, 0.25);

    assert_int_equal(json_integer_value(json_object_get(figures, "documents")), 2);
    assert_int_equal(json_integer_value(json_object_get(figures, "tokens")), 3);
    assert_int_equal(json_integer_value(json_object_get(figures, "bytes")), 14);
    assert_int_equal(json_integer_value(json_object_get(figures, "words")), 2);
    assert_int_equal(json_integer_value(json_object_get(figures, "words_split")), 4);
    assert_near(real_of(figures, "nll_nats"), 7);
    assert_near(real_of(figures, "perplexity"), exp(7 / 3.0));
    /* llama.cpp: nll2 / n - nll^2 = 7 - 49/9 = 14/9, sqrt(14/9 / 2) * ppl */
    assert_near(real_of(figures, "perplexity_stderr"), sqrt(14 / 9.0 / 2) * exp(7 / 3.0));
    assert_near(real_of(figures, "perplexity_stderr_documents"), 0.25);
    assert_near(real_of(figures, "bits_per_byte"), 0.5 / log(2));
    assert_near(real_of(figures, "byte_perplexity"), exp(0.5));
    assert_near(exp2(real_of(figures, "bits_per_byte")), real_of(figures, "byte_perplexity"));
    assert_near(real_of(figures, "word_perplexity"), exp(3.5));
    json_decref(figures);
}

static void check_nulls(const bp_score_sums *sums, bool bytes, bool words, bool split)
{
    json_t *figures = bp_score_figures(sums, NAN);

    assert_true(is_null(figures, "perplexity_stderr_documents"));
    assert_int_equal(is_null(figures, "bytes"), bytes);
    assert_int_equal(is_null(figures, "bits_per_byte"), bytes);
    assert_int_equal(is_null(figures, "byte_perplexity"), bytes);
    assert_int_equal(is_null(figures, "words"), words);
    assert_int_equal(is_null(figures, "word_perplexity"), words);
    assert_int_equal(is_null(figures, "words_split"), split);
    json_decref(figures);
}

static void what_is_not_known_is_null(void **state)
{
    (void)state;
    bp_score_sums sums = three_tokens();

    check_nulls(&sums, false, false, false);
    sums.no_bytes = true;
    check_nulls(&sums, true, false, false);
    sums.no_words = true;
    check_nulls(&sums, true, true, false);
    sums = three_tokens();
    sums.unscored =
        1; /* a text token was not scored: the text's bytes and words are not what was measured */
    check_nulls(&sums, true, true, true);
}

static void nothing_scored_has_no_perplexity(void **state)
{
    (void)state;
    bp_score_sums sums = {0};
    json_t *figures = bp_score_figures(&sums, NAN);

    assert_near(real_of(figures, "nll_nats"), 0);
    assert_true(is_null(figures, "perplexity"));
    assert_true(is_null(figures, "perplexity_stderr"));
    assert_true(is_null(figures, "bits_per_byte"));
    json_decref(figures);
}

static void sums_have_no_order(void **state)
{
    (void)state;
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    bp_fixed up = 0, down = 0;

    for (int i = 0; i < 10000; i++)
        up += bp_fixed_of((double)(float)(20 * bp_rng_uniform(&key, (uint64_t)i)));
    for (int i = 9999; i >= 0; i--)
        down += bp_fixed_of((double)(float)(20 * bp_rng_uniform(&key, (uint64_t)i)));
    assert_true(up == down);
    /* float32 of 2^-16 and more are multiples of 2^-40: nothing is rounded */
    assert_true(bp_fixed_real(bp_fixed_of(0x1.fffffep-16)) == 0x1.fffffep-16);
    assert_true(bp_fixed_real(bp_fixed_of(1e9)) == 1e9);
}

static double deviation(const bp_score_draw *draws, int64_t n, uint64_t seed)
{
    double out;

    bp_test_expect(bp_score_bootstrap(&out, draws, n, seed, NULL), BP_OK);
    return out;
}

/* Documents of one token: perplexity = exp(mean), so by the delta method its error is exp(mean) s /
 * sqrt(n). */
static void bootstrap_agrees_with_the_delta_method(void **state)
{
    (void)state;
    enum { N = 400 };
    bp_rng_key key = bp_rng_key_of(2, BP_RNG_TEST, 0, 0, 0);
    bp_score_draw draws[N];
    double mean = 0, variance = 0;

    for (int i = 0; i < N; i++) {
        draws[i] = (bp_score_draw){.nll = 3 + 0.5 * bp_rng_normal(&key, (uint64_t)i), .tokens = 1};
        mean += draws[i].nll / N;
    }
    for (int i = 0; i < N; i++)
        variance += (draws[i].nll - mean) * (draws[i].nll - mean) / N;
    double want = exp(mean) * sqrt(variance / N), got = deviation(draws, N, 1);
    /* 1,000 resamples know a deviation to 1 / sqrt(2000) = 2.2 %; four of those */
    assert_true(fabs(got / want - 1) < 0.09);
    assert_true(deviation(draws, N, 1) == got);
    assert_true(deviation(draws, N, 2) != got);
}

static void bootstrap_heartbeats_while_it_lasts(void **state)
{
    (void)state;
    bp_score_draw draws[2] = {{.nll = 1, .tokens = 2}, {.nll = 2, .tokens = 2}};
    bp_heartbeat before, after;

    bp_heartbeat_read(&before);
    (void)deviation(draws, 2, 1);
    bp_heartbeat_read(&after);
    assert_true(after.progress > before.progress);
}

static void bootstrap_of_one_document_is_not_defined(void **state)
{
    (void)state;
    bp_score_draw draws[3] = {
        {.nll = 1, .tokens = 2}, {.nll = 2, .tokens = 2}, {.nll = 0, .tokens = 0}};

    assert_true(isnan(deviation(draws, 0, 1)));
    assert_true(isnan(deviation(draws, 1, 1)));
    assert_true(isnan(deviation(draws + 2, 1, 1)));
    draws[0] = draws[1] = draws[2];
    assert_true(isnan(deviation(draws, 3, 1))); /* documents without tokens */
    draws[0] = (bp_score_draw){.nll = 1, .tokens = 2};
    draws[1] = (bp_score_draw){.nll = 2, .tokens = 2};
    assert_true(deviation(draws, 2, 1) > 0);
    assert_true(deviation(draws, 3, 1) > 0); /* resamples of empty documents alone are left out */
}

/* ---- a summary over two corpora ---- */

static json_t *summary_of(const char *dir)
{
    char path[PATH_MAX];
    json_t *summary;

    snprintf(path, sizeof(path), "%s/score/summary.json", dir);
    bp_test_expect(bp_json_load(&summary, path, 1 << 20), BP_OK);
    return summary;
}

static void groups_add_up_to_the_whole(void **state)
{
    (void)state;
    static const toy_corpus one = {
        .documents = 10, .length = 100, .vocab_size = 500, .eod_id = 499};
    static const toy_corpus two = {
        .documents = 2, .length = 30, .vocab_size = 500, .eod_id = 499, .salt = 4};
    static const char *const kinds[3] = {"x", "y", "z"};
    char list[2 * PATH_MAX];
    double by_kind = 0;

    snprintf(list, sizeof(list), "%s,%s", toy_write(&one, "one.two.h5"), toy_write(&two, "two.h5"));
    bp_test_expect(
        job_run(MPI_COMM_SELF, &one_rank, &world_model, bp_test_path("groups"), list, ""), BP_OK);
    json_t *all = summary_of(bp_test_path("groups"));
    const json_t *corpora = json_object_get(all, "corpora");
    const json_t *values = json_object_get(json_object_get(all, "labels"), "kind");
    const json_t *first = json_object_get(corpora, "one.two"),
                 *second = json_object_get(corpora, "two");

    assert_int_equal(json_object_size(corpora), 2);
    assert_int_equal(json_object_size(values), 3);
    assert_int_equal(json_integer_value(json_object_get(all, "tokens")), 1060);
    assert_int_equal(json_integer_value(json_object_get(first, "tokens")), 1000);
    assert_int_equal(json_integer_value(json_object_get(second, "tokens")), 60);
    assert_int_equal(json_integer_value(json_object_get(second, "bytes")), 4 * 60 + 1);
    assert_int_equal(json_integer_value(json_object_get(second, "words_split")), 62);
    assert_near(real_of(first, "nll_nats") + real_of(second, "nll_nats"), real_of(all, "nll_nats"));
    /* values of one name in both corpora are one group: x is documents 0 3 6 9 and 0, y 1 4 7 and 1
     */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(values, "x"), "documents")),
                     5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(values, "y"), "documents")),
                     4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(values, "z"), "documents")),
                     3);
    for (int k = 0; k < 3; k++)
        by_kind += real_of(json_object_get(values, kinds[k]), "nll_nats");
    assert_near(by_kind, real_of(all, "nll_nats"));
    json_decref(all);
}

static void keys_stand_in_the_order_of_the_contract(void **state)
{
    (void)state;
    static const char *const keys[] = {"documents",
                                       "tokens",
                                       "bytes",
                                       "words",
                                       "nll_nats",
                                       "perplexity",
                                       "perplexity_stderr",
                                       "perplexity_stderr_documents",
                                       "bits_per_byte",
                                       "byte_perplexity",
                                       "word_perplexity",
                                       "words_split",
                                       "convention",
                                       "model",
                                       "corpora",
                                       "labels"};
    static const char *const convention[] = {"name", "context", "stride",        "prefix",
                                             "end",  "words",   "tokenizer_hash"};
    static const toy_corpus one = {.documents = 2, .length = 9, .vocab_size = 500, .eod_id = 499};
    const char *key;
    const json_t *value;
    size_t at = 0;

    bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &world_model, bp_test_path("keys"),
                           toy_write(&one, "keys.h5"), "score.convention=stride"),
                   BP_OK);
    json_t *all = summary_of(bp_test_path("keys"));
    json_object_foreach(all, key, value) assert_string_equal(key, keys[at++]);
    assert_int_equal(at, sizeof(keys) / sizeof(keys[0]));
    at = 0;
    json_object_foreach(json_object_get(all, "convention"), key, value)
        assert_string_equal(key, convention[at++]);
    assert_int_equal(at, sizeof(convention) / sizeof(convention[0]));
    value = json_object_get(all, "convention");
    assert_string_equal(json_string_value(json_object_get(value, "name")), "stride");
    assert_int_equal(json_integer_value(json_object_get(value, "stride")), 32);
    assert_string_equal(json_string_value(json_object_get(value, "prefix")), "none");
    assert_string_equal(json_string_value(json_object_get(value, "tokenizer_hash")), TOY_HASH_A);
    value = json_object_get(all, "model");
    assert_string_equal(json_string_value(json_object_get(value, "digest")), "d1");
    assert_int_equal(json_integer_value(json_object_get(value, "step")), 12);
    json_decref(all);
}

static void names_lose_folder_and_last_suffix(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"/a/b/c.h5", "c"}, {"c.x.h5", "c.x"}, {"a.b/c", "c"}, {".h5", ".h5"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char *name = bp_score_corpus_name(pairs[i][0]);

        assert_string_equal(name, pairs[i][1]);
        bp_free(name);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_the_definitions),
        cmocka_unit_test(what_is_not_known_is_null),
        cmocka_unit_test(nothing_scored_has_no_perplexity),
        cmocka_unit_test(sums_have_no_order),
        cmocka_unit_test(bootstrap_agrees_with_the_delta_method),
        cmocka_unit_test(bootstrap_heartbeats_while_it_lasts),
        cmocka_unit_test(bootstrap_of_one_document_is_not_defined),
        cmocka_unit_test(groups_add_up_to_the_whole),
        cmocka_unit_test(keys_stand_in_the_order_of_the_contract),
        cmocka_unit_test(names_lose_folder_and_last_suffix),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
