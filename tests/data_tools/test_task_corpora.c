/* bagpipe-data corpus of tables, pairs and sentences: what is in the file, at any number of ranks,
 * and what is refused. */
#include "bp_test.h"
#include "data_tools/tool_run.h"
#include "io/corpus/corpus_file.h"
#include "io/corpus/corpus_writer.h"
#include "text/tokenizer/answers.h"

static const char TABLE[] = "id\ta\tb\tclass\tscore\n"
                            "p1\tthe cat\tthe hat\tyes\t1.5\n"
                            "p2\tthe rat\t\tno\t-2\n"
                            "p3\ta cat and a hat\tx\tyes\t0\n";
static const char PROSE[] = "The cat sat. The rat ran!\n\"The hat?\" said Mr. Cat.\n";

static void make_input(void)
{
    static bool made;

    if (made)
        return;
    made = true;
    bp_test_write("t.tsv", TABLE, sizeof TABLE - 1);
    bp_test_write("prose.txt", PROSE, sizeof PROSE - 1);
    bp_test_write("a.de", "die Katze\nder Hut\nx\n", 20);
    bp_test_write("a.en", "the cat\nthe hat\ny\n", 18);
    bp_test_write("b.en", "the cat\nthe hat\n", 16);
    bp_test_write("c.en", "the cat\n\nx\n", 11);
    expect_tool(0, "tokenizer --size 270 --format lines --out t.json t.tsv prose.txt", 0, "");
}

static void same_bytes_on_any_ranks(const char *arguments, const char *name)
{
    char line[512], file[64], first[64];

    (void)snprintf(first, sizeof first, "%s0.h5", name);
    for (int ranks = 0; ranks <= 3; ranks += 3) {
        (void)snprintf(file, sizeof file, "%s%d.h5", name, ranks);
        (void)snprintf(line, sizeof line, "corpus --tokenizer t.json --out %s %s", file, arguments);
        expect_tool(ranks, line, 0, " documents");
        assert_same_file(first, file);
    }
    (void)snprintf(line, sizeof line, "verify %s", first);
    expect_tool(0, line, 0, "sound");
}

/* Segment s of the file decoded, without the end-of-document token where it is the last. */
static void expect_segment(bp_corpus_file *file, int64_t document, int64_t s, const char *text)
{
    const int64_t *segments, *starts, *documents;
    char *tokenizer_text = NULL, *decoded;
    size_t bytes;
    bp_tokenizer *tokenizer;
    int32_t ids[256];

    bp_test_expect(bp_corpus_file_segments(file, &segments, &starts), BP_OK);
    bp_test_expect(bp_corpus_file_doc_start(file, &documents), BP_OK);
    assert_true(s < segments[document + 1] - segments[document]);
    bool last = segments[document] + s + 1 == segments[document + 1];
    int64_t from = starts[segments[document] + s];
    int64_t end = last ? documents[document + 1] - 1 : starts[segments[document] + s + 1];
    bp_test_expect(bp_corpus_file_read(file, from, end - from, ids), BP_OK);
    bp_test_expect(bp_corpus_file_tokenizer(file, &tokenizer_text, &bytes), BP_OK);
    bp_test_expect(bp_tokenizer_parse(&tokenizer, tokenizer_text, bytes, "corpus"), BP_OK);
    bp_test_expect(
        bp_decode(tokenizer, (const uint32_t *)(const void *)ids, end - from, &decoded, &bytes),
        BP_OK);
    assert_string_equal(decoded, text);
    bp_free(decoded);
    bp_free(tokenizer_text);
    bp_tokenizer_free(&tokenizer);
}

