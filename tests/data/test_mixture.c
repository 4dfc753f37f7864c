/* Corpora with weights against plain loops. */
#include "bp_test.h"
#include "read_windows.h"

#include "data/loader.h"
#include "data/mixture_priv.h"
#include "plain_epoch.h"
#include "toy_corpus.h"

#include <math.h>

#define FILES 3

/* ---- corpus.weights ---- */

static void weights_are_numbers_with_commas(void **state)
{
    static const char *const good[] = {"1", "1,2", " 0.25 , 3e-1,0", "1e6,+2,.5"};
    static const char *const bad[] = {"",    ",",   "1,",     "1,,2",         "1;2", "a",
                                      "1 2", "-1",  "2,-0.5", "nan",          "inf", "1,0x10",
                                      "0",   "0,0", "1e400",  "1,2e308,2e308"};
    static const int64_t counts[] = {1, 2, 3, 3};
    double *weights;
    int64_t count;

    for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++) {
        bp_test_expect(bp_corpus_weights(&weights, &count, good[k]), BP_OK);
        assert_int_equal(count, counts[k]);
        if (k == 2) {
            char *text = bp_corpus_weights_text(weights, count);

            assert_true(weights[0] == 0.25 && weights[1] == 0.3 && weights[2] == 0);
            assert_string_equal(text, "0.25,0.3,0");
            bp_free(text);
        }
        bp_free(weights);
    }
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        bp_test_expect(bp_corpus_weights(&weights, &count, bad[k]), BP_ERR_CONFIG);
        bp_test_message_has("corpus.weights");
        assert_null(weights);
    }
}

/* ---- the cycle ---- */

/* Entries one after another, without a cycle: of the corpus that lags behind its share the most.
 * In whole numbers: a share is count / cycle. */
static int64_t plain_next(const int64_t *count, int64_t corpora, int64_t n, const int64_t *taken)
{
    int64_t best = -1;

    for (int64_t k = 0; k < corpora; k++) {
        int64_t lacks = (n + 1) * count[k] - BP_MIXTURE_CYCLE * taken[k];

        if (count[k] > 0 &&
            (best < 0 || lacks > (n + 1) * count[best] - BP_MIXTURE_CYCLE * taken[best]))
            best = k;
    }
    return best;
}

static void entries_are_those_of_the_plain_loop(void **state)
{
    static const double weights[][4] = {{1, 1, 0, 0}, {5, 3, 1, 0.5},       {1, 1e-9, 0, 2},
                                        {1, 1, 1, 1}, {0.2, 0.3, 0.1, 0.4}, {0, 0, 7, 0}};

    for (size_t w = 0; w < sizeof(weights) / sizeof(weights[0]); w++) {
        int64_t taken[4] = {0}, sum = 0;
        double total = weights[w][0] + weights[w][1] + weights[w][2] + weights[w][3];
        bp_mixture mixture;

        bp_mixture_init(&mixture, weights[w], 4);
        for (int k = 0; k < 4; k++) {
            double quota = weights[w][k] / total * BP_MIXTURE_CYCLE;

            sum += mixture.count[k];
            assert_true(fabs((double)mixture.count[k] - quota) < 1 + (quota > 0 && quota < 1));
            assert_true((mixture.count[k] > 0) == (weights[w][k] > 0));
        }
        assert_int_equal(sum, BP_MIXTURE_CYCLE);
        for (int64_t n = 0; n < 3 * BP_MIXTURE_CYCLE; n++) {
            int64_t corpus, use, want = plain_next(mixture.count, 4, n, taken);

            bp_mixture_find(&mixture, n, &corpus, &use);
            assert_int_equal(corpus, want);
            assert_int_equal(use, taken[want]);
            taken[want]++;
            for (int k = 0; k < 4; k++) { /* never an entry too many, nor two too few */
                double lacks =
                    (double)((n + 1) * mixture.count[k]) / BP_MIXTURE_CYCLE - (double)taken[k];
                assert_true(lacks > -1 && lacks < 2);
            }
        }
        bp_mixture_clear(&mixture);
    }
}

