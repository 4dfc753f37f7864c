/* Documents of files: what each format yields, in whatever pieces, to however many shares. */
#include "base/buffer.h"
#include "base/files/hash.h"
#include "bp_test.h"
#include "random_text.h"
#include "text/documents/text_source.h"

/* What the pieces of all documents say, in one string: "id|label|text;" a document, pieces joined.
 */
static bp_err tell(bp_buffer *out, const char *const *paths, int count,
                   const bp_documents_options *options, bp_documents_stats *stats)
{
    bp_documents *documents;
    bp_piece piece;
    bp_err err = bp_documents_open(&documents, paths, count, options);
    int64_t number = 0, document = -1;

    if (err != BP_OK) {
        assert_null(documents);
        return err;
    }
    while ((err = bp_documents_next(documents, &piece)) == BP_OK && piece.text != NULL) {
        assert_int_equal(piece.number, number++);
        document += piece.first;
        assert_int_equal(piece.document, document);
        if (piece.first) {
            bp_buffer_printf(out, "%s|", piece.id);
            for (int k = 0; k < options->label_count; k++)
                bp_buffer_printf(out, "%s|", piece.labels[k]);
        }
        bp_buffer_add(out, piece.text, piece.bytes);
        if (piece.last)
            bp_buffer_add(out, ";", 1);
    }
    *stats = bp_documents_stats_of(documents);
    bp_documents_close(&documents);
    assert_null(documents);
    return err;
}

static void check(const char *name, const char *text, size_t bytes, bp_documents_options options,
                  const char *expected, int64_t skipped)
{
    const char *path = bp_test_write(name, text, bytes);
    bp_buffer out = {0};
    bp_documents_stats stats;

    bp_test_expect(tell(&out, &path, 1, &options, &stats), BP_OK);
    char *got = bp_buffer_take(&out);
    assert_string_equal(got, expected);
    assert_int_equal(stats.skipped_lines, skipped);
    assert_int_equal(stats.text_bytes, bytes);
    assert_int_equal(stats.consumed_bytes, bytes);
    assert_int_equal(stats.total_bytes, bytes);
    bp_free(got);
}

static void a_file_is_a_document(void **state)
{
    bp_documents_options options = {.format = BP_TEXT_FILE};

    (void)state;
    check("f.txt", "one\n\ntwo\r\n", 10, options, "f.txt|one\n\ntwo\r\n;", 0);
    check("empty.txt", "", 0, options, "empty.txt|;", 0);
}

static void a_line_is_a_document(void **state)
{
    bp_documents_options options = {.format = BP_TEXT_LINES};

    (void)state;
    check("f", "a b\n\nc\n", 7, options, "f:1|a b;f:3|c;", 1);
    check("f", "a\r\n\r\nb\rc", 8, options, "f:1|a;f:3|b\rc;", 1);
    check("f", "\n\n \nlast", 8, options, "f:3| ;f:4|last;", 2);
    check("f", "last\r", 5, options, "f:1|last\r;", 0); /* no newline, so no part of one */
    check("f", "", 0, options, "", 0);
}

static void a_json_object_is_a_document(void **state)
{
    static const char *const labels[] = {"genre", "n"};
    bp_documents_options options = {.format = BP_TEXT_JSONL, .labels = labels, .label_count = 2};
    const char *text = "{\"text\": \"a\\nb\", \"id\": \"x1\", \"genre\": \"news\", \"n\": 3}\n"
                       "  \n"
                       "{\"id\": 42, \"text\": \"\\u00e9\\ud83d\\ude00\", \"genre\": null}\r\n"
                       "{\"text\": \"\", \"n\": true, \"genre\": 0.1, \"other\": [{}]}\n"
                       "{\"text\": \"\", \"n\": 1, \"genre\": 1.0}";

    (void)state;
    check("f", text, strlen(text), options,
          "x1|news|3|a\nb;42|||\xC3\xA9\xF0\x9F\x98\x80;f:4|0.1|true|;f:5|1.0|1|;", 1);
}