static void rows_have_texts_labels_and_values(void **state)
{
    bp_corpus_file *file;
    bp_corpus_value score;
    bp_corpus_label class;
    char id[8];

    (void)state;
    make_input();
    same_bytes_on_any_ranks("--format tsv --fields a,b --label class --value score t.tsv", "row");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("row0.h5")), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->documents, 3);
    assert_int_equal(bp_corpus_file_info(file)->segments, 6);
    expect_segment(file, 0, 0, "the cat");
    expect_segment(file, 0, 1, "the hat");
    expect_segment(file, 1, 1, "");
    expect_segment(file, 2, 0, "a cat and a hat");
    bp_test_expect(bp_corpus_file_value(file, 0, &score), BP_OK);
    bp_test_expect(bp_corpus_file_label(file, 0, &class), BP_OK);
    bp_test_expect(bp_corpus_file_doc_id(file, 1, id, sizeof id), BP_OK);
    assert_string_equal(id, "p2");
    assert_string_equal(class.values[class.codes[1]], "no");
    assert_true(score.values[0] == 1.5F && score.values[1] == -2.0F && score.values[2] == 0.0F);
    bp_corpus_file_close(&file);
    expect_tool(0, "table row0.h5", 0, "bytes,words,words_split,segments,class,score\n0,p1,");
    assert_true(bp_test_has(output, ",14,4,4,2,yes,1.5\n"));
    expect_tool(0, "inspect row0.h5", 0, "value       score: -2 to 1.5, -0.166667 on average");
}

static void pairs_have_two_texts(void **state)
{
    bp_corpus_file *file;

    (void)state;
    make_input();
    same_bytes_on_any_ranks("--format pairs a.de a.en", "pair");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("pair0.h5")), BP_OK);
    expect_segment(file, 1, 0, "der Hut");
    expect_segment(file, 1, 1, "the hat");
    bp_corpus_file_close(&file);
}

static void sentences_change_no_token(void **state)
{
    bp_corpus_file *file, *plain;
    int32_t ids[2][256];

    (void)state;
    make_input();
    same_bytes_on_any_ranks("--sentences punctuation prose.txt", "stop");
    same_bytes_on_any_ranks("--sentences lines prose.txt", "line");
    same_bytes_on_any_ranks("prose.txt", "plain");
    bp_test_expect(bp_corpus_file_open(&plain, bp_test_path("plain0.h5")), BP_OK);
    assert_false(bp_corpus_file_info(plain)->has_segments);
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("stop0.h5")), BP_OK);
    expect_segment(file, 0, 0, "The cat sat.");
    expect_segment(file, 0, 1, " The rat ran!");
    expect_segment(file, 0, 2, "\n\"The hat?\" said Mr. Cat.\n");
    int64_t count = bp_corpus_file_info(file)->tokens;
    assert_int_equal(count, bp_corpus_file_info(plain)->tokens);
    bp_test_expect(bp_corpus_file_read(file, 0, count, ids[0]), BP_OK);
    bp_test_expect(bp_corpus_file_read(plain, 0, count, ids[1]), BP_OK);
    assert_memory_equal(ids[0], ids[1], (size_t)count * sizeof ids[0][0]);
    bp_corpus_file_close(&file);
    bp_corpus_file_close(&plain);
    expect_tool(0, "inspect line0.h5", 0, "segments    2 (texts or sentences), 2 to 2 a document");
}

/* A tag at the first token of each word, none elsewhere. */
static void words_carry_their_tags(void **state)
{
    static const char text[] = "the\tO\ncat\tB-animal\nzzzq\tI-animal\n\n.\tO\n";
    static const char *const tags[] = {"O", "B-animal", "I-animal", "O"};
    bp_corpus_file *file;
    bp_corpus_label found;
    const int64_t *documents;
    int words = 0;

    (void)state;
    make_input();
    bp_test_write("w.conll", text, sizeof text - 1);
    same_bytes_on_any_ranks("--format conll w.conll", "tag");
    expect_tool(0, "inspect tag0.h5", 0,
                "tags        3 of words: O (2), B-animal (1), I-animal (1)");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("tag0.h5")), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->documents, 2);
    assert_false(bp_corpus_file_info(file)->has_segments);
    bp_test_expect(bp_corpus_file_tags(file, &found), BP_OK);
    bp_test_expect(bp_corpus_file_doc_start(file, &documents), BP_OK);
    int64_t tokens = bp_corpus_file_info(file)->tokens;
    for (int64_t t = 0; t < tokens; t++) {
        bool ends = t + 1 == documents[1] || t + 1 == documents[2];

        if (ends)
            assert_true(found.codes[t] == UINT32_MAX);
        else if (found.codes[t] != UINT32_MAX)
            assert_string_equal(found.values[found.codes[t]], tags[words++]);
    }
    assert_int_equal(words, 4);
    assert_true(found.codes[0] != UINT32_MAX && tokens > 6); /* zzzq is several tokens */
    bp_corpus_file_close(&file);
    bp_test_write("no.conll", "the\n", 4);
    expect_tool(0, "corpus --tokenizer t.json --format conll --out no.h5 no.conll", 65,
                "'the' ... line 1 ... [conll.no_tag]");
}

