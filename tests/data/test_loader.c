/* Lanes against plain loops. */
#include "bp_test.h"
#include "read_windows.h"

#include "base/fault.h"
#include "data/loader.h"
#include "plain_epoch.h"
#include "toy_corpus.h"

static bp_corpus *open_corpus(const char *list)
{
    bp_corpus *corpus;

    bp_test_expect(bp_corpus_open(&corpus, list), BP_OK);
    return corpus;
}

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
    assert_int_equal(bp_loader_windows(loader), w->windows);
    return loader;
}

/* Step `step` as the loader give it is what the contract says. */
static void check_step(const world *w, int64_t step, int64_t first_slot, int64_t slots,
                       const int32_t *got)
{
    int64_t length = w->windows / w->batch;

    for (int64_t b = 0; b < slots; b++) {
        int64_t slot = first_slot + b, index = (step - 1) * w->batch + slot;
        int64_t epoch = length > 0 ? (step - 1) / length : index / w->windows;
        int64_t entry = length > 0 ? slot * length + (step - 1) % length : index % w->windows;
        int64_t *list = plain_epoch(w->windows, w->context, 0, epoch);

        assert_memory_equal(got + b * (w->context + 1), w->tokens + list[entry] * w->context,
                            (size_t)(w->context + 1) * sizeof(*got));
        bp_free(list);
    }
}

