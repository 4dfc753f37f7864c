/* Streams, bags and lanes against plain loops. */
#include "bp_test.h"

#include "base/fault.h"
#include "base/rng.h"
#include "corpus/lanes.h"
#include "toy_corpus.h"

#include <math.h>

#define SPAN 65536 /* CONTRACT, section 4: spans of 64 Ki tokens */
#define POOL 4

static bp_corpus *open_corpus(const char *list)
{
    bp_corpus *corpus;

    bp_test_expect(bp_corpus_open(&corpus, list), BP_OK);
    return corpus;
}

/* ---- streams ---- */

static void stream_is_all_documents_of_all_files(void **state)
{
    (void)state;
    static const int64_t lengths[] = {5, 0, 1, 70000, 3};
    toy_corpus one = {.documents = 5, .lengths = lengths, .vocab_size = 300, .eod_id = 299};
    toy_corpus two = {.documents = 2, .length = 9, .vocab_size = 300, .eod_id = 299, .salt = 1};
    char list[4096];
    int64_t n1, n2;
    int32_t *first = toy_stream(&one, &n1), *second = toy_stream(&two, &n2);
    int32_t *got = bp_alloc("test", n1 + n2, sizeof(*got));
    bp_stream *stream;

    snprintf(list, sizeof(list), "%s,%s", toy_write(&one, "s1.h5"), toy_write(&two, "s2.h5"));
    bp_corpus *corpus = open_corpus(list);
    bp_test_expect(bp_stream_new(&stream, &(bp_stream_spec){.corpus = corpus}), BP_OK);
    assert_int_equal(bp_stream_tokens(stream), n1 + n2);
    assert_int_equal(bp_stream_drawn(stream, 6), 1);
    bp_test_expect(bp_stream_read(stream, 0, n1 + n2, got), BP_OK);
    assert_memory_equal(got, first, (size_t)n1 * sizeof(*got));
    assert_memory_equal(got + n1, second, (size_t)n2 * sizeof(*got));
    bp_test_expect(bp_stream_read(stream, n1 - 2, 4, got), BP_OK);
    assert_memory_equal(got, first + n1 - 2, 2 * sizeof(*got));
    assert_memory_equal(got + 2, second, 2 * sizeof(*got));
    bp_stream_free(&stream);
    bp_corpus_close(&corpus);
    bp_free(got);
    bp_free(second);
    bp_free(first);
}

/* The bag by plain loops: draws counted, documents in order, copies side by side. */
static int32_t *plain_bag(const toy_corpus *toy, uint64_t seed, int64_t member, int64_t *count)
{
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_BAG, member, 0, 0);
    int64_t *drawn = bp_alloc("test", toy->documents, sizeof(*drawn)), capacity = 0;
    int32_t *tokens;

    for (int64_t i = 0; i < toy->documents; i++)
        drawn[bp_rng_below(&key, (uint64_t)i, toy->documents)]++;
    for (int64_t d = 0; d < toy->documents; d++)
        capacity += drawn[d] * (toy_length(toy, d) + 1);
    tokens = bp_alloc("test", capacity, sizeof(*tokens));
    *count = 0;
    for (int64_t d = 0; d < toy->documents; d++) {
        for (int64_t copy = 0; copy < drawn[d]; copy++) {
            for (int64_t k = 0; k <= toy_length(toy, d); k++)
                tokens[(*count)++] = toy_token(toy, d, k);
        }
    }
    bp_free(drawn);
    return tokens;
}