#define SQUAD(CONTEXT, ANSWERS)                                                                    \
    "{\"data\": [{\"paragraphs\": [{\"context\": \"" CONTEXT                                       \
    "\", \"qas\": [{\"id\": \"q1\", \"question\": \"Who sat?\", " ANSWERS                          \
    "}, {\"id\": \"q2\", \"question\": \"Who ran?\", \"is_impossible\": true, \"answers\": "       \
    "[]}]}]}]}"

static void write_squad(const char *name, const char *text)
{
    bp_test_write(name, text, strlen(text));
}

/* Characters before an answer count, not bytes; a question is the first text. */
static void answers_are_found_in_contexts(void **state)
{
    static const char text[] =
        SQUAD("\u00c4h, the (cat) sat.",
              "\"answers\": [{\"text\": \"the (cat\", \"answer_start\": 4}, {\"text\": \"cat\", "
              "\"answer_start\": 9}]");
    bp_corpus_file *file;
    const int64_t *spans, *segments, *starts;
    const char *texts;
    char id[8];

    (void)state;
    make_input();
    write_squad("q.json", text);
    same_bytes_on_any_ranks("--format squad q.json", "q");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("q0.h5")), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->documents, 2);
    expect_segment(file, 0, 0, "Who sat?");
    expect_segment(file, 1, 1, "\u00c4h, the (cat) sat.");
    bp_test_expect(bp_corpus_file_spans(file, &spans, &texts), BP_OK);
    bp_test_expect(bp_corpus_file_segments(file, &segments, &starts), BP_OK);
    bp_encoder *encoder;
    bp_tokenizer *tokenizer;
    size_t begin, bytes;
    bp_test_expect(bp_tokenizer_load(&tokenizer, bp_test_path("t.json")), BP_OK);
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_context_words_of(encoder, texts + spans[BP_SPAN_CONTEXT],
                                       spans[BP_SPAN_FIRST] - starts[1],
                                       spans[BP_SPAN_END] - starts[1], &begin, &bytes),
                   BP_OK);
    assert_int_equal(begin, 5); /* bytes */
    assert_int_equal(bytes, strlen("the (cat"));
    assert_string_equal(texts + spans[BP_SPAN_ANSWERS], "[\"the (cat\",\"cat\"]");
    assert_int_equal(spans[BP_CORPUS_SPAN + BP_SPAN_END], 0);
    assert_int_equal(spans[BP_CORPUS_SPAN + BP_SPAN_CONTEXT], spans[BP_SPAN_CONTEXT]);
    assert_string_equal(texts + spans[BP_CORPUS_SPAN + BP_SPAN_ANSWERS], "[]");
    bp_test_expect(bp_corpus_file_doc_id(file, 1, id, sizeof id), BP_OK);
    assert_string_equal(id, "q2");
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
    bp_corpus_file_close(&file);
    expect_tool(0, "table q0.h5", 0, "words,words_split,");
    assert_true(bp_test_has(output, ",6,6,2")); /* those of the question, and of the context */
}