static void steps_are_the_plain_loops_steps(void **state)
{
    toy_corpus toy = {.documents = 700, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "lanes.h5", 1000, 6); /* 11 blocks, 3 buffers, 699 windows */
    bp_loader *loader = make_loader(&w, 0, 6);
    int32_t *got = bp_alloc("test", 6 * 1001, sizeof(*got));

    assert_int_equal(w.windows, 699);
    assert_false(bp_loader_repeat(loader));
    for (int64_t step = 1; step <= 116 * 2 + 3; step++) { /* into the third epoch */
        bp_test_expect(read_windows(loader, step, got), BP_OK);
        if (step % 9 == 1 || step % 116 < 2)
            check_step(&w, step, 0, 6, got);
    }
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

/* Each slot reads its stretch of the stream, window after window, epoch after epoch. */
static void in_sequence_a_slot_reads_on(void **state)
{
    enum { T = 1000, BATCH = 6 };
    toy_corpus toy = {.documents = 700, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "sequence.h5", T, BATCH);
    int64_t length = w.windows / BATCH;
    bp_loader *loader;
    int32_t *got = bp_alloc("test", BATCH * (T + 1), sizeof(*got));

    (void)state;
    bp_test_expect(bp_loader_new(&loader, &(bp_loader_spec){.stream = w.stream,
                                                            .maker = window_maker(T, BATCH),
                                                            .batch = BATCH,
                                                            .slots = BATCH,
                                                            .in_sequence = true,
                                                            .seed = 3}),
                   BP_OK);
    for (int64_t step = 1; step <= 2 * length + 3; step++) {
        bp_test_expect(read_windows(loader, step, got), BP_OK);
        for (int64_t b = 0; b < BATCH; b++)
            assert_memory_equal(got + b * (T + 1),
                                w.tokens + (b * length + (step - 1) % length) * T,
                                (T + 1) * sizeof(*got));
    }
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

static void any_step_at_any_time(void **state)
{
    static const int64_t steps[] = {117, 1, 2, 3, 50, 49, 50, 51, 1000000007, 116, 117, 118};
    toy_corpus toy = {.documents = 700, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "any.h5", 1000, 6);
    bp_loader *loader = make_loader(&w, 0, 6);
    int32_t *got = bp_alloc("test", 6 * 1001, sizeof(*got));

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        bp_test_expect(read_windows(loader, steps[i], got), BP_OK);
        check_step(&w, steps[i], 0, 6, got);
    }
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

static void an_epoch_has_every_window_once(void **state)
{
    toy_corpus toy = {.documents = 1, .length = 400000, .vocab_size = 60000, .eod_id = 59999};
    world w =
        make_world(&toy, "epoch.h5", 100, 7); /* 4,000 windows, 571 a batch slot, 3 left over */
    bp_loader *loader = make_loader(&w, 0, 7);
    int32_t *got = bp_alloc("test", 7 * 101, sizeof(*got));
    int left[2][3];

    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int *seen = bp_alloc("test", w.windows, sizeof(*seen)), missing = 0;

        for (int64_t step = 1 + epoch * 571; step <= (epoch + 1) * 571; step++) {
            bp_test_expect(read_windows(loader, step, got), BP_OK);
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
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

static void slots_do_not_depend_on_who_owns_them(void **state)
{
    enum { STEPS = 7, SLOTS = 8, WINDOW = 129 };
    toy_corpus toy = {.documents = 300, .length = 999, .vocab_size = 1000, .eod_id = 999};
    world w = make_world(&toy, "ranks.h5", WINDOW - 1, SLOTS);
    static int32_t want[STEPS][SLOTS][WINDOW], got[SLOTS][WINDOW];
    bp_loader *loader = make_loader(&w, 0, SLOTS);

    for (int step = 0; step < STEPS; step++)
        bp_test_expect(read_windows(loader, step + 1, want[step][0]), BP_OK);
    bp_loader_free(&loader);
    for (int ranks = 2; ranks <= SLOTS; ranks *= 2) {
        int slots = SLOTS / ranks;

        for (int rank = 0; rank < ranks; rank++) {
            loader = make_loader(&w, rank * slots, slots);
            for (int step = 0; step < STEPS; step++) {
                bp_test_expect(read_windows(loader, step + 1, got[0]), BP_OK);
                assert_memory_equal(got, want[step][rank * slots], (size_t)slots * sizeof(got[0]));
            }
            bp_loader_free(&loader);
        }
    }
    end_world(&w);
}

static void more_slots_than_windows_repeat(void **state)
{
    toy_corpus toy = {.documents = 5, .length = 9, .vocab_size = 100, .eod_id = 99};
    world w = make_world(&toy, "few.h5", 10, 11); /* 4 windows for 11 slots */
    bp_loader *loader = make_loader(&w, 2, 9);
    int32_t *got = bp_alloc("test", 9 * 11, sizeof(*got));

    assert_int_equal(w.windows, 4);
    assert_true(bp_loader_repeat(loader));
    for (int64_t step = 1; step < 20; step++) {
        bp_test_expect(read_windows(loader, step, got), BP_OK);
        check_step(&w, step, 2, 9, got);
    }
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

static void wide_vocabularies_and_long_windows(void **state)
{
    toy_corpus toy = {.documents = 2, .length = 200000, .vocab_size = 200000, .eod_id = 199999};
    world w = make_world(&toy, "wide.h5", 100000, 2); /* windows longer than a block */
    bp_loader *loader = make_loader(&w, 0, 2);
    int32_t *got = bp_alloc("test", 2 * 100001, sizeof(*got));

    assert_int_equal(w.windows, 4);
    for (int64_t step = 1; step <= 4; step++) {
        bp_test_expect(read_windows(loader, step, got), BP_OK);
        check_step(&w, step, 0, 2, got);
    }
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

static void blocks_are_decoded_once_but_where_slots_meet(void **state)
{
    toy_corpus toy = {.documents = 1, .length = 40 * SPAN, .vocab_size = 20000, .eod_id = 19999};
    world w = make_world(&toy, "spans.h5", 1024, 4);
    int64_t length = w.windows / 4, blocks = (w.windows - 1) * 1024 / SPAN + 1;
    bp_loader *loader = make_loader(&w, 0, 4);
    int32_t *got = bp_alloc("test", 4 * 1025, sizeof(*got));

    for (int64_t step = 1; step <= length - 3;
         step++) /* the helper reads no further than the epoch */
        bp_test_expect(read_windows(loader, step, got), BP_OK);
    /* three places where loader meet, each inside a buffer of four blocks */
    assert_in_range(bp_loader_blocks_read(loader), blocks - 4, blocks + 3 * POOL);
    bp_loader_free(&loader);
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

static void damage_is_reported_by_the_step_that_meets_it(void **state)
{
    toy_corpus toy = {.documents = 1, .length = 8 * SPAN, .vocab_size = 20000, .eod_id = 19999};
    world w = make_world(&toy, "spoilt.h5", 1024, 1);
    bp_loader *loader = make_loader(&w, 0, 1);
    int32_t *got = bp_alloc("test", 1025, sizeof(*got));
    int64_t step = 1;
    bp_err err;

    spoil(bp_test_path("spoilt.h5"));
    do
        err = read_windows(loader, step++, got);
    while (err == BP_OK && step < w.windows);
    assert_int_equal(err, BP_ERR_FORMAT);
    bp_test_message_has("spoilt.h5 ... [corpus.damaged]");
    bp_test_expect(read_windows(loader, step - 1, got), BP_ERR_FORMAT); /* and again */
    bp_loader_free(&loader);
    bp_free(got);
    end_world(&w);
}

/* Stream, bag, loader and their first step, with the n-th allocation refused. */
static bp_err build_all(bp_corpus *corpus, const double *weights, int n)
{
    bp_stream_spec stream_spec = {.corpus = corpus, .bag = true, .seed = 1, .weights = weights};
    bp_loader_spec slots_spec = {.maker = window_maker(10, 2), .batch = 2, .slots = 2};
    bp_stream *stream = NULL;
    bp_loader *loader = NULL;
    int32_t got[22];
    char fault[32];

    snprintf(fault, sizeof(fault), "base.alloc:%d", n);
    bp_fault_arm(fault);
    bp_err err = bp_stream_new(&stream, &stream_spec);
    slots_spec.stream = stream;
    if (err == BP_OK)
        err = bp_loader_new(&loader, &slots_spec);
    if (err == BP_OK)
        err = read_windows(loader, 1, got);
    bp_fault_arm(NULL);
    bp_loader_free(&loader);
    bp_stream_free(&stream);
    return err;
}

static void short_memory_is_71_wherever_it_strikes(void **state)
{
    toy_corpus toy = {.documents = 20, .length = 9, .vocab_size = 100, .eod_id = 99};
    bp_corpus *corpus = open_corpus(toy_write(&toy, "memory.h5"));
    static const double weights[] = {1};

    for (int weighted = 0; weighted < 2; weighted++) {
        const double *w = weighted ? weights : NULL;
        int n = 1;

        while (build_all(corpus, w, n) != BP_OK) {
            bp_test_expect(build_all(corpus, w, n), BP_ERR_SYSTEM);
            n++;
        }
        assert_in_range(n, 8, 200); /* that many large allocations there are at least */
    }
    bp_corpus_close(&corpus);
}

static void too_few_tokens_are_65(void **state)
{
    toy_corpus toy = {.documents = 1, .length = 9, .vocab_size = 100, .eod_id = 99};
    world w = make_world(&toy, "short.h5", 10, 1);
    bp_loader_spec spec = {
        .stream = w.stream, .maker = window_maker(10, 1), .batch = 1, .slots = 1};
    bp_loader *loader = (bp_loader *)1;
    int32_t got[10];

    bp_test_expect(bp_loader_new(&loader, &spec), BP_ERR_FORMAT);
    assert_null(loader);
    bp_test_message_has("short.h5 ... [corpus.too_short]");
    spec.maker = window_maker(9, 1); /* T + 1 tokens: one window */
    bp_test_expect(bp_loader_new(&loader, &spec), BP_OK);
    assert_int_equal(bp_loader_windows(loader), 1);
    bp_test_expect(read_windows(loader, 1, got), BP_OK);
    assert_memory_equal(got, w.tokens, sizeof(got));
    bp_loader_free(&loader);
    end_world(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_the_plain_loops_steps),
        cmocka_unit_test(in_sequence_a_slot_reads_on),
        cmocka_unit_test(any_step_at_any_time),
        cmocka_unit_test(an_epoch_has_every_window_once),
        cmocka_unit_test(slots_do_not_depend_on_who_owns_them),
        cmocka_unit_test(more_slots_than_windows_repeat),
        cmocka_unit_test(wide_vocabularies_and_long_windows),
        cmocka_unit_test(blocks_are_decoded_once_but_where_slots_meet),
        cmocka_unit_test(damage_is_reported_by_the_step_that_meets_it),
        cmocka_unit_test(short_memory_is_71_wherever_it_strikes),
        cmocka_unit_test(too_few_tokens_are_65),
    };
    return BP_TEST_RUN(tests);
}
