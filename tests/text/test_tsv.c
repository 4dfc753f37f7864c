/* Tables and pairs: documents of several texts, with labels and values, to however many shares. */
#include "base/buffer.h"
#include "bp_test.h"
#include "text/documents/text_source.h"

/* Documents of all shares in order, "id|text|text|label|value;" each. */
static bp_err tell(bp_buffer *out, const char *const *paths, int count,
                   bp_documents_options options)
{
    bp_documents *shares[3];
    int size = options.share_size;
    bp_err err = BP_OK;

    for (int rank = 0; rank < size; rank++) {
        options.share_rank = rank;
        bp_test_expect(bp_documents_open(&shares[rank], paths, count, &options), BP_OK);
    }
    for (int number = 0; err == BP_OK; number++) {
        bp_piece piece;

        err = bp_documents_next(shares[number % size], &piece);
        if (err != BP_OK || piece.text == NULL)
            break;
        assert_true(piece.apart == (options.format != BP_TEXT_CONLL) && piece.first && piece.last);
        bp_buffer_printf(out, "%s|", piece.id);
        for (int64_t k = 0; k < piece.start_count; k++) {
            size_t end = k + 1 < piece.start_count ? piece.starts[k + 1] : piece.bytes;

            bp_buffer_printf(out, "%.*s|", (int)(end - piece.starts[k]),
                             piece.text + piece.starts[k]);
        }
        for (int k = 0; k < options.label_count; k++)
            bp_buffer_printf(out, "%s|", piece.labels[k]);
        for (int k = 0; k < options.value_count; k++)
            bp_buffer_printf(out, "%g|", piece.values[k]);
        for (size_t at = 0; piece.tags && at < piece.tags_bytes; at += strlen(piece.tags + at) + 1)
            bp_buffer_printf(out, "%s|", piece.tags + at);
        bp_buffer_add(out, ";", 1);
    }
    for (int rank = 0; rank < size; rank++)
        bp_documents_close(&shares[rank]);
    return err;
}

static void expect(const char *const *paths, int count, bp_documents_options options,
                   const char *expected)
{
    for (options.share_size = 1; options.share_size <= 3; options.share_size++) {
        bp_buffer out = {0};

        bp_test_expect(tell(&out, paths, count, options), BP_OK);
        assert_string_equal(out.bytes > 0 ? out.data : "", expected ? expected : "");
        bp_buffer_clear(&out);
    }
}

static void refuse(const char *const *paths, int count, bp_documents_options options,
                   const char *message)
{
    for (options.share_size = 1; options.share_size <= 3; options.share_size++) {
        bp_buffer out = {0};

        bp_test_expect(tell(&out, paths, count, options), BP_ERR_FORMAT);
        bp_test_message_has(message);
        bp_buffer_clear(&out);
    }
}

static const char *const FIELDS[] = {"b", "a"}, *const LABELS[] = {"class"},
                         *const VALUES[] = {"score"};
static const bp_documents_options TABLE = {.format = BP_TEXT_TSV,
                                           .fields = FIELDS,
                                           .labels = LABELS,
                                           .values = VALUES,
                                           .field_count = 2,
                                           .label_count = 1,
                                           .value_count = 1};

static void rows_are_documents(void **state)
{
    static const char first[] = "a\tclass\tb\tscore\n"
                                "one\tx\ttwo \"2\"\t1.5\r\n"
                                "\n"
                                "\ty\tB\t-2e1\n";
    static const char second[] = "id\tscore\tb\ta\tclass\nn7\t3\tt\tu\t"; /* other columns */
    char paths[2][4096];

    (void)state;
    (void)snprintf(paths[0], sizeof paths[0], "%s",
                   bp_test_write("1.tsv", first, sizeof first - 1));
    (void)snprintf(paths[1], sizeof paths[1], "%s",
                   bp_test_write("2.tsv", second, sizeof second - 1));
    expect((const char *const[]){paths[0], paths[1]}, 2, TABLE,
           "1.tsv:2|two \"2\"|one|x|1.5|;1.tsv:4|B||y|-20|;n7|t|u||3|;");
}