static void a_byte_order_mark_is_no_text(void **state)
{
    static const char object[] = "\xEF\xBB\xBF{\"text\": \"a\"}\n", line[] = "\xEF\xBB\xBF"
                                                                             "a\n";
    bp_documents_options options = {.format = BP_TEXT_JSONL};

    (void)state;
    check("f", object, sizeof object - 1, options, "f:1|a;", 0);
    options.format = BP_TEXT_LINES;
    check("f", line, sizeof line - 1, options, "f:1|a;", 0);
    options.format = BP_TEXT_FILE;
    check("f", line, sizeof line - 1, options, "f|a\n;", 0);
    check("f", line, 3, options, "f|;", 0);
    check("f", "\xEF\xBB", 2, options, "f|\xEF\xBB;", 0);
}

static void a_long_id_or_label_is_refused_with_its_line(void **state)
{
    static const char *const labels[] = {"genre"}, *const names[] = {"id", "genre"};
    bp_documents_options options = {.format = BP_TEXT_JSONL, .labels = labels, .label_count = 1};

    (void)state;
    for (int k = 0; k < 4; k++) {
        char text[2 * BP_TEXT_FIELD_BYTES];
        int bytes = snprintf(text, sizeof text, "\n{\"text\": \"\", \"%s\": \"%0*d\"}",
                             names[k / 2], BP_TEXT_FIELD_BYTES + k % 2, 1);
        const char *path = bp_test_write("long.jsonl", text, (size_t)bytes);
        bp_buffer out = {0};
        bp_documents_stats stats;

        bp_test_expect(tell(&out, &path, 1, &options, &stats), k % 2 == 0 ? BP_OK : BP_ERR_FORMAT);
        if (k % 2 == 1) {
            bp_test_message_has("1025 bytes ... 1024 ... [text.field_too_long]");
            bp_test_message_has("long.jsonl, line 2 ... [text.field_too_long]");
        }
        bp_buffer_clear(&out);
    }
}

static void another_field_holds_the_text(void **state)
{
    const char *path =
        bp_test_write("f", "{\"text\": \"a\", \"body\": \"b\"}\n{\"text\": \"c\"}", 40);
    bp_documents_options options = {.format = BP_TEXT_JSONL, .text_field = "body"};
    bp_documents *documents;
    bp_piece piece;

    (void)state;
    bp_test_expect(bp_documents_open(&documents, &path, 1, &options), BP_OK);
    bp_test_expect(bp_documents_next(documents, &piece), BP_OK);
    assert_int_equal(piece.bytes, 1);
    assert_memory_equal(piece.text, "b", 1);
    bp_test_expect(bp_documents_next(documents, &piece), BP_ERR_FORMAT);
    bp_test_message_has("[text.missing_field]");
    bp_test_message_has("\"body\"");
    bp_test_message_has("--text-field ... [text.missing_field]");
    bp_documents_close(&documents);
}

static void zero_bytes_are_text(void **state)
{
    const char *path = bp_test_write("z", "{\"text\": \"a\\u0000b\"}", 20);
    bp_documents_options options = {.format = BP_TEXT_JSONL};
    bp_documents *documents;
    bp_piece piece;

    (void)state;
    bp_test_expect(bp_documents_open(&documents, &path, 1, &options), BP_OK);
    bp_test_expect(bp_documents_next(documents, &piece), BP_OK);
    assert_int_equal(piece.bytes, 3);
    assert_memory_equal(piece.text, "a\0b", 3);
    bp_documents_close(&documents);
}