static void bag_is_the_plain_loops_bag(void **state)
{
    (void)state;
    int64_t lengths[1000], n;
    toy_corpus toy = {.documents = 1000, .lengths = lengths, .vocab_size = 500, .eod_id = 499};

    for (int64_t d = 0; d < 1000; d++)
        lengths[d] = d * 7 % 13; /* empty ones among them */
    bp_corpus *corpus = open_corpus(toy_write(&toy, "bag.h5"));
    for (int64_t member = 0; member < 3; member++) {
        bp_stream_spec spec = {.corpus = corpus, .bag = true, .seed = 5, .member = member};
        int32_t *want = plain_bag(&toy, 5, member, &n), *got = bp_alloc("test", n, sizeof(*got));
        bp_stream *stream;
        int64_t drawn = 0;

        bp_test_expect(bp_stream_new(&stream, &spec), BP_OK);
        assert_int_equal(bp_stream_tokens(stream), n);
        for (int64_t d = 0; d < 1000; d++)
            drawn += bp_stream_drawn(stream, d);
        assert_int_equal(drawn, 1000);
        bp_test_expect(bp_stream_read(stream, 0, n, got), BP_OK);
        assert_memory_equal(got, want, (size_t)n * sizeof(*got));
        for (int64_t at = 0; at < n - 50; at += 37) { /* anywhere */
            bp_test_expect(bp_stream_read(stream, at, 50, got), BP_OK);
            assert_memory_equal(got, want + at, 50 * sizeof(*got));
        }
        bp_stream_free(&stream);
        bp_free(got);
        bp_free(want);
    }
    bp_corpus_close(&corpus);
}

static void members_draw_different_bags_of_the_expected_kind(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 2000, .length = 2, .vocab_size = 50, .eod_id = 49};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "bags.h5"));
    bp_stream *bags[2];
    int64_t out[2] = {0, 0}, equal = 0;

    for (int m = 0; m < 2; m++) {
        bp_stream_spec spec = {.corpus = corpus, .bag = true, .seed = 1, .member = m};
        bp_test_expect(bp_stream_new(&bags[m], &spec), BP_OK);
    }
    for (int64_t d = 0; d < 2000; d++) {
        out[0] += bp_stream_drawn(bags[0], d) == 0;
        out[1] += bp_stream_drawn(bags[1], d) == 0;
        equal += bp_stream_drawn(bags[0], d) == bp_stream_drawn(bags[1], d);
    }
    /* out of a bag: 1/e of 2,000 = 735.8, standard deviation about 14 */
    assert_in_range(out[0], 660, 810);
    assert_in_range(out[1], 660, 810);
    assert_in_range(equal, 400, 900); /* independent: sum of squares of Poisson(1) = 0.3085 */
    bp_stream_free(&bags[0]);
    bp_stream_free(&bags[1]);
    bp_corpus_close(&corpus);
}

/* How far chi-square is off with so many degrees of freedom, in standard deviations.
 * Source: Wilson and Hilferty 1931. */
static double chi_square_z(double chi_square, double df)
{
    return (cbrt(chi_square / df) - (1 - 2 / (9 * df))) / sqrt(2 / (9 * df));
}

/* Of n drawn from n: a document is in a bag with p = 1 - (1 - 1/n)^n; two are both out of it with
 * (1 - 2/n)^n, so what documents share is their covariance, and their deviations from the common
 * mean are independent with variance v - c. */