/* White space around an answer is no part of it, whether the offset counts it or not. */
static void blanks_around_answers_are_no_words(void **state)
{
    static const char *const cases[] = {
        "\"answers\": [{\"text\": \"cat \", \"answer_start\": 4}]",
        "\"answers\": [{\"text\": \" cat\", \"answer_start\": 3}]",
        "\"answers\": [{\"text\": \" cat\\n\", \"answer_start\": 4}]",
        "\"answers\": [{\"text\": \"cat\\u00a0\", \"answer_start\": 4}]"};

    (void)state;
    make_input();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[1024];
        const int64_t *spans, *segments, *starts;
        const char *texts;
        size_t begin, bytes;
        bp_encoder *encoder;
        bp_tokenizer *tokenizer;
        bp_corpus_file *file;

        (void)snprintf(text, sizeof text, SQUAD("the cat sat in", "%s"), cases[k]);
        write_squad("blank.json", text);
        expect_tool(0, "corpus --tokenizer t.json --format squad --out blank.h5 blank.json", 0, "");
        bp_test_expect(bp_corpus_file_open(&file, bp_test_path("blank.h5")), BP_OK);
        bp_test_expect(bp_corpus_file_spans(file, &spans, &texts), BP_OK);
        bp_test_expect(bp_corpus_file_segments(file, &segments, &starts), BP_OK);
        bp_test_expect(bp_tokenizer_load(&tokenizer, bp_test_path("t.json")), BP_OK);
        bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
        bp_test_expect(bp_context_words_of(encoder, texts + spans[BP_SPAN_CONTEXT],
                                           spans[BP_SPAN_FIRST] - starts[1],
                                           spans[BP_SPAN_END] - starts[1], &begin, &bytes),
                       BP_OK);
        assert_int_equal(begin, 4);
        assert_int_equal(bytes, 3);
        bp_encoder_free(&encoder);
        bp_tokenizer_free(&tokenizer);
        bp_corpus_file_close(&file);
    }
    write_squad("blank.json",
                SQUAD("the cat", "\"answers\": [{\"text\": \" \", \"answer_start\": 3}]"));
    expect_tool(0, "corpus --tokenizer t.json --format squad --out blank.h5 blank.json", 65,
                "[squad.other_answer]");
}

/* Of each format: rows, sentences, pairs and questions that are wrong; the others stay. */
static void what_is_wrong_may_be_left_out(void **state)
{
    static const char table[] = "a\tb\nthe\tcat\nragged\nthe\that\tmore\nthe\trat\n";
    static const char words[] = "the O\ncat O\n\nthe\ncat O\nsat\n\nrat O\n";
    static const char question[] =
        "{\"data\": [{\"x\": NaN, \"paragraphs\": [{\"context\": \"the cat\", \"qas\": ["
        "{\"id\": \"q1\", \"question\": \"Who?\", \"answers\": [{\"text\": \"cat\", "
        "\"answer_start\": 1}]},"
        "{\"id\": \"q2\", \"question\": \"Who?\", \"answers\": [{\"text\": \"cat\", "
        "\"answer_start\": 4}, "
        "{\"text\": \"the\", \"answer_start\": 3}]},"
        "{\"id\": 3, \"question\": \"Who?\"}]}]}]}";
    static const struct {
        const char *arguments, *said, *list;
    } cases[] = {{"--format tsv --fields a,b skip.tsv", "2 documents",
                  "\"line\": 3 ... tsv.ragged ... \"line\": 4"},
                 {"--format conll skip.conll", "2 documents", "\"line\": 4 ... conll.no_tag"},
                 {"--format pairs a.en c.en", "2 documents", "\"line\": 2 ... pairs.empty_side"},
                 {"--format squad skip.json", "1 documents",
                  "\"line\": null, \"id\": \"q1\", ... squad.other_answer ... \"line\": null, "
                  "\"reason\": ... squad.bad_form"}};

    (void)state;
    make_input();
    bp_test_write("skip.tsv", table, sizeof table - 1);
    bp_test_write("skip.conll", words, sizeof words - 1);
    bp_test_write("skip.json", question, sizeof question - 1);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char line[512], name[64], *list;
        size_t bytes;

        for (int ranks = 0; ranks <= 3; ranks += 3) {
            (void)snprintf(line, sizeof line,
                           "corpus --tokenizer t.json --skip-bad 2 --out skip%zu%d.h5 %s", k, ranks,
                           cases[k].arguments);
            expect_tool(ranks, line, 0, cases[k].said);
        }
        (void)snprintf(name, sizeof name, "skip%zu0.h5", k);
        (void)snprintf(line, sizeof line, "skip%zu3.h5", k);
        assert_same_file(name, line);
        (void)snprintf(name, sizeof name, "skip%zu0.h5.skipped.jsonl", k);
        (void)snprintf(line, sizeof line, "skip%zu3.h5.skipped.jsonl", k);
        assert_same_file(name, line);
        bp_test_expect(bp_file_read(bp_test_path(name), 65536, &list, &bytes), BP_OK);
        for (size_t c = 0; c < bytes; c++)
            list[c] = list[c] == '\n' ? ' ' : list[c];
        if (!bp_test_has(list, cases[k].list))
            fail_msg("%s", list);
        bp_free(list);
    }
}