static void broken_lines_are_named(void **state)
{
    static const struct {
        const char *line, *message;
    } bad[] = {
        {"{\"text\": \"a\"", "[json.invalid]"},
        {"{\"text\": \"\xFF\"}", "[json.invalid]"},
        {"{\"text\": \"\\ud800\"}", "[json.invalid]"},
        {"{\"text\": \"a\"} x", "[json.invalid]"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "[json.invalid]"},
        {"[\"text\"]", "[text.not_object]"},
        {"\"text\"", "[json.invalid]"},
        {"{\"txt\": \"a\"}", "[text.missing_field]"},
        {"{\"text\": 5}", "[text.missing_field]"},
        {"{\"text\": \"a\", \"id\": {}}", "\"id\""},
        {"{\"text\": \"a\", \"genre\": [1]}", "\"genre\""},
        {"{\"text\": \"a\", \"genre\": \"x\\u0000\"}", "\"genre\""},
    };
    static const char *const labels[] = {"genre"};
    bp_documents_options options = {.format = BP_TEXT_JSONL, .labels = labels, .label_count = 1};

    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        bp_buffer text = {0}, out = {0};
        bp_documents_stats stats;

        bp_buffer_printf(&text, "{\"text\": \"good\"}\n\n%s\n", bad[k].line);
        const char *path = bp_test_write("bad.jsonl", text.data, text.bytes);
        bp_test_expect(tell(&out, &path, 1, &options, &stats), BP_ERR_FORMAT);
        bp_test_message_has(bad[k].message);
        bp_test_message_has("bad.jsonl, line 3");
        bp_buffer_clear(&text);
        bp_buffer_clear(&out);
    }
}

static void files_follow_each_other(void **state)
{
    const char *paths[] = {bp_test_write("a", "1\n2", 3), bp_test_write("b", "", 0),
                           bp_test_write("c", "3\n", 2)};
    bp_documents_options options = {.format = BP_TEXT_LINES};
    bp_buffer out = {0};
    bp_documents_stats stats;

    (void)state;
    bp_test_expect(tell(&out, paths, 3, &options, &stats), BP_OK);
    assert_string_equal(out.data, "a:1|1;a:2|2;c:1|3;");
    assert_int_equal(stats.documents, 3);
    assert_int_equal(stats.total_bytes, 5);
    assert_int_equal(stats.consumed_bytes, 5);
    bp_buffer_clear(&out);
    paths[1] = bp_test_path("none"); /* said at once, not after the first file */
    bp_test_expect(tell(&out, paths, 3, &options, &stats), BP_ERR_INPUT);
    assert_int_equal(out.bytes, 0);
}

/* The same documents, whatever the pieces: long ones come in several, cut where the kind allows. */
static void pieces_make_up_the_document(void **state)
{
    static const bp_cut cuts[] = {BP_CUT_SPACE, BP_CUT_PATTERN, BP_CUT_CHAR, BP_CUT_NEVER};
    static char text[60000];
    random_text r = random_text_of(3);
    size_t bytes = random_fill(&r, text, sizeof text, true);
    const char *path = bp_test_write("t", text, bytes);

    (void)state;
    for (int format = 0; format < 2; format++) {
        bp_documents_options options = {.format = (bp_text_format)format};
        bp_buffer whole = {0};
        bp_documents_stats stats;

        bp_test_expect(tell(&whole, &path, 1, &options, &stats), BP_OK);
        assert_int_equal(stats.pieces, stats.documents);
        for (int k = 0; k < 4; k++) {
            bp_buffer out = {0};

            options.cut = cuts[k];
            options.piece_bytes = 64;
            bp_test_expect(tell(&out, &path, 1, &options, &stats), BP_OK);
            assert_int_equal(out.bytes, whole.bytes);
            assert_memory_equal(out.data, whole.data, whole.bytes);
            assert_true(cuts[k] == BP_CUT_NEVER ? stats.pieces == stats.documents
                                                : stats.pieces > stats.documents);
            bp_buffer_clear(&out);
        }
        bp_buffer_clear(&whole);
    }
}

static void lines_end_where_they_end_whatever_the_pieces(void **state)
{
    const char *text = "aa bb cc dd\r\nee\r\n\r\nff gg hh\nxx yy zz\r";

    (void)state;
    for (size_t piece = 1; piece < 40; piece++) {
        bp_documents_options options = {.format = BP_TEXT_LINES, .piece_bytes = piece};

        check("f", text, strlen(text), options,
              "f:1|aa bb cc dd;f:2|ee;f:4|ff gg hh;f:5|xx yy zz\r;", 1);
    }
}

