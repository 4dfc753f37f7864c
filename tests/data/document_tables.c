/* A loader of labelled documents over a small corpus, for the tests of document tables. */
#include "document_tables.h"

/* Tokens, zeros after; then class, number, tokens, segments. */
static void take_document(const bp_example_maker *self, const bp_document *document, int64_t step,
                          int64_t slot, bp_example *out)
{
    int32_t *to = out->inputs[0];

    (void)self, (void)step, (void)slot;
    for (int64_t t = 0; t < T; t++)
        to[t] = t < document->count ? document->tokens[t] : 0;
    to[KIND] = document->label;
    to[NUMBER] = (int32_t)document->number;
    to[COUNT] = (int32_t)document->count;
    to[SEGMENTS] = (int32_t)document->segments;
    assert_int_equal(document->starts[0], 0);
    assert_int_equal(document->starts[document->segments], document->count);
}

static const bp_example_maker MAKER = {
    .form = {.stream = {{.T = VALUES}}}, .feed = BP_FEED_DOCUMENTS, .make_document = take_document};
const char *const CLASSES[2] = {"z", "x"};
static const bp_document_columns COLUMNS = {.label = "kind", .classes = CLASSES, .class_count = 2};
int64_t bucket;

const toy_corpus *make_toy(void)
{
    static int64_t lengths[DOCUMENTS];
    static const toy_corpus toy = {
        .documents = DOCUMENTS, .lengths = lengths, .vocab_size = 1000, .eod_id = 999};

    for (int64_t d = 0; d < DOCUMENTS; d++)
        lengths[d] = d == LONG ? 70000 : (d * 7919 + d / 13) % 31;
    return &toy;
}

static void check_example(const toy_corpus *toy, const int32_t *got)
{
    static const int32_t kinds[] = {1, -1, 0};
    int64_t d = got[NUMBER], length = toy_length(toy, d);

    assert_int_equal(got[COUNT], length < BP_DOCUMENT_MOST ? length : BP_DOCUMENT_MOST);
    assert_int_equal(got[SEGMENTS], 1);
    assert_int_equal(got[KIND], kinds[d % 3]);
    for (int64_t t = 0; t < T; t++)
        assert_int_equal(got[t], t < length ? toy_token(toy, d, t) : 0);
}

bp_loader *open_loader(bp_stream *stream, int64_t batch, int64_t first, int64_t slots)
{
    bp_loader *loader;

    bp_test_expect(bp_loader_new(&loader, &(bp_loader_spec){.stream = stream,
                                                            .maker = MAKER,
                                                            .columns = COLUMNS,
                                                            .batch = batch,
                                                            .first_slot = first,
                                                            .slots = slots,
                                                            .bucket = bucket,
                                                            .seed = 5}),
                   BP_OK);
    return loader;
}

const int32_t *read_step(bp_loader *loader, int64_t step)
{
    const void *batch;

    bp_test_expect(bp_loader_read(loader, step, &batch), BP_OK);
    return batch;
}

world open_world(const char *list, bool bag, const double *weights)
{
    world w;

    bp_test_expect(bp_corpus_open(&w.corpus, list), BP_OK);
    bp_test_expect(bp_stream_new(&w.stream, &(bp_stream_spec){.corpus = w.corpus,
                                                              .bag = bag,
                                                              .seed = 5,
                                                              .member = 2,
                                                              .weights = weights}),
                   BP_OK);
    return w;
}

void end_world(world *w)
{
    bp_stream_free(&w->stream);
    bp_corpus_close(&w->corpus);
}

void count_epoch(const toy_corpus *toy, bp_loader *loader, int64_t batch, int64_t epoch,
                 int32_t *counts, int32_t *first_number)
{
    int64_t length = bp_loader_windows(loader) / batch;

    memset(counts, 0, DOCUMENTS * sizeof *counts);
    for (int64_t step = epoch * length + 1; step <= (epoch + 1) * length; step++) {
        const int32_t *got = read_step(loader, step);

        for (int64_t b = 0; b < batch; b++) {
            check_example(toy, got + b * VALUES);
            counts[got[b * VALUES + NUMBER]]++;
        }
        if (step == epoch * length + 1)
            *first_number = got[NUMBER];
    }
}

int64_t spread_of(const toy_corpus *toy, bp_loader *loader, int64_t batch, int64_t epoch)
{
    static int32_t counts[DOCUMENTS];
    int64_t length = bp_loader_windows(loader) / batch, spread = 0, left_out = 0;
    int32_t first;

    count_epoch(toy, loader, batch, epoch, counts, &first);
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        assert_true(counts[d] <= 1);
        left_out += counts[d] == 0;
    }
    assert_int_equal(left_out, DOCUMENTS % batch);
    for (int64_t step = epoch * length + 1; step <= (epoch + 1) * length; step++) {
        const int32_t *got = read_step(loader, step);
        int64_t least = INT64_MAX, most = 0;

        for (int64_t b = 0; b < batch; b++) {
            int64_t count = got[b * VALUES + COUNT];

            least = count < least ? count : least;
            most = count > most && count <= 31 ? count : most;
        }
        spread += most > least ? most - least : 0;
    }
    return spread;
}

void sum_documents(bp_loader *loader, int64_t batch, int64_t first, int64_t steps, int64_t sums[2])
{
    sums[0] = sums[1] = 0;
    for (int64_t step = first; step < first + steps; step++) {
        const int32_t *got = read_step(loader, step);

        for (int64_t b = 0; b < batch; b++) {
            int64_t number = got[b * VALUES + NUMBER];

            sums[0] += number;
            sums[1] += number * number;
        }
    }
}