static void inclusion_over_1000_members_is_that_of_n_from_n(void **state)
{
    enum { N = 200, MEMBERS = 1000 };
    (void)state;
    toy_corpus toy = {.documents = N, .length = 2, .vocab_size = 50, .eod_id = 49};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "thousand.h5"));
    double out = pow(1 - 1.0 / N, N), p = 1 - out, v = p * out, c = pow(1 - 2.0 / N, N) - out * out;
    double included[N] = {0}, drawn[N] = {0}, total = 0, mean = 0, of_inclusion = 0, of_draws = 0;

    for (int m = 0; m < MEMBERS; m++) {
        bp_stream_spec spec = {.corpus = corpus, .bag = true, .seed = 11, .member = m};
        bp_stream *bag;

        bp_test_expect(bp_stream_new(&bag, &spec), BP_OK);
        for (int64_t d = 0; d < N; d++) {
            drawn[d] += (double)bp_stream_drawn(bag, d);
            included[d] += bp_stream_drawn(bag, d) > 0;
        }
        bp_stream_free(&bag);
    }
    for (int d = 0; d < N; d++) {
        mean += included[d] / N;
        total += drawn[d];
    }
    assert_true(total == (double)N * MEMBERS); /* n from n, and not about n */
    for (int d = 0; d < N; d++) {
        of_inclusion += (included[d] - mean) * (included[d] - mean) / (MEMBERS * (v - c));
        of_draws += (drawn[d] - MEMBERS) * (drawn[d] - MEMBERS) / MEMBERS;
    }
    print_message("chi-square of %d documents: %.1f of inclusion, %.1f of draws; %.1f included\n",
                  N, of_inclusion, of_draws, mean);
    /* beyond 3.9 standard deviations once in 10,000 */
    assert_true(fabs(chi_square_z(of_inclusion, N - 1)) < 3.9);
    assert_true(fabs(chi_square_z(of_draws, N - 1)) < 3.9);
    assert_true(fabs(mean - MEMBERS * p) < 3.9 * sqrt(MEMBERS * (v + (N - 1) * c) / N));
    bp_corpus_close(&corpus);
}

static void bag_of_one_document_is_65(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 1, .length = 100, .vocab_size = 50, .eod_id = 49};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "lone.h5"));
    bp_stream *stream;

    bp_test_expect(bp_stream_new(&stream, &(bp_stream_spec){.corpus = corpus, .bag = true}),
                   BP_ERR_FORMAT);
    assert_null(stream);
    bp_test_message_has("at least 2 documents");
    bp_corpus_close(&corpus);
}

/* ---- lanes ---- */

typedef struct world {
    toy_corpus toy;
    bp_corpus *corpus;
    bp_stream *stream;
    int32_t *tokens; /* of the stream */
    int64_t count, context, batch, windows;
} world;

static world make_world(const toy_corpus *toy, const char *name, int64_t context, int64_t batch)
{
    world w = {.toy = *toy, .context = context, .batch = batch};

    w.corpus = open_corpus(toy_write(toy, name));
    bp_test_expect(bp_stream_new(&w.stream, &(bp_stream_spec){.corpus = w.corpus}), BP_OK);
    w.tokens = toy_stream(toy, &w.count);
    w.windows = (w.count - 1) / context;
    return w;
}

static void end_world(world *w)
{
    bp_free(w->tokens);
    bp_stream_free(&w->stream);
    bp_corpus_close(&w->corpus);
}

static bp_lanes *make_lanes(const world *w, int64_t first_slot, int64_t slots)
{
    bp_lanes_spec spec = {.stream = w->stream,
                          .context = w->context,
                          .batch = w->batch,
                          .first_slot = first_slot,
                          .slots = slots,
                          .seed = 3};
    bp_lanes *lanes;

    bp_test_expect(bp_lanes_new(&lanes, &spec), BP_OK);
    assert_int_equal(bp_lanes_windows(lanes), w->windows);
    return lanes;
}

/* The list of an epoch's windows by plain loops over all spans. */
static int64_t *plain_epoch(const world *w, int64_t epoch)
{
    int64_t spans = (w->windows - 1) * w->context / SPAN + 1, at = 0;
    int64_t *list = bp_alloc("test", w->windows, sizeof(*list));
    int64_t *pool = bp_alloc("test", w->windows, sizeof(*pool));
    bp_rng_key spans_key = bp_rng_key_of(3, BP_RNG_SHUFFLE, 0, epoch, 0);

    for (int64_t first = 0; first < spans; first += POOL) {
        bp_rng_key key = bp_rng_key_of(3, BP_RNG_SHUFFLE, 0, epoch, 1 + first / POOL);
        int64_t held = 0;

        for (int64_t i = first; i < first + POOL && i < spans; i++) {
            int64_t span = bp_rng_permute(&spans_key, i, spans);
            for (int64_t k = 0; k < w->windows; k++) {
                if (k * w->context / SPAN == span)
                    pool[held++] = k;
            }
        }
        for (int64_t i = 0; i < held; i++)
            list[at++] = pool[bp_rng_permute(&key, i, held)];
    }
    assert_int_equal(at, w->windows);
    bp_free(pool);
    return list;
}