static void what_is_wrong_with_a_table_is_named(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a\tclass\tscore\n",
         "'b', in a first line of 3: ... at ... t.tsv, line 1 ... [tsv.no_column]"},
        {"\"a\"\t\"b\"\n", "as in \"b\"; ... t.tsv, line 1 ... [tsv.quotes]"},
        {"", "'b', in a first line of 1: ... at ... t.tsv, line 1 ... [tsv.no_column]"},
        {"a\tb\ta\tclass\tscore\n", "'a': at ... t.tsv, line 1 ... [tsv.column_twice]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t1\n1\t2\tx\n",
         "3 fields, and the first line 4: at ... t.tsv, line 3 ... [tsv.ragged]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t1\t\n", "5 fields ... t.tsv, line 2 ... [tsv.ragged]"},
        {"a\tb\tclass\tscore\n1\t2\tx\tnan\n",
         "'nan' of 'score' ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t\n", "'' of 'score' ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t1e99\n", "'1e99' of ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t0x10\n", "'0x10' of ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t1,5\n", "'1,5' of ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\tinf\n", "'inf' of ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\tx\t1 2\n", "'1 2' of ... line 2 ... [value.not_number]"},
        {"a\tb\tclass\tscore\n1\t2\t\xff\t1\n", "'class' ... line 2 ... [tsv.bad_field]"},
    };

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *path = bp_test_write("t.tsv", cases[k].text, strlen(cases[k].text));

        refuse(&path, 1, TABLE, cases[k].message);
    }
}

static void pairs_are_lines_of_two_files(void **state)
{
    static const bp_documents_options options = {.format = BP_TEXT_PAIRS};
    char paths[3][4096];

    (void)state;
    (void)snprintf(paths[0], sizeof paths[0], "%s", bp_test_write("a.de", "ein\nzwei\r\ndrei", 15));
    (void)snprintf(paths[1], sizeof paths[1], "%s", bp_test_write("a.en", "one\ntwo\nthree\n", 14));
    expect((const char *const[]){paths[0], paths[1]}, 2, options,
           "a.de:1|ein|one|;a.de:2|zwei|two|;a.de:3|drei|three|;");
    (void)snprintf(paths[2], sizeof paths[2], "%s", bp_test_write("b.en", "one\ntwo\n", 8));
    refuse((const char *const[]){paths[0], paths[2]}, 2, options,
           "ends with line 2, and ... a.de goes on: at ... b.en ... [pairs.length]");
    refuse((const char *const[]){paths[2], paths[0]}, 2, options,
           "ends with line 2, and ... a.de goes on: at ... b.en ... [pairs.length]");
    (void)snprintf(paths[2], sizeof paths[2], "%s", bp_test_write("b.en", "one\n \nx\n", 8));
    refuse((const char *const[]){paths[0], paths[2]}, 2, options,
           "target ... a.de, line 2 ... [pairs.empty_side]");
    refuse((const char *const[]){paths[2], paths[0]}, 2, options,
           "source ... b.en, line 2 ... [pairs.empty_side]");
}

static void words_have_tags(void **state)
{
    static const bp_documents_options options = {.format = BP_TEXT_CONLL};
    static const char text[] = "\n\nAn\tO\r\nold NN x B-man \n\t\n \n\nWell\tO\n";
    static const struct {
        const char *text, *message;
    } cases[] = {{"a\tO\n\nb\n", "'b' is not ... at ... w.conll, line 3 ... [conll.no_tag]"},
                 {"a\tO\n\tB\n", "line 2 ... [conll.no_tag]"},
                 {"a\t\xff\n", "line 1 ... [tsv.bad_field]"},
                 {"a\tO\rb\tO\r", "'a\\x09O\\x0Db ... line 1 ... [conll.carriage_return]"},
                 {"a\tO\r\r\n", "line 1 ... [conll.carriage_return]"},
                 {"# text = du vin\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\t_\t_"
                  "\t3\tcase\t_\t_\n",
                  "CoNLL-U ... w.conll, line 2 ... cut -f2,4 [conll.universal]"}};
    const char *path = bp_test_write("w.conll", text, sizeof text - 1);

    (void)state;
    expect(&path, 1, options, "w.conll:3|An| old|O|B-man|;w.conll:8|Well|O|;");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        path = bp_test_write("w.conll", cases[k].text, strlen(cases[k].text));
        refuse(&path, 1, options, cases[k].message);
    }
}