static void largest_remainders_and_one_for_the_smallest(void **state)
{
    static const double thirds[] = {1, 1, 1}, tiny[] = {1, 1e-12, 1e-12, 1e-12};
    bp_mixture mixture;

    bp_mixture_init(&mixture, thirds, 3); /* 21845 1/3 each: the first one */
    assert_int_equal(mixture.count[0], 21846);
    assert_int_equal(mixture.count[1], 21845);
    assert_int_equal(mixture.count[2], 21845);
    bp_mixture_clear(&mixture);
    bp_mixture_init(&mixture, tiny, 4);
    assert_int_equal(mixture.count[0], 65533);
    for (int k = 1; k < 4; k++)
        assert_int_equal(mixture.count[k], 1);
    bp_mixture_clear(&mixture);
}

/* ---- loader ---- */

typedef struct world {
    toy_corpus toys[FILES];
    bp_corpus *corpus;
    bp_stream *stream;
    int32_t *tokens[FILES]; /* of each file's stream, by plain loops */
    int64_t windows[FILES];
    int64_t counts[FILES]; /* entries of a cycle */
    int64_t context, batch;
    const double *weights;
} world;

/* The documents of each file in passes, drawn over all files. */
static int32_t *plain_file_bag(const world *w, int file, uint64_t seed, int64_t member,
                               int64_t *count)
{
    const toy_corpus *toy = &w->toys[file];
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_BAG, member, 0, 0);
    int64_t all = 0, before = 0, most = 0;
    int32_t *tokens;

    for (int k = 0; k < FILES; k++) {
        before += k < file ? w->toys[k].documents : 0;
        all += w->toys[k].documents;
    }
    int64_t *drawn = bp_alloc("test", all, sizeof(*drawn));
    for (int64_t i = 0; i < all; i++)
        drawn[bp_rng_below(&key, (uint64_t)i, all)]++;
    *count = 0;
    for (int64_t d = 0; d < toy->documents; d++) {
        *count += drawn[before + d] * (toy_length(toy, d) + 1);
        most = drawn[before + d] > most ? drawn[before + d] : most;
    }
    tokens = bp_alloc("test", *count, sizeof(*tokens));
    int64_t at = 0;
    for (int64_t pass = 1; pass <= most; pass++) {
        for (int64_t d = 0; d < toy->documents; d++) {
            for (int64_t k = 0; drawn[before + d] >= pass && k <= toy_length(toy, d); k++)
                tokens[at++] = toy_token(toy, d, k);
        }
    }
    assert_int_equal(at, *count);
    bp_free(drawn);
    return tokens;
}

static world make_world(const char *name, const double *weights, bool bag)
{
    static const int64_t documents[FILES] = {500, 40, 3000};
    world w = {.context = 100, .batch = 8, .weights = weights};
    bp_stream_spec spec = {.bag = bag, .seed = 5, .member = 2, .weights = weights};
    char list[4096] = "";
    bp_mixture mixture;

    for (int k = 0; k < FILES; k++) {
        char file[64];

        w.toys[k] = (toy_corpus){.documents = documents[k],
                                 .length = k == 0 ? 800 : 30, /* 7 blocks: more than a buffer */
                                 .vocab_size = 60000,
                                 .eod_id = 59999,
                                 .salt = k};
        snprintf(file, sizeof(file), "%s%d.h5", name, k);
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", k > 0 ? "," : "",
                 toy_write(&w.toys[k], file));
    }
    bp_test_expect(bp_corpus_open(&w.corpus, list), BP_OK);
    spec.corpus = w.corpus;
    bp_test_expect(bp_stream_new(&w.stream, &spec), BP_OK);
    bp_mixture_init(&mixture, weights, FILES);
    for (int k = 0; k < FILES; k++) {
        int64_t count, first, tokens;

        w.tokens[k] = bag ? plain_file_bag(&w, k, 5, 2, &count) : toy_stream(&w.toys[k], &count);
        bp_stream_file(w.stream, k, &first, &tokens);
        assert_int_equal(tokens, count);
        w.windows[k] = (count - 1) / w.context;
        w.counts[k] = mixture.count[k];
    }
    bp_mixture_clear(&mixture);
    return w;
}