/* Step `step` as the lanes give it is what the contract says. */
static void check_step(const world *w, int64_t step, int64_t first_slot, int64_t slots,
                       const int32_t *got)
{
    int64_t length = w->windows / w->batch;

    for (int64_t b = 0; b < slots; b++) {
        int64_t slot = first_slot + b, index = (step - 1) * w->batch + slot;
        int64_t epoch = length > 0 ? (step - 1) / length : index / w->windows;
        int64_t entry = length > 0 ? slot * length + (step - 1) % length : index % w->windows;
        int64_t *list = plain_epoch(w, epoch);

        assert_memory_equal(got + b * (w->context + 1), w->tokens + list[entry] * w->context,
                            (size_t)(w->context + 1) * sizeof(*got));
        bp_free(list);
    }
}

static void steps_are_the_plain_loops_steps(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 700, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "lanes.h5", 1000, 6); /* 11 spans, 3 pools, 699 windows */
    bp_lanes *lanes = make_lanes(&w, 0, 6);
    int32_t *got = bp_alloc("test", 6 * 1001, sizeof(*got));

    assert_int_equal(w.windows, 699);
    assert_false(bp_lanes_repeat(lanes));
    for (int64_t step = 1; step <= 116 * 2 + 3; step++) { /* into the third epoch */
        bp_test_expect(bp_lanes_read(lanes, step, got), BP_OK);
        if (step % 9 == 1 || step % 116 < 2)
            check_step(&w, step, 0, 6, got);
    }
    assert_true(bp_lanes_waited(lanes) >= 0);
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

static void any_step_at_any_time(void **state)
{
    (void)state;
    static const int64_t steps[] = {117, 1, 2, 3, 50, 49, 50, 51, 1000000007, 116, 117, 118};
    toy_corpus toy = {.documents = 700, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "any.h5", 1000, 6);
    bp_lanes *lanes = make_lanes(&w, 0, 6);
    int32_t *got = bp_alloc("test", 6 * 1001, sizeof(*got));

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        bp_test_expect(bp_lanes_read(lanes, steps[i], got), BP_OK);
        check_step(&w, steps[i], 0, 6, got);
    }
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

static void an_epoch_has_every_window_once(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 1, .length = 400000, .vocab_size = 60000, .eod_id = 59999};
    world w = make_world(&toy, "epoch.h5", 100, 7); /* 4,000 windows, 571 a lane, 3 left over */
    bp_lanes *lanes = make_lanes(&w, 0, 7);
    int32_t *got = bp_alloc("test", 7 * 101, sizeof(*got));
    int left[2][3];

    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int *seen = bp_alloc("test", w.windows, sizeof(*seen)), missing = 0;

        for (int64_t step = 1 + epoch * 571; step <= (epoch + 1) * 571; step++) {
            bp_test_expect(bp_lanes_read(lanes, step, got), BP_OK);
            for (int64_t b = 0; b < 7; b++) {
                const int32_t *window = got + b * 101;
                int64_t k = 0;

                while (k < w.windows &&
                       memcmp(window, w.tokens + k * 100, 101 * sizeof(*window)) != 0)
                    k++;
                assert_true(k < w.windows);
                assert_int_equal(seen[k], 0);
                seen[k] = 1;
            }
        }
        for (int64_t k = 0; k < w.windows; k++) {
            if (!seen[k])
                left[epoch][missing++ % 3] = (int)k;
        }
        assert_int_equal(missing, 3);
        bp_free(seen);
    }
    assert_memory_not_equal(left[0], left[1], sizeof(left[0])); /* W mod B differ by epoch */
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

