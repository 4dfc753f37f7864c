/* Streams and bags against plain loops. */
#include "bp_test.h"
#include "read_windows.h"

#include "base/rng.h"
#include "data/loader.h"
#include "toy_corpus.h"

#include <math.h>

static bp_corpus *open_corpus(const char *list)
{
    bp_corpus *corpus;

    bp_test_expect(bp_corpus_open(&corpus, list), BP_OK);
    return corpus;
}

static void stream_is_all_documents_of_all_files(void **state)
{
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

/* A bag by plain loops: which document of the toy each token is of, and the token. */
typedef struct plain_bag {
    int64_t count, first_pass; /* tokens of all passes, and of the first */
    int64_t *document;
    int32_t *tokens;
} plain_bag;

/* Draws counted; pass after pass, documents in order. */
static plain_bag make_plain_bag(const toy_corpus *toy, uint64_t seed, int64_t member)
{
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_BAG, member, 0, 0);
    int64_t *drawn = bp_alloc("test", toy->documents, sizeof(*drawn)), capacity = 0;
    plain_bag bag = {0};

    for (int64_t i = 0; i < toy->documents; i++)
        drawn[bp_rng_below(&key, (uint64_t)i, toy->documents)]++;
    for (int64_t d = 0; d < toy->documents; d++)
        capacity += drawn[d] * (toy_length(toy, d) + 1);
    bag.tokens = bp_alloc("test", capacity, sizeof(*bag.tokens));
    bag.document = bp_alloc("test", capacity, sizeof(*bag.document));
    for (int64_t pass = 1; bag.count < capacity; pass++) {
        for (int64_t d = 0; d < toy->documents; d++) {
            for (int64_t k = 0; drawn[d] >= pass && k <= toy_length(toy, d); k++) {
                bag.document[bag.count] = d;
                bag.tokens[bag.count++] = toy_token(toy, d, k);
            }
        }
        bag.first_pass = pass == 1 ? bag.count : bag.first_pass;
    }
    bp_free(drawn);
    return bag;
}

static void end_plain_bag(plain_bag *bag)
{
    bp_free(bag->document);
    bp_free(bag->tokens);
}

/* The stream's tokens from anywhere on, also over several blocks of documents and thin passes. */
static void check_reads(bp_stream *stream, const plain_bag *want)
{
    static const int64_t lengths[] = {1, 50, 2000};
    int32_t *got = bp_alloc("test", want->count, sizeof(*got));

    assert_int_equal(bp_stream_tokens(stream), want->count);
    bp_test_expect(bp_stream_read(stream, 0, want->count, got), BP_OK);
    assert_memory_equal(got, want->tokens, (size_t)want->count * sizeof(*got));
    for (int i = 0; i < 3; i++) {
        for (int64_t at = 0; at <= want->count - lengths[i]; at += i == 2 ? 37 : 1) {
            bp_test_expect(bp_stream_read(stream, at, lengths[i], got), BP_OK);
            assert_memory_equal(got, want->tokens + at, (size_t)lengths[i] * sizeof(*got));
        }
    }
    bp_free(got);
}

static void bag_is_the_plain_loops_bag(void **state)
{
    int64_t lengths[1000];
    toy_corpus toy = {.documents = 1000, .lengths = lengths, .vocab_size = 500, .eod_id = 499};

    for (int64_t d = 0; d < 1000; d++)
        lengths[d] = d * 7 % 13; /* empty ones among them */
    bp_corpus *corpus = open_corpus(toy_write(&toy, "bag.h5"));
    for (int64_t member = 0; member < 3; member++) {
        bp_stream_spec spec = {.corpus = corpus, .bag = true, .seed = 5, .member = member};
        plain_bag want = make_plain_bag(&toy, 5, member);
        bp_stream *stream;
        int64_t drawn = 0;

        bp_test_expect(bp_stream_new(&stream, &spec), BP_OK);
        for (int64_t d = 0; d < 1000; d++)
            drawn += bp_stream_drawn(stream, d);
        assert_int_equal(drawn, 1000);
        check_reads(stream, &want);
        bp_stream_free(&stream);
        end_plain_bag(&want);
    }
    bp_corpus_close(&corpus);
}