static void end_world(world *w)
{
    for (int k = 0; k < FILES; k++)
        bp_free(w->tokens[k]);
    bp_stream_free(&w->stream);
    bp_corpus_close(&w->corpus);
}

/* All windows of steps 1 to `steps`, entry after entry: [steps][batch][T+1]. */
static int32_t *plain_steps(const world *w, int64_t steps)
{
    int64_t taken[FILES] = {0}, epoch_at[FILES], *list[FILES] = {NULL}, window = w->context + 1;
    int32_t *out = bp_alloc("test", steps * w->batch * window, sizeof(*out));

    for (int64_t n = 0; n < steps * w->batch; n++) {
        int64_t k = plain_next(w->counts, FILES, n, taken);
        int64_t epoch = taken[k] / w->windows[k], entry = taken[k] % w->windows[k];

        if (!list[k] || epoch != epoch_at[k]) {
            bp_free(list[k]);
            list[k] = plain_epoch(w->windows[k], w->context, k, epoch);
            epoch_at[k] = epoch;
        }
        memcpy(out + n * window, w->tokens[k] + list[k][entry] * w->context,
               (size_t)window * sizeof(*out));
        taken[k]++;
    }
    for (int k = 0; k < FILES; k++)
        bp_free(list[k]);
    return out;
}

static bp_loader *make_loader(const world *w, int64_t first_slot, int64_t slots)
{
    bp_loader_spec spec = {.stream = w->stream,
                           .maker = window_maker(w->context, slots),
                           .batch = w->batch,
                           .first_slot = first_slot,
                           .slots = slots,
                           .seed = 3};
    bp_loader *loader;

    bp_test_expect(bp_loader_new(&loader, &spec), BP_OK);
    return loader;
}

/* On so many ranks, each with its slots. */
static void check_ranks(const world *w, int ranks, int64_t steps, const int32_t *want)
{
    int64_t slots = w->batch / ranks, window = w->context + 1;
    int32_t *got = bp_alloc("test", slots * window, sizeof(*got));

    for (int rank = 0; rank < ranks; rank++) {
        bp_loader *loader = make_loader(w, rank * slots, slots);

        for (int64_t s = 0; s < steps; s++) {
            bp_test_expect(read_windows(loader, s + 1, got), BP_OK);
            assert_memory_equal(got, want + (s * w->batch + rank * slots) * window,
                                (size_t)(slots * window) * sizeof(*got));
        }
        bp_loader_free(&loader);
    }
    bp_free(got);
}

static void steps_are_the_plain_loops_steps_at_any_number_of_ranks(void **state)
{
    static const double weights[][FILES] = {{1, 1, 1}, {5, 0.5, 2}, {3, 0, 1}};
    enum { STEPS = 800 }; /* the large file once and more, the small one up to 170 times */

    for (int bag = 0; bag < 2; bag++) {
        for (size_t k = 0; k < sizeof(weights) / sizeof(weights[0]); k++) {
            world w = make_world(bag ? "bag" : "plain", weights[k], bag);
            int32_t *want = plain_steps(&w, STEPS);

            for (int ranks = 1; ranks <= 4; ranks *= 2)
                check_ranks(&w, ranks, STEPS, want);
            bp_free(want);
            end_world(&w);
        }
    }
}

