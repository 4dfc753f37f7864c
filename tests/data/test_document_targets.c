/* What examples of documents ask for: segments, values, sentences, tags, classes, windows of long
 * contexts. */
#include "document_tables.h"

/* Segments and values of a corpus that has them; read one by one, as validation does. */
static void segments_and_values_are_reported(void **state)
{
    static const char *const labels[] = {"kind"}, *const values[] = {"level"};
    bp_corpus_spec spec = {.vocab_size = 100,
                           .eod_id = 99,
                           .tokenizer_hash = TOY_HASH_A,
                           .labels = labels,
                           .label_count = 1,
                           .values = values,
                           .value_count = 1,
                           .has_segments = true};
    bp_document_table_spec asked = {
        .columns = {.label = "kind", .classes = CLASSES, .class_count = 2, .value = "level"}};
    const char *path = bp_test_path("task.h5");
    const bp_document *document;
    bp_document_table *table;
    bp_corpus_writer *writer;

    (void)state;
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (uint32_t d = 0; d < 5; d++) { /* d tokens, then 2 */
        const char *label = d % 2 == 0 ? "x" : "z";
        const float level = (float)d / 2;
        bp_corpus_row row = {.labels = &label, .values = &level};

        for (uint32_t t = 0; t < d + 2; t++) {
            uint32_t id = 10 * d + t;

            if (t == 0 || t == d)
                bp_test_expect(bp_corpus_writer_segment(writer), BP_OK);
            if (t == 0 && d == 0)
                bp_test_expect(bp_corpus_writer_segment(writer), BP_OK);
            bp_test_expect(bp_corpus_writer_tokens(writer, &id, 1), BP_OK);
        }
        bp_test_expect(bp_corpus_writer_end(writer, &row), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    world w = open_world(path, false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_OK);
    assert_int_equal(bp_document_table_count(table), 5);
    for (int64_t d = 0; d < 5; d++) {
        bp_test_expect(bp_document_table_read(table, d, NULL, &document), BP_OK);
        assert_int_equal(document->count, d + 2);
        assert_int_equal(document->tokens[d + 1], 10 * d + d + 1);
        assert_int_equal(document->segments, 2);
        assert_int_equal(document->starts[1], d);
        assert_int_equal(bp_document_table_length(table, d, false, 5),
                         d < 2 ? d + 3 : 5); /* with the end */
        assert_int_equal(document->label, d % 2 == 0 ? 1 : 0);
        assert_true(document->value == (float)d / 2);
    }
    /* of texts apart the longer one counts, and of two as long the other, no further than 3 */
    for (int64_t d = 1; d < 5; d++)
        assert_int_equal(bp_document_table_length(table, d, true, 3) >
                             bp_document_table_length(table, d - 1, true, 3),
                         d < 4);
    bp_document_table_free(&table);
    asked.columns.classes = CLASSES + 1; /* x is known, z is not */
    asked.columns.class_count = 1;
    asked.columns.all_known = true;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has(
        "document 1 ... class 'z' ... knew: x: at ... task.h5 ... [task.unknown_class]");
    asked.columns.label = NULL;
    asked.columns.value = "kind"; /* a label, whose texts are no numbers */
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("'x' is not a finite number ... task.h5 ... [task.bad_value]");
    asked.columns.value = "other";
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("'other' (it has: kind, level) ... task.h5 ... [corpus.no_column]");
    asked.columns = (bp_document_columns){.label = "other"};
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("'other' (it has: kind) ... task.h5 ... [corpus.no_column]");
    end_world(&w);
}

/* Runs of sentences: as many as there are in so many tokens, in order, none left out. */
static void runs_hold_whole_sentences(void **state)
{
    bp_corpus_spec spec = {
        .vocab_size = 1000, .eod_id = 999, .tokenizer_hash = TOY_HASH_A, .has_segments = true};
    const char *path = bp_test_path("sentences.h5");
    static const int64_t lengths[] = {3, 4, 2, 30, 1, 1, 9, 10};
    static const int64_t runs[] = {9, 30, 2, 9, 10}; /* of 10 tokens */
    bp_document_table_spec asked = {.run_tokens = 10};
    const bp_document *run;
    bp_document_table *table;
    bp_corpus_writer *writer;
    uint32_t id = 0;

    (void)state;
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (int d = 0; d < 2; d++) {
        for (size_t s = 0; s < sizeof lengths / sizeof lengths[0]; s++) {
            bp_test_expect(bp_corpus_writer_segment(writer), BP_OK);
            for (int64_t t = 0; t < lengths[s]; t++, id++)
                bp_test_expect(bp_corpus_writer_tokens(writer, &id, 1), BP_OK);
        }
        bp_test_expect(bp_corpus_writer_end(writer, &(bp_corpus_row){0}), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    world w = open_world(path, false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_OK);
    for (int64_t k = 0, at = 0; k < bp_document_table_count(table); k++) {
        bp_test_expect(bp_document_table_read(table, k, NULL, &run), BP_OK);
        assert_int_equal(run->count, runs[k % 5]);
        assert_int_equal(run->segments, k % 5 == 0 ? 3 : k % 5 == 2 ? 2 : 1);
        assert_int_equal(run->number, k / 5);
        for (int64_t t = 0; t < run->count; t++)
            assert_int_equal(run->tokens[t], at++);
    }
    assert_int_equal(bp_document_table_count(table), 10);
    bp_document_table_free(&table);
    end_world(&w);
    toy_corpus plain = {.documents = 3, .length = 9, .vocab_size = 1000, .eod_id = 999};
    w = open_world(toy_write(&plain, "plain.h5"), false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_CONFIG);
    bp_test_message_has("plain.h5 ... [corpus.no_segments]");
    end_world(&w);
}

static void note_pair(const bp_example_maker *self, const bp_document *document, int64_t step,
                      int64_t slot, bp_example *out)
{
    (void)self, (void)step, (void)slot;
    assert_true(document->is_run);
    assert_int_equal(document->starts[document->segments], document->count);
    out->inputs[0][0] = (int32_t)document->number;
    out->inputs[0][1] = document->other ? (int32_t)document->other->number : -1;
    out->inputs[0][2] = document->tokens[0];
    out->inputs[0][3] = document->other ? document->other->tokens[0] : -1;
}

static const bp_example_maker PAIRS = {
    .form = {.stream = {{.T = 4}}}, .feed = BP_FEED_RUNS, .window = 20, .make_document = note_pair};

/* Documents of `sentences` sentences of 7 tokens, whose id is the document's number. */
static const char *write_sentences(const char *name, const int64_t *sentences, int documents)
{
    bp_corpus_spec spec = {
        .vocab_size = 1000, .eod_id = 999, .tokenizer_hash = TOY_HASH_A, .has_segments = true};
    const char *path = bp_test_path(name);
    bp_corpus_writer *writer;

    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (int d = 0; d < documents; d++) {
        for (int64_t s = 0; s < sentences[d]; s++) {
            const uint32_t id = (uint32_t)d, ids[] = {id, id, id, id, id, id, id};

            bp_test_expect(bp_corpus_writer_segment(writer), BP_OK);
            bp_test_expect(bp_corpus_writer_tokens(writer, ids, 7), BP_OK);
        }
        bp_test_expect(bp_corpus_writer_end(writer, &(bp_corpus_row){0}), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    return path;
}

/* Beside each run stands one of another document, on any ranks the same; a document that fills the
 * shuffle buffers does not hide the others, and where there is no other none is reported. */
static void another_document_stands_beside_a_run(void **state)
{
    static const int64_t few[] = {9, 4, 0, 30, 5}, giant[] = {60000, 3}, one[] = {10};
    const struct {
        const char *path;
        int documents;
    } cases[] = {{write_sentences("few.h5", few, 5), 5},
                 {write_sentences("giant.h5", giant, 2), 2},
                 {write_sentences("one.h5", one, 1), 1}};

    (void)state;
    for (int c = 0; c < 3; c++) {
        world all = open_world(cases[c].path, false, NULL),
              half = open_world(cases[c].path, false, NULL);
        bp_loader *whole, *part;
        bp_loader_spec spec = {
            .stream = all.stream, .maker = PAIRS, .batch = 4, .slots = 4, .seed = 9};
        int64_t lone = 0, seen[5] = {0};

        bp_test_expect(bp_loader_new(&whole, &spec), BP_OK);
        spec.stream = half.stream;
        spec.first_slot = spec.slots = 2;
        bp_test_expect(bp_loader_new(&part, &spec), BP_OK);
        for (int64_t step = 1; step <= 200; step++) {
            const int32_t *got = read_step(whole, step);

            assert_memory_equal(got + 8, read_step(part, step), 8 * sizeof *got);
            for (int b = 0; b < 4; b++, got += 4) {
                lone += got[1] < 0;
                assert_int_not_equal(got[0], got[1]);
                if (got[1] >= 0) {
                    assert_int_equal(got[1] == 2 ? 2 : got[3], got[1]); /* 2 is empty */
                    seen[got[1]]++;
                }
            }
        }
        assert_true(c == 2 ? lone == 800 : c == 0 ? lone == 0 : lone < 800);
        for (int d = 0; c == 0 && d < 5; d++)
            assert_true(seen[d] > 20);
        bp_loader_free(&whole);
        bp_loader_free(&part);
        end_world(&all);
        end_world(&half);
    }
}

/* Tags in the order that is asked for, -1 where there is none, -2 for another one. */
static void tags_stand_at_words(void **state)
{
    static const char *const wanted[] = {"B", "O"}, *const given[] = {"O", NULL, "B", "I", NULL};
    static const int32_t expected[] = {1, -1, 0, -2, -1};
    bp_corpus_spec spec = {
        .vocab_size = 100, .eod_id = 99, .tokenizer_hash = TOY_HASH_A, .has_tags = true};
    bp_document_table_spec asked = {.columns = {.tags = wanted, .tag_count = 2}};
    const char *path = bp_test_path("tags.h5");
    const bp_document *document;
    bp_document_table *table;
    bp_corpus_writer *writer;
    char **names;
    int64_t count;

    (void)state;
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (uint32_t d = 0; d < 3; d++) {
        for (uint32_t t = 0; t < 5; t++) {
            if (given[t])
                bp_test_expect(bp_corpus_writer_tag(writer, given[t]), BP_OK);
            bp_test_expect(bp_corpus_writer_tokens(writer, &t, 1), BP_OK);
        }
        bp_test_expect(bp_corpus_writer_end(writer, &(bp_corpus_row){0}), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    world w = open_world(path, false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_OK);
    for (int64_t d = 0; d < 3; d++) {
        bp_test_expect(bp_document_table_read(table, d, NULL, &document), BP_OK);
        assert_int_equal(document->count, 5);
        assert_memory_equal(document->tags, expected, sizeof expected);
    }
    bp_document_table_free(&table);
    asked.columns.all_known = true;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has(
        "document 0 ... tag 'I' ... knew: B, O: at ... tags.h5 ... [task.unknown_tag]");
    bp_test_expect(bp_corpus_tags(w.corpus, &names, &count), BP_OK);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "B");
    assert_string_equal(names[2], "O");
    bp_names_free(&names, count);
    end_world(&w);
    toy_corpus plain = {.documents = 3, .length = 9, .vocab_size = 1000, .eod_id = 999};
    w = open_world(toy_write(&plain, "plain.h5"), false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("plain.h5 ... [corpus.no_tags]");
    end_world(&w);
}

/* Its last document has a tag that training may not know, its list of tags one that no word has. */
static void unknown_tags_name_their_document(void **state)
{
    static const char *const known[] = {"O", "I"}, *const given[] = {"O", "I"};
    bp_corpus_spec spec = {
        .vocab_size = 100, .eod_id = 99, .tokenizer_hash = TOY_HASH_A, .has_tags = true};
    bp_document_table_spec asked = {.columns = {.tags = known, .all_known = true}};
    const char *path = bp_test_path("unknown_tags.h5");
    bp_document_table *table;
    bp_corpus_writer *writer;

    (void)state;
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (uint32_t d = 0; d < 2; d++) {
        bp_test_expect(bp_corpus_writer_tag(writer, given[d]), BP_OK);
        bp_test_expect(bp_corpus_writer_tokens(writer, &d, 1), BP_OK);
        for (int k = 0; d == 1 && k < 2; k++) /* of the end token, and of none */
            bp_test_expect(bp_corpus_writer_tag(writer, k == 0 ? "O" : "Z"), BP_OK);
        bp_test_expect(bp_corpus_writer_end(writer, &(bp_corpus_row){0}), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    world w = open_world(path, false, NULL);
    asked.stream = w.stream;
    asked.columns.tag_count = 1;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("document 1 ... tag 'I' ... knew: O: at ... [task.unknown_tag]");
    asked.columns.tag_count = 2;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("list of tags has 'Z', which no word has ... knew: O, I: at ... "
                        "unknown_tags.h5 ... [task.unknown_tag]");
    end_world(&w);
}

static void classes_are_the_values_in_order(void **state)
{
    toy_corpus toy = {.documents = 5, .length = 9, .vocab_size = 1000, .eod_id = 999};
    char **names;
    int64_t count;
    world w = open_world(toy_write(&toy, "classes.h5"), false, NULL);

    (void)state;
    bp_test_expect(bp_corpus_classes(w.corpus, "kind", &names, &count), BP_OK);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "x");
    assert_string_equal(names[2], "z");
    bp_names_free(&names, count);
    bp_test_expect(bp_corpus_classes(w.corpus, "genre", &names, &count), BP_ERR_FORMAT);
    bp_test_message_has("'genre' (it has: kind) ... [corpus.no_column]");
    end_world(&w);
}

/* Questions of 3 tokens with contexts of 4, 9, 20: each window is an entry of its own, in the table
 * and in an epoch, and together windows cover the context. */
enum { PLACES = 10, STEP = 5 };
static const int64_t CONTEXTS[] = {4, 9, 20}, WINDOWS[] = {1, 2, 4};

static const char *write_questions(void)
{
    const int64_t answer[2] = {4, 6}, none[2] = {0, 0};
    const char *path = bp_test_path("questions.h5");
    bp_corpus_spec spec = {.vocab_size = 100,
                           .eod_id = 99,
                           .tokenizer_hash = TOY_HASH_A,
                           .has_segments = true,
                           .has_spans = true};
    bp_corpus_writer *writer;

    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (int d = 0; d < 3; d++) {
        bp_corpus_row row = {.answer = d == 1 ? none : answer,
                             .context = d < 2 ? "one" : "two",
                             .answers = d == 1 ? "[]" : "[\"x\"]"};

        for (uint32_t t = 0; t < 3 + CONTEXTS[d]; t++) {
            if (t == 0 || t == 3)
                bp_test_expect(bp_corpus_writer_segment(writer), BP_OK);
            bp_test_expect(bp_corpus_writer_tokens(writer, &t, 1), BP_OK);
        }
        bp_test_expect(bp_corpus_writer_end(writer, &row), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    return path;
}

static void note_window(const bp_example_maker *self, const bp_document *document, int64_t step,
                        int64_t slot, bp_example *out)
{
    (void)self, (void)step, (void)slot;
    assert_int_equal(document->count, 3 + CONTEXTS[document->number]);
    out->inputs[0][0] = (int32_t)document->number;
    out->inputs[0][1] = (int32_t)document->window;
}

static void windows_cover_long_contexts(void **state)
{
    static const bp_example_maker maker = {
        .form = {.stream = {{.T = 2}}}, .feed = BP_FEED_DOCUMENTS, .make_document = note_window};
    bp_document_table_spec asked = {.columns = {.spans = true, .windows = {PLACES, STEP}}};
    world w = open_world(write_questions(), false, NULL);
    const char *context, *answers;
    const bp_document *document;
    bp_document_table *table;
    bp_loader *loader;
    bool unanswered;
    int seen[3][4] = {{0}};
    int64_t entry = 0;

    (void)state;
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_OK);
    assert_int_equal(bp_document_table_count(table), 1 + 2 + 4);
    for (int64_t d = 0; d < 3; d++) {
        int64_t end = 0;

        for (int64_t k = 0; k < WINDOWS[d]; k++) {
            bp_text_window at = bp_window_at(&asked.columns.windows, 3, CONTEXTS[d], k);

            bp_test_expect(bp_document_table_read(table, entry++, NULL, &document), BP_OK);
            assert_int_equal(document->number, d);
            assert_int_equal(document->window, k);
            assert_int_equal(document->tokens[2 + CONTEXTS[d]], 2 + CONTEXTS[d]);
            assert_int_equal(document->answer[1], d == 1 ? 0 : 6);
            assert_int_equal(at.question, 3);
            assert_int_equal(at.first, k * STEP);
            assert_true(at.first <= end && at.count <= PLACES - 3);
            end = at.first + at.count;
        }
        assert_int_equal(end, CONTEXTS[d]);
    }
    bp_document_table_free(&table);
    bp_test_expect(bp_corpus_has_unanswered(&unanswered, w.corpus), BP_OK);
    assert_true(unanswered);
    bp_test_expect(bp_corpus_answers(w.corpus, 2, &context, &answers), BP_OK);
    assert_string_equal(context, "two");
    assert_string_equal(answers, "[\"x\"]");
    bp_test_expect(bp_loader_new(&loader, &(bp_loader_spec){.stream = w.stream,
                                                            .maker = maker,
                                                            .columns = asked.columns,
                                                            .batch = 1,
                                                            .slots = 1,
                                                            .seed = 5}),
                   BP_OK);
    for (int64_t step = 1; step <= 7; step++) {
        const int32_t *got = read_step(loader, step);

        seen[got[0]][got[1]]++;
    }
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(seen[d][k], k < WINDOWS[d]);
    bp_loader_free(&loader);
    end_world(&w);
    toy_corpus plain = {.documents = 3, .length = 9, .vocab_size = 1000, .eod_id = 999};
    w = open_world(toy_write(&plain, "plain.h5"), false, NULL);
    asked.stream = w.stream;
    bp_test_expect(bp_document_table_new(&table, &asked), BP_ERR_FORMAT);
    bp_test_message_has("plain.h5 ... [corpus.no_spans]");
    end_world(&w);
}

/* A question that is longer than half of the places gives way; a step is no longer than the
 * capacity.
 */
static void long_questions_give_way(void **state)
{
    const bp_window_rule rule = {PLACES, 100};
    bp_text_window at = bp_window_at(&rule, 50, 12, 2);

    (void)state;
    assert_int_equal(bp_windows_count(&rule, 50, 12), 3);
    assert_int_equal(at.question, PLACES / 2);
    assert_int_equal(at.first, 10);
    assert_int_equal(at.count, 2);
    assert_int_equal(bp_windows_count(&rule, 3, 7), 1);
    assert_int_equal(bp_windows_count(&rule, 3, 8), 2);
    assert_int_equal(bp_windows_count(&rule, 3, 0), 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_and_values_are_reported),
        cmocka_unit_test(runs_hold_whole_sentences),
        cmocka_unit_test(another_document_stands_beside_a_run),
        cmocka_unit_test(tags_stand_at_words),
        cmocka_unit_test(unknown_tags_name_their_document),
        cmocka_unit_test(classes_are_the_values_in_order),
        cmocka_unit_test(windows_cover_long_contexts),
        cmocka_unit_test(long_questions_give_way),
    };
    return BP_TEST_RUN(tests);
}