static void slots_do_not_depend_on_who_owns_them(void **state)
{
    (void)state;
    enum { STEPS = 7, SLOTS = 8, WINDOW = 129 };
    toy_corpus toy = {.documents = 300, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "ranks.h5", WINDOW - 1, SLOTS);
    static int32_t want[STEPS][SLOTS][WINDOW], got[SLOTS][WINDOW];
    bp_lanes *lanes = make_lanes(&w, 0, SLOTS);

    for (int step = 0; step < STEPS; step++)
        bp_test_expect(bp_lanes_read(lanes, step + 1, want[step][0]), BP_OK);
    bp_lanes_free(&lanes);
    for (int ranks = 2; ranks <= SLOTS; ranks *= 2) {
        int slots = SLOTS / ranks;

        for (int rank = 0; rank < ranks; rank++) {
            lanes = make_lanes(&w, rank * slots, slots);
            for (int step = 0; step < STEPS; step++) {
                bp_test_expect(bp_lanes_read(lanes, step + 1, got[0]), BP_OK);
                assert_memory_equal(got, want[step][rank * slots], (size_t)slots * sizeof(got[0]));
            }
            bp_lanes_free(&lanes);
        }
    }
    end_world(&w);
}

static void more_slots_than_windows_repeat(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 5, .length = 9, .vocab_size = 100, .eod_id = 99};
    world w = make_world(&toy, "few.h5", 10, 11); /* 4 windows for 11 slots */
    bp_lanes *lanes = make_lanes(&w, 2, 9);
    int32_t *got = bp_alloc("test", 9 * 11, sizeof(*got));

    assert_int_equal(w.windows, 4);
    assert_true(bp_lanes_repeat(lanes));
    for (int64_t step = 1; step < 20; step++) {
        bp_test_expect(bp_lanes_read(lanes, step, got), BP_OK);
        check_step(&w, step, 2, 9, got);
    }
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

static void wide_vocabularies_and_long_windows(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 2, .length = 200000, .vocab_size = 200000, .eod_id = 199999};
    world w = make_world(&toy, "wide.h5", 100000, 2); /* windows longer than a span */
    bp_lanes *lanes = make_lanes(&w, 0, 2);
    int32_t *got = bp_alloc("test", 2 * 100001, sizeof(*got));

    assert_int_equal(w.windows, 4);
    for (int64_t step = 1; step <= 4; step++) {
        bp_test_expect(bp_lanes_read(lanes, step, got), BP_OK);
        check_step(&w, step, 0, 2, got);
    }
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

static void spans_are_decoded_once_but_where_lanes_meet(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 1, .length = 40 * SPAN, .vocab_size = 20000, .eod_id = 19999};
    world w = make_world(&toy, "spans.h5", 1024, 4);
    int64_t length = w.windows / 4, spans = (w.windows - 1) * 1024 / SPAN + 1;
    bp_lanes *lanes = make_lanes(&w, 0, 4);
    int32_t *got = bp_alloc("test", 4 * 1025, sizeof(*got));

    for (int64_t step = 1; step <= length - 3;
         step++) /* the helper reads no further than the epoch */
        bp_test_expect(bp_lanes_read(lanes, step, got), BP_OK);
    /* three places where lanes meet, each inside a pool of four spans */
    assert_in_range(bp_lanes_spans_read(lanes), spans - 4, spans + 3 * POOL);
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