/* Of the first question; the second has none. */
static void expect_unknown_answers(const char *corpus)
{
    bp_corpus_file *file;
    const int64_t *spans;
    const char *texts;

    bp_test_expect(bp_corpus_file_open(&file, bp_test_path(corpus)), BP_OK);
    bp_test_expect(bp_corpus_file_spans(file, &spans, &texts), BP_OK);
    assert_int_equal(spans[BP_SPAN_END], 0);
    assert_string_equal(texts + spans[BP_SPAN_ANSWERS], "null");
    assert_string_equal(texts + spans[BP_CORPUS_SPAN + BP_SPAN_ANSWERS], "[]");
    bp_corpus_file_close(&file);
}

/* Answers that a question lacks or that are null are null, which is not an empty list. */
static void what_a_model_is_to_say_needs_no_target(void **state)
{
    static const char words[] = "the\ncat O\n\nrat\n";
    bp_corpus_file *file;
    bp_corpus_label found;
    int count = 0;

    (void)state;
    make_input();
    write_squad("new.json", SQUAD("the cat sat", "\"title\": 1"));
    same_bytes_on_any_ranks("--format squad new.json", "new");
    expect_unknown_answers("new0.h5");
    write_squad("null.json", SQUAD("the cat sat", "\"answers\": null"));
    expect_tool(0, "corpus --tokenizer t.json --format squad --out null.h5 null.json", 0, "");
    expect_unknown_answers("null.h5");
    bp_test_write("words.conll", words, sizeof words - 1);
    same_bytes_on_any_ranks("--format conll --no-tags words.conll", "word");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("word0.h5")), BP_OK);
    bp_test_expect(bp_corpus_file_tags(file, &found), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->documents, 2);
    assert_int_equal(found.value_count, 1);
    assert_string_equal(found.values[0], "");
    for (int64_t t = 0; t < bp_corpus_file_info(file)->tokens; t++)
        count += found.codes[t] == 0;
    assert_int_equal(count, 3);
    bp_corpus_file_close(&file);
    bp_test_write("no.conll", "the\n cat\n", 9);
    expect_tool(0, "corpus --tokenizer t.json --format conll --no-tags --out no.h5 no.conll", 65,
                "begins with white space ... line 2 ... [conll.no_word]");
}

/* No token for other characters, nor for unknown ones. */
static const char LETTERS[] =
    "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
    "{\"type\": \"Whitespace\"}, \"post_processor\": null, \"decoder\": null, \"model\": "
    "{\"type\": \"BPE\", \"unk_token\": null, \"vocab\": {\"a\": 0, \"c\": 1, \"e\": 2, "
    "\"h\": 3, \"t\": 4}, \"merges\": []}}";