/* Every piece falls to one share, and numbers agree. */
static void shares_part_the_pieces(void **state)
{
    static char text[20000];
    random_text r = random_text_of(4);
    size_t bytes = random_fill(&r, text, sizeof text, false);
    const char *path = bp_test_write("t", text, bytes);
    uint64_t whole[4096], parts[4096];
    int64_t pieces = 0;

    (void)state;
    for (int size = 0; size < 6; size++) {
        memset(parts, 0, sizeof parts);
        for (int rank = 0; rank < (size == 0 ? 1 : size); rank++) {
            bp_documents_options options = {
                .format = BP_TEXT_LINES, .piece_bytes = 50, .share_rank = rank, .share_size = size};
            bp_documents *documents;
            bp_piece piece;

            bp_test_expect(bp_documents_open(&documents, &path, 1, &options), BP_OK);
            while (bp_documents_next(documents, &piece) == BP_OK && piece.text != NULL) {
                assert_true(piece.number < 4096 && parts[piece.number] == 0);
                parts[piece.number] = 1 + (bp_xxh3(piece.text, piece.bytes) ^
                                           (uint64_t)piece.document << 1 ^ piece.last);
            }
            if (size == 0)
                pieces = bp_documents_stats_of(documents).pieces;
            assert_int_equal(bp_documents_stats_of(documents).pieces, pieces);
            bp_documents_close(&documents);
        }
        if (size == 0)
            memcpy(whole, parts, sizeof whole);
        assert_memory_equal(parts, whole, sizeof whole);
    }
    assert_true(pieces > 100);
}

/* What has no place to be cut is held in memory as a whole, so there is a limit; text that can be
 * cut has none. */
static void runs_beyond_the_limit_are_reported(void **state)
{
    static char text[5000];
    bp_documents_options options = {.piece_bytes = 64, .limit_bytes = 1024};
    bp_documents_stats stats;

    (void)state;
    for (int k = 0; k < 6; k++) {
        bp_buffer out = {0};

        options.format = (bp_text_format)(k % 3);
        memset(text, 'a', sizeof text);
        if (k < 3)
            text[1500] = text[4000] = ' '; /* between them is more than the limit */
        else
            for (size_t at = 900; at < sizeof text; at += 900)
                text[at] = ' ';
        memcpy(text, options.format == BP_TEXT_JSONL ? "\n{" : "\na", 2);
        const char *path = bp_test_write("long", text, sizeof text);
        bool fits = k >= 3 && options.format != BP_TEXT_JSONL; /* jsonl lines are never cut */
        bp_test_expect(tell(&out, &path, 1, &options, &stats), fits ? BP_OK : BP_ERR_FORMAT);
        if (!fits) {
            bp_test_message_has("1024 bytes ... [text.no_cut]");
            bp_test_message_has(options.format == BP_TEXT_FILE ? "line 1 ... [text.no_cut]"
                                                               : "line 2 ... [text.no_cut]");
        }
        bp_buffer_clear(&out);
    }
}

static void formats_have_names(void **state)
{
    bp_text_format format;

    (void)state;
    bp_test_expect(bp_text_format_of(&format, "jsonl", false), BP_OK);
    assert_int_equal(format, BP_TEXT_JSONL);
    bp_test_expect(bp_text_format_of(&format, "csv", false), BP_ERR_USAGE);
    bp_test_message_has("csv ... [text.unknown_format]");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_a_document),
        cmocka_unit_test(a_line_is_a_document),
        cmocka_unit_test(a_json_object_is_a_document),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
        cmocka_unit_test(a_long_id_or_label_is_refused_with_its_line),
        cmocka_unit_test(another_field_holds_the_text),
        cmocka_unit_test(zero_bytes_are_text),
        cmocka_unit_test(broken_lines_are_named),
        cmocka_unit_test(files_follow_each_other),
        cmocka_unit_test(pieces_make_up_the_document),
        cmocka_unit_test(lines_end_where_they_end_whatever_the_pieces),
        cmocka_unit_test(shares_part_the_pieces),
        cmocka_unit_test(runs_beyond_the_limit_are_reported),
        cmocka_unit_test(formats_have_names),
    };

    return BP_TEST_RUN(tests);
}