/* Values x, y and z (document mod 3 of each file) are drawn; documents follow their value's. */
static void bag_of_clusters_has_all_documents_of_a_value_as_often(void **state)
{
    static const int64_t documents[2] = {7, 301};
    toy_corpus one = {.documents = 7, .length = 9, .vocab_size = 500, .eod_id = 499},
               two = {.documents = 301, .length = 5, .vocab_size = 500, .eod_id = 499, .salt = 1};
    char list[4096];
    int64_t least = 3;

    (void)state;
    snprintf(list, sizeof list, "%s,%s", toy_write(&one, "c1.h5"), toy_write(&two, "c2.h5"));
    bp_corpus *corpus = open_corpus(list);
    for (int64_t member = 0; member < 20; member++) {
        bp_stream_spec spec = {
            .corpus = corpus, .bag = true, .cluster = "kind", .seed = 5, .member = member};
        bp_rng_key key = bp_rng_key_of(5, BP_RNG_BAG, member, 0, 0);
        int64_t times[3] = {0}, tokens = 0, all, drawn;
        bp_stream *stream;

        for (uint64_t k = 0; k < 3; k++)
            times[bp_rng_below(&key, k, 3)]++;
        bp_test_expect(bp_stream_new(&stream, &spec), BP_OK);
        for (int64_t file = 0, at = 0; file < 2; file++)
            for (int64_t d = 0; d < documents[file]; d++, at++) {
                assert_int_equal(bp_stream_drawn(stream, at), times[d % 3]);
                tokens += times[d % 3] * (file == 0 ? 10 : 6);
            }
        assert_int_equal(bp_stream_tokens(stream), tokens);
        drawn = bp_stream_clusters(stream, &all);
        assert_int_equal(all, 3);
        assert_int_equal(drawn, (times[0] > 0) + (times[1] > 0) + (times[2] > 0));
        least = drawn < least ? drawn : least;
        bp_stream_free(&stream);
    }
    assert_true(least < 3); /* some bag lacks a value */
    bp_test_expect(bp_stream_new(&(bp_stream *){NULL},
                                 &(bp_stream_spec){.corpus = corpus, .bag = true, .cluster = "no"}),
                   BP_ERR_FORMAT);
    bp_corpus_close(&corpus);
}

static void bag_of_several_files_goes_through_all_in_each_pass(void **state)
{
    int64_t lengths[620];
    toy_corpus all = {.documents = 620, .lengths = lengths, .vocab_size = 500, .eod_id = 499};
    char list[4096] = "";

    /* files of 300, 20 and 300 documents, whose tokens are those of one toy */
    for (int64_t d = 0; d < 620; d++)
        lengths[d] = 1 + d % 5;
    for (int k = 0; k < 3; k++) {
        static const int64_t first[] = {0, 300, 320, 620};
        char name[32];
        toy_corpus one = all;

        one.documents = first[k + 1] - first[k];
        one.lengths = lengths + first[k];
        one.first = first[k];
        snprintf(name, sizeof(name), "part%d.h5", k);
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", k > 0 ? "," : "",
                 toy_write(&one, name));
    }
    bp_corpus *corpus = open_corpus(list);
    plain_bag want = make_plain_bag(&all, 2, 4);
    bp_stream_spec spec = {.corpus = corpus, .bag = true, .seed = 2, .member = 4};
    bp_stream *stream;

    bp_test_expect(bp_stream_new(&stream, &spec), BP_OK);
    check_reads(stream, &want);
    bp_stream_free(&stream);
    bp_corpus_close(&corpus);
    end_plain_bag(&want);
}