/* Overwrite the middle of a file, which is compressed tokens. */
static void spoil(const char *path)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(bp_file_size(path) / 2), SEEK_SET), 0);
    for (int i = 0; i < 100000; i++)
        assert_int_not_equal(fputc(0x55, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void damage_is_told_by_the_step_that_meets_it(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 1, .length = 8 * SPAN, .vocab_size = 20000, .eod_id = 19999};
    world w = make_world(&toy, "spoilt.h5", 1024, 1);
    bp_lanes *lanes = make_lanes(&w, 0, 1);
    int32_t *got = bp_alloc("test", 1025, sizeof(*got));
    int64_t step = 1;
    bp_err err;

    spoil(bp_test_path("spoilt.h5"));
    do
        err = bp_lanes_read(lanes, step++, got);
    while (err == BP_OK && step < w.windows);
    assert_int_equal(err, BP_ERR_FORMAT);
    bp_test_message_has("spoilt.h5");
    bp_test_expect(bp_lanes_read(lanes, step - 1, got), BP_ERR_FORMAT); /* and again */
    bp_lanes_free(&lanes);
    bp_free(got);
    end_world(&w);
}

/* Stream, bag, lanes and their first step, with the n-th allocation refused. */
static bp_err build_all(bp_corpus *corpus, int n)
{
    bp_stream_spec stream_spec = {.corpus = corpus, .bag = true, .seed = 1};
    bp_lanes_spec lanes_spec = {.context = 10, .batch = 2, .slots = 2};
    bp_stream *stream = NULL;
    bp_lanes *lanes = NULL;
    int32_t got[22];
    char fault[32];

    snprintf(fault, sizeof(fault), "base.alloc:%d", n);
    bp_fault_arm(fault);
    bp_err err = bp_stream_new(&stream, &stream_spec);
    lanes_spec.stream = stream;
    if (err == BP_OK)
        err = bp_lanes_new(&lanes, &lanes_spec);
    if (err == BP_OK)
        err = bp_lanes_read(lanes, 1, got);
    bp_fault_arm(NULL);
    bp_lanes_free(&lanes);
    bp_stream_free(&stream);
    return err;
}

static void short_memory_is_71_wherever_it_strikes(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 20, .length = 9, .vocab_size = 100, .eod_id = 99};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "memory.h5"));
    int n = 1;

    while (build_all(corpus, n) != BP_OK) {
        bp_test_expect(build_all(corpus, n), BP_ERR_SYSTEM);
        n++;
    }
    assert_in_range(n, 12, 200); /* that many allocations there are at least */
    bp_corpus_close(&corpus);
}

static void too_few_tokens_are_65(void **state)
{
    (void)state;
    toy_corpus toy = {.documents = 1, .length = 9, .vocab_size = 100, .eod_id = 99};
    world w = make_world(&toy, "short.h5", 10, 1);
    bp_lanes_spec spec = {.stream = w.stream, .context = 10, .batch = 1, .slots = 1};
    bp_lanes *lanes = (bp_lanes *)1;
    int32_t got[10];

    bp_test_expect(bp_lanes_new(&lanes, &spec), BP_ERR_FORMAT);
    assert_null(lanes);
    bp_test_message_has("short.h5");
    spec.context = 9; /* T + 1 tokens: one window */
    bp_test_expect(bp_lanes_new(&lanes, &spec), BP_OK);
    assert_int_equal(bp_lanes_windows(lanes), 1);
    bp_test_expect(bp_lanes_read(lanes, 1, got), BP_OK);
    assert_memory_equal(got, w.tokens, sizeof(got));
    bp_lanes_free(&lanes);
    end_world(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_all_documents_of_all_files),
        cmocka_unit_test(bag_is_the_plain_loops_bag),
        cmocka_unit_test(members_draw_different_bags_of_the_expected_kind),
        cmocka_unit_test(inclusion_over_1000_members_is_that_of_n_from_n),
        cmocka_unit_test(bag_of_one_document_is_65),
        cmocka_unit_test(steps_are_the_plain_loops_steps),
        cmocka_unit_test(any_step_at_any_time),
        cmocka_unit_test(an_epoch_has_every_window_once),
        cmocka_unit_test(slots_do_not_depend_on_who_owns_them),
        cmocka_unit_test(more_slots_than_windows_repeat),
        cmocka_unit_test(wide_vocabularies_and_long_windows),
        cmocka_unit_test(spans_are_decoded_once_but_where_lanes_meet),
        cmocka_unit_test(damage_is_told_by_the_step_that_meets_it),
        cmocka_unit_test(short_memory_is_71_wherever_it_strikes),
        cmocka_unit_test(too_few_tokens_are_65),
    };
    return BP_TEST_RUN(tests);
}