static void any_step_at_any_time(void **state)
{
    static const double weights[FILES] = {2, 0.1, 1};
    static const int64_t steps[] = {300, 1, 2, 299, 300, 17, 16, 17, 250};
    world w = make_world("any", weights, false);
    int32_t *want = plain_steps(&w, 300), *got = bp_alloc("test", 8 * 101, sizeof(*got));
    bp_loader *loader = make_loader(&w, 0, 8);

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        bp_test_expect(read_windows(loader, steps[i], got), BP_OK);
        assert_memory_equal(got, want + (steps[i] - 1) * 8 * 101, 8 * 101 * sizeof(*got));
    }
    bp_loader_free(&loader);
    bp_free(got);
    bp_free(want);
    end_world(&w);
}

static void windows_and_memory_are_those_of_the_files_with_weights(void **state)
{
    static const double weights[FILES] = {2, 0, 1}, small[FILES] = {0, 1, 1};
    world w = make_world("count", weights, false);
    bp_loader *loader = make_loader(&w, 0, 8);
    bp_example_maker maker = window_maker(w.context, 8);
    size_t estimated, taken;

    assert_int_equal(bp_loader_windows(loader), w.windows[0] + w.windows[2]);
    assert_int_equal(bp_stream_corpus_windows(w.stream, w.context), w.windows[0] + w.windows[2]);
    assert_true(fabs(bp_loader_share(loader, 0) - 8 * 2.0 / 3) < 1e-3);
    assert_false(bp_loader_repeat(loader));
    estimated = bp_loader_bytes(&(bp_loader_size){
        .tokens = bp_stream_tokens(w.stream), .mixed_files = FILES, .slots = 8, .maker = &maker});
    /* four blocks of 7, and two of 2; the rings, and the cycle */
    taken = 4 * (4 + 2) * (SPAN + 101) + 4 * 3 * 8 * 101 + 8 * 65536;
    assert_in_range(estimated, taken, 2 * taken);
    bp_loader_free(&loader);
    end_world(&w);

    w = make_world("small", small, false); /* 12 windows of the second file */
    w.batch = 100;                         /* half of them a step */
    loader = make_loader(&w, 0, 8);
    assert_true(bp_loader_repeat(loader));
    bp_loader_free(&loader);
    end_world(&w);
}

static void a_file_of_fewer_tokens_than_a_window_is_65_by_name(void **state)
{
    static const double all[FILES] = {1, 1, 1}, without[FILES] = {1, 0, 1};
    world w = make_world("short", all, false);
    bp_loader_spec spec = {
        .stream = w.stream, .maker = window_maker(1240, 8), .batch = 8, .slots = 8};
    bp_loader *loader;

    bp_test_expect(bp_loader_new(&loader, &spec),
                   BP_ERR_FORMAT); /* the second has 40 x 31 tokens */
    bp_test_message_has("1240 tokens ... [corpus.too_short]");
    bp_test_message_has("short1.h5");
    spec.maker = window_maker(1239, 8);
    bp_test_expect(bp_loader_new(&loader, &spec), BP_OK);
    bp_loader_free(&loader);
    end_world(&w);
    w = make_world("other", without, false);
    spec = (bp_loader_spec){
        .stream = w.stream, .maker = window_maker(1240, 8), .batch = 8, .slots = 8};
    bp_test_expect(bp_loader_new(&loader, &spec), BP_OK); /* nothing is read of it */
    bp_loader_free(&loader);
    end_world(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_numbers_with_commas),
        cmocka_unit_test(entries_are_those_of_the_plain_loop),
        cmocka_unit_test(largest_remainders_and_one_for_the_smallest),
        cmocka_unit_test(steps_are_the_plain_loops_steps_at_any_number_of_ranks),
        cmocka_unit_test(any_step_at_any_time),
        cmocka_unit_test(windows_and_memory_are_those_of_the_files_with_weights),
        cmocka_unit_test(a_file_of_fewer_tokens_than_a_window_is_65_by_name),
    };
    return BP_TEST_RUN(tests);
}