static void members_draw_different_bags_of_the_expected_kind(void **state)
{
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
    toy_corpus toy = {.documents = 1, .length = 100, .vocab_size = 50, .eod_id = 49};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "lone.h5"));
    bp_stream *stream;

    bp_test_expect(bp_stream_new(&stream, &(bp_stream_spec){.corpus = corpus, .bag = true}),
                   BP_ERR_FORMAT);
    assert_null(stream);
    bp_test_message_has("[corpus.too_few_documents]");
    bp_corpus_close(&corpus);
}

/* Does a window of plain tokens hold two copies of a document; does a pass end within it? */
static void look_for_copies(const plain_bag *bag, int32_t eod, int64_t first, int64_t count,
                            bool *copies, bool *border)
{
    *copies = *border = false;
    for (int64_t a = first; a < first + count; a++) {
        *border = *border || (a > first && bag->document[a] < bag->document[a - 1]);
        for (int64_t b = a + 1; b < first + count && !*copies; b++) /* after the end of a's */
            *copies = bag->tokens[b - 1] == eod && bag->document[b] == bag->document[a];
    }
}

/* Every window of a bag's epoch as the loader give it, found in the plain loops' bag. */
static void no_window_of_a_bag_holds_a_document_twice(void **state)
{
    enum { T = 64, BATCH = 4, DOCUMENTS = 5000 };
    toy_corpus toy = {.documents = DOCUMENTS, .length = 5, .vocab_size = 60000, .eod_id = 59999};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "apart.h5"));
    plain_bag want = make_plain_bag(&toy, 8, 1);
    bp_stream_spec stream_spec = {.corpus = corpus, .bag = true, .seed = 8, .member = 1};
    bp_loader_spec spec = {
        .maker = window_maker(T, BATCH), .batch = BATCH, .slots = BATCH, .seed = 3};
    static int32_t got[BATCH][T + 1];
    int64_t windows = (want.count - 1) / T, borders = 0;
    int *seen = bp_alloc("test", windows, sizeof(*seen));
    bp_stream *stream;
    bp_loader *loader;

    bp_test_expect(bp_stream_new(&stream, &stream_spec), BP_OK);
    spec.stream = stream;
    bp_test_expect(bp_loader_new(&loader, &spec), BP_OK);
    assert_int_equal(bp_loader_windows(loader), windows);
    for (int64_t step = 1; step <= windows / BATCH; step++) {
        bp_test_expect(read_windows(loader, step, got[0]), BP_OK);
        for (int b = 0; b < BATCH; b++) {
            int64_t k = 0;
            bool copies, border;

            while (k < windows && memcmp(got[b], want.tokens + k * T, sizeof(got[b])) != 0)
                k++;
            assert_true(k < windows); /* so it holds no document that is out of the bag */
            assert_int_equal(seen[k]++, 0);
            look_for_copies(&want, 59999, k * T, T + 1, &copies, &border);
            assert_true(border || !copies);
            borders += border;
        }
    }
    assert_in_range(borders, 1, 10); /* a document is drawn 7 times or so at most */
    bp_loader_free(&loader);
    bp_stream_free(&stream);
    bp_corpus_close(&corpus);
    end_plain_bag(&want);
    bp_free(seen);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_all_documents_of_all_files),
        cmocka_unit_test(bag_is_the_plain_loops_bag),
        cmocka_unit_test(bag_of_clusters_has_all_documents_of_a_value_as_often),
        cmocka_unit_test(bag_of_several_files_goes_through_all_in_each_pass),
        cmocka_unit_test(members_draw_different_bags_of_the_expected_kind),
        cmocka_unit_test(inclusion_over_1000_members_is_that_of_n_from_n),
        cmocka_unit_test(bag_of_one_document_is_65),
        cmocka_unit_test(no_window_of_a_bag_holds_a_document_twice),
    };
    return BP_TEST_RUN(tests);
}
