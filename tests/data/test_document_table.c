/* Examples that are documents: every one once an epoch, whole, with its class, on any ranks, of
 * bags and of weighted corpora. */
#include "document_tables.h"

/* So a corpus that is sorted by its labels is mixed as well as without a bucket. */
static void a_bucket_has_the_documents_of_its_steps(void **state)
{
    enum { BATCH = 16, POOL = 23 };
    world w = open_world(toy_write(make_toy(), "toy.h5"), false, NULL);
    world other = open_world(bp_test_path("toy.h5"), false, NULL);
    bp_loader *plain = open_loader(w.stream, BATCH, 0, BATCH), *sorted;
    int64_t length = bp_loader_windows(plain) / BATCH, last = length / POOL * POOL;
    const int64_t pools[][2] = {
        {1, POOL}, {1 + POOL, POOL}, {length + 1 + POOL, POOL}, {1 + last, length - last}};

    (void)state;
    assert_true(length - last > 0);
    bucket = POOL;
    sorted = open_loader(other.stream, BATCH, 0, BATCH);
    bucket = 0;
    for (size_t k = 0; k < sizeof pools / sizeof pools[0]; k++) {
        int64_t wanted[2], got[2];

        sum_documents(plain, BATCH, pools[k][0], pools[k][1], wanted);
        sum_documents(sorted, BATCH, pools[k][0], pools[k][1], got);
        assert_memory_equal(got, wanted, sizeof got);
    }
    bp_loader_free(&sorted);
    bp_loader_free(&plain);
    end_world(&other);
    end_world(&w);
}

static void a_bucket_has_batches_of_similar_lengths(void **state)
{
    enum { BATCH = 16, POOL = 25 };
    const toy_corpus *toy = make_toy();
    world w = open_world(toy_write(toy, "toy.h5"), false, NULL), other;
    bp_loader *plain = open_loader(w.stream, BATCH, 0, BATCH), *sorted, *part;
    int64_t apart = spread_of(toy, plain, BATCH, 1);

    (void)state;
    bp_loader_free(&plain);
    bucket = POOL;
    sorted = open_loader(w.stream, BATCH, 0, BATCH);
    assert_true(spread_of(toy, sorted, BATCH, 1) * 10 < apart);
    other = open_world(bp_test_path("toy.h5"), false, NULL);
    part = open_loader(other.stream, BATCH, 4, 8);
    for (int64_t k = 0; k < 60; k++) { /* any step at any time, by whichever rank */
        int64_t step = 1 + k * 37 % (2 * (DOCUMENTS / BATCH));
        const int32_t *all = read_step(sorted, step);

        assert_memory_equal(all + (size_t)4 * VALUES, read_step(part, step),
                            8 * VALUES * sizeof *all);
    }
    bp_loader_free(&part);
    bp_loader_free(&sorted);
    bucket = 0;
    end_world(&other);
    end_world(&w);
}

static void each_document_comes_once_an_epoch(void **state)
{
    enum { BATCH = 8 };
    const toy_corpus *toy = make_toy();
    world w = open_world(toy_write(toy, "toy.h5"), false, NULL);
    bp_loader *loader = open_loader(w.stream, BATCH, 0, BATCH);
    static int32_t counts[DOCUMENTS], first[2];

    (void)state;
    assert_int_equal(bp_loader_windows(loader), DOCUMENTS);
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t left_out = 0;

        count_epoch(toy, loader, BATCH, epoch, counts, &first[epoch]);
        for (int64_t d = 0; d < DOCUMENTS; d++) {
            assert_in_range(counts[d], 0, 1);
            left_out += counts[d] == 0;
        }
        assert_int_equal(left_out, DOCUMENTS % BATCH);
    }
    assert_int_not_equal(first[0], first[1]);
    bp_loader_free(&loader);
    end_world(&w);
}

static void ranks_share_the_same_examples(void **state)
{
    enum { BATCH = 8 };
    const toy_corpus *toy = make_toy();
    world all = open_world(toy_write(toy, "toy.h5"), true, NULL);
    bp_loader *whole = open_loader(all.stream, BATCH, 0, BATCH);

    (void)state;
    for (int64_t ranks = 2; ranks <= 4; ranks *= 2)
        for (int64_t rank = 0; rank < ranks; rank++) {
            int64_t slots = BATCH / ranks;
            world w = open_world(bp_test_path("toy.h5"), true, NULL);
            bp_loader *part = open_loader(w.stream, BATCH, rank * slots, slots);
            static const int64_t steps[] = {1, 2, 3, 700, 1499, 1500, 1501, 5};

            for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
                const int32_t *a = read_step(whole, steps[k]) + rank * slots * VALUES;

                assert_memory_equal(a, read_step(part, steps[k]),
                                    (size_t)(slots * VALUES) * sizeof *a);
            }
            bp_loader_free(&part);
            end_world(&w);
        }
    bp_loader_free(&whole);
    end_world(&all);
}

static void a_bag_holds_documents_as_often_as_drawn(void **state)
{
    const toy_corpus *toy = make_toy();
    world w = open_world(toy_write(toy, "toy.h5"), true, NULL);
    bp_loader *loader = open_loader(w.stream, 1, 0, 1);
    static int32_t counts[DOCUMENTS], first;

    (void)state;
    assert_int_equal(bp_loader_windows(loader), DOCUMENTS);
    count_epoch(toy, loader, 1, 0, counts, &first);
    bp_loader_free(&loader); /* the stream is the loader's while it lives */
    for (int64_t d = 0; d < DOCUMENTS; d++)
        assert_int_equal(counts[d], bp_stream_drawn(w.stream, d));
    end_world(&w);
}

static void weights_share_batches_out(void **state)
{
    static const double weights[] = {3, 0, 1};
    enum { BATCH = 4, STEPS = 100, SMALL = 50 };
    toy_corpus toy = {.documents = SMALL, .length = 9, .vocab_size = 1000, .eod_id = 999};
    char list[3 * PATH_MAX] = "";
    int64_t counts[3] = {0};

    (void)state;
    for (int k = 0; k < 3; k++) {
        char name[16];

        (void)snprintf(name, sizeof name, "%d.h5", k);
        toy.first = k * SMALL; /* file after file, the tokens of one toy */
        strcat(list, k > 0 ? "," : "");
        strcat(list, toy_write(&toy, name));
    }
    world w = open_world(list, false, weights);
    bp_loader *loader = open_loader(w.stream, BATCH, 0, BATCH);
    assert_int_equal(bp_loader_windows(loader), 2 * SMALL);
    for (int64_t step = 1; step <= STEPS; step++) {
        const int32_t *got = read_step(loader, step);

        for (int b = 0; b < BATCH; b++) {
            toy_corpus one = {
                .documents = 3 * SMALL, .length = 9, .vocab_size = 1000, .eod_id = 999};
            int64_t number = got[b * VALUES + NUMBER];

            counts[number / SMALL]++;
            for (int64_t t = 0; t < 9; t++)
                assert_int_equal(got[b * VALUES + t], toy_token(&one, number, t));
        }
    }
    assert_int_equal(counts[0], 3 * STEPS);
    assert_int_equal(counts[1], 0);
    bp_loader_free(&loader);
    end_world(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_has_the_documents_of_its_steps),
        cmocka_unit_test(a_bucket_has_batches_of_similar_lengths),
        cmocka_unit_test(each_document_comes_once_an_epoch),
        cmocka_unit_test(ranks_share_the_same_examples),
        cmocka_unit_test(a_bag_holds_documents_as_often_as_drawn),
        cmocka_unit_test(weights_share_batches_out),
    };
    return BP_TEST_RUN(tests);
}