static void questions_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {SQUAD("the cat", "\"answers\": [{\"text\": \"hat\", \"answer_start\": 0}]"),
         "'hat' ... character 0 ... question q1: at bad.json ... "
         "[squad.other_answer]"},
        {SQUAD("the cat", "\"answers\": [{\"text\": \"cat\", \"answer_start\": 99}]"),
         "[squad.other_answer]"},
        {SQUAD("the cat", "\"answers\": [{\"text\": \"cat\"}]"),
         "question q1 ... [squad.bad_form]"},
        {SQUAD("the cat", "\"answers\": 1"), "\"answers\" ... [squad.bad_form]"},
        {SQUAD("", "\"answers\": []"), "\"context\" ... [squad.bad_form]"},
        {"{\"data\": {}}", "\"data\" ... the file ... [squad.bad_form]"},
        {"{\"data\": [{}]}", "\"paragraphs\" ... [squad.bad_form]"},
        {"{\"data\": [{\"paragraphs\": [{}]}]}", "\"qas\" ... [squad.bad_form]"},
        {"{\"data\": [", "[json.invalid]"},
    };

    (void)state;
    make_input();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        write_squad("bad.json", cases[k].text);
        expect_tool(0, "corpus --tokenizer t.json --format squad --out bad.h5 bad.json", 65,
                    cases[k].said);
    }
    bp_test_write("letters.json", LETTERS, sizeof LETTERS - 1);
    write_squad("bad.json", SQUAD("the cat 5", "\"answers\": [{\"text\": \"5\", "
                                               "\"answer_start\": 8}]"));
    expect_tool(0, "corpus --tokenizer letters.json --format squad --out bad.h5 bad.json", 65,
                "no token of an answer: at question q1 ... [squad.no_token]");
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *arguments;
        int status;
        const char *said;
    } cases[] = {
        {"--format tsv t.tsv", 64, "[command.needs_fields]"},
        {"--format jsonl --fields a t.tsv", 64, "[command.needs_fields]"},
        {"--format tsv --fields a,b,c t.tsv", 64, "[command.bad_fields]"},
        {"--format tsv --fields a, t.tsv", 64, "[command.bad_fields]"},
        {"--format lines --label class t.tsv", 64, "[command.needs_jsonl]"},
        {"--format pairs --value score a.de a.en", 64, "[command.needs_jsonl]"},
        {"--format tsv --fields a --no-tags t.tsv", 64, "[command.needs_conll]"},
        {"--format pairs a.de", 64, "[command.needs_two]"},
        {"--format pairs --sentences lines a.de a.en", 64, "[command.no_sentences]"},
        {"--sentences words prose.txt", 64, "[text.unknown_sentences]"},
        {"--format tsv --fields a,z t.tsv", 65, "line 1 ... [tsv.no_column]"},
        {"--format tsv --fields a --value class t.tsv", 65, "line 2 ... [value.not_number]"},
        {"--format tsv --fields a --value score --value score t.tsv", 64, "[label.twice]"},
        {"--format pairs a.de b.en", 65, "b.en ... [pairs.length]"},
        {"--format pairs b.en a.de", 65, "b.en ... [pairs.length]"},
        {"--format pairs a.de c.en", 65, "target ... line 2 ... [pairs.empty_side]"},
    };

    (void)state;
    make_input();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char line[512];

        (void)snprintf(line, sizeof line, "corpus --tokenizer t.json --out no.h5 %s",
                       cases[k].arguments);
        expect_tool(0, line, cases[k].status, cases[k].said);
    }
    expect_tool(2, "corpus --tokenizer t.json --out no.h5 --format pairs a.de b.en", 65,
                "[pairs.length]");
    assert_int_equal(access(bp_test_path("no.h5"), F_OK), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_texts_labels_and_values),
        cmocka_unit_test(pairs_have_two_texts),
        cmocka_unit_test(sentences_change_no_token),
        cmocka_unit_test(words_carry_their_tags),
        cmocka_unit_test(answers_are_found_in_contexts),
        cmocka_unit_test(what_is_wrong_may_be_left_out),
        cmocka_unit_test(blanks_around_answers_are_no_words),
        cmocka_unit_test(what_a_model_is_to_say_needs_no_target),
        cmocka_unit_test(questions_that_do_not_fit_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return BP_TEST_RUN(tests);
}