static void lines_without_words_are_no_words(void **state)
{
    static const bp_documents_options options = {.format = BP_TEXT_CONLL};
    static const bp_documents_options words = {.format = BP_TEXT_CONLL, .no_tags = true};
    static const struct {
        const char *text, *expected;
    } cases[] = {
        /* marks of documents, with an empty line after them or none */
        {"-DOCSTART- -X- O O\n\nA NN I-NP B-X\n-DOCSTART- -X- O O\nB NN I-NP O\n\n",
         "w.conll:3|A|B-X|;w.conll:5|B|O|;"},
        {"-DOCSTART-\tO\nA\tO\n-X-\tO\nB\tO\n\n\n\n", "w.conll:2|A|O|;w.conll:4|B|O|;"},
        {"-DOCSTART- O\n", NULL},
        /* comments in front of a sentence, before and after the first word of the file */
        {"# newdoc\n# text = A b\n\n# id 7\nA\tO\nb\tO\n\n# text = C\nC\tO\n",
         "w.conll:5|A| b|O|O|;w.conll:9|C|O|;"},
        {"# id 5\tdomain=en\nA _ _ O\n\n# id 6\tdomain=en\nb _ _ B-X\n",
         "w.conll:2|A|O|;w.conll:5|b|B-X|;"},
        /* words that begin with # */
        {"# NN O\n1 CD O\n\n#tag NN O\n# NN O\n", "w.conll:1|#| 1|O|O|;w.conll:4|#tag| #|O|O|;"},
        {"A\tO\n# b\tO\n", "w.conll:1|A| #|O|O|;"},
        {"#fun\tO\nA\tO\n", "w.conll:1|#fun| A|O|O|;"},
        /* numbers are words, in other columns than CoNLL-U's */
        {"1\tCD\tO\n2.5\tCD\tO\n", "w.conll:1|1| 2.5|O|O|;"},
        {"1 2 3 4 5 6 7 8 9 O\n", "w.conll:1|1|O|;"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *path = bp_test_write("w.conll", cases[k].text, strlen(cases[k].text));

        expect(&path, 1, options, cases[k].expected);
    }
    const char *path = bp_test_write("w.conll", "# a b\nA\n#\n\n#tag\n", 16);
    expect(&path, 1, words, "w.conll:2|A| #|||;w.conll:5|#tag||;");
}

static void blank_lines_at_the_end_are_no_pairs(void **state)
{
    static const bp_documents_options options = {.format = BP_TEXT_PAIRS};
    char paths[4][4096];

    (void)state;
    (void)snprintf(paths[0], sizeof paths[0], "%s", bp_test_write("a.de", "ein\nzwei\n", 9));
    (void)snprintf(paths[1], sizeof paths[1], "%s", bp_test_write("a.en", "one\ntwo\n\n \n", 11));
    (void)snprintf(paths[2], sizeof paths[2], "%s", bp_test_write("b.de", "ein\n\nzwei\n\n", 11));
    (void)snprintf(paths[3], sizeof paths[3], "%s", bp_test_write("b.en", "one\n\ntwo\n", 9));
    expect((const char *const[]){paths[0], paths[1]}, 2, options,
           "a.de:1|ein|one|;a.de:2|zwei|two|;");
    expect((const char *const[]){paths[1], paths[0]}, 2, options,
           "a.en:1|one|ein|;a.en:2|two|zwei|;");
    expect((const char *const[]){paths[2], paths[3]}, 2, options,
           "b.de:1|ein|one|;b.de:3|zwei|two|;");
    (void)snprintf(paths[3], sizeof paths[3], "%s", bp_test_write("b.en", "one\ntwo\n\nx\n", 11));
    refuse((const char *const[]){paths[0], paths[3]}, 2, options,
           "ends with line 2, and ... b.en goes on: at ... a.de ... [pairs.length]");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_without_words_are_no_words),
        cmocka_unit_test(blank_lines_at_the_end_are_no_pairs),
        cmocka_unit_test(rows_are_documents),
        cmocka_unit_test(what_is_wrong_with_a_table_is_named),
        cmocka_unit_test(words_have_tags),
        cmocka_unit_test(pairs_are_lines_of_two_files),
    };
    return BP_TEST_RUN(tests);
}
