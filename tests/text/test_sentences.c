/* Where sentences begin: by hand, and the same in pieces of any length. */
#include "base/buffer.h"
#include "bp_test.h"
#include "random_text.h"
#include "text/documents/text_source.h"

/* The text with | where a sentence begins, but the first. */
static char *marked(const char *text, bp_sentences rule, size_t piece_bytes)
{
    const char *path = bp_test_write("s.txt", text, strlen(text));
    bp_documents_options options = {
        .format = BP_TEXT_FILE, .sentences = rule, .piece_bytes = piece_bytes};
    bp_documents *documents;
    bp_piece piece;
    bp_buffer out = {0};
    bp_err err = bp_documents_open(&documents, &path, 1, &options);

    while (err == BP_OK && (err = bp_documents_next(documents, &piece)) == BP_OK &&
           piece.text != NULL)
        for (int64_t k = 0; k < piece.start_count; k++) {
            size_t end = k + 1 < piece.start_count ? piece.starts[k + 1] : piece.bytes;

            if (!piece.first || k > 0)
                bp_buffer_add(&out, "|", 1);
            bp_buffer_add(&out, piece.text + piece.starts[k], end - piece.starts[k]);
        }
    bp_test_expect(err, BP_OK);
    bp_documents_close(&documents);
    return bp_buffer_take(&out);
}

static void expect(const char *text, bp_sentences rule, const char *expected)
{
    for (size_t piece = 16; piece < 4096; piece *= 2) {
        char *got = marked(text, rule, piece);

        assert_string_equal(got, expected);
        bp_free(got);
    }
}

static void lines_are_sentences(void **state)
{
    (void)state;
    expect("One two .\nThree . four\n\n \nFive\n", BP_SENTENCES_LINES,
           "One two .|\nThree . four|\n\n \nFive\n");
    expect("\n\n first line of some length\r\nsecond line of some length", BP_SENTENCES_LINES,
           "\n\n first line of some length|\r\nsecond line of some length");
    expect("", BP_SENTENCES_LINES, "");
    expect("  ", BP_SENTENCES_LINES, "  ");
}

static void full_stops_end_sentences(void **state)
{
    static const char *const expected[] = {
        "It rains.| \"Does it?\"| He (Mr. Smith, J. R. Smith Jr. of St. Ives) left at 3.5 p.m. "
        "today.",
        "Wait ... not yet ...| Now!?| (Yes.)| No",
        "Ends e.g. here.\nBut lower follows. so it goes on.",
        "A line without a stop\nthat goes on|\n\nA paragraph.|  And more.  ",
        "\xe5\xba\x8a\xe5\x89\x8d\xe3\x80\x82|\xe7\x96\x91\xe6\x98\xaf\xef\xbc\x81\xe3\x80\x8d|"
        "\xe4\xb8\xbe\xe5\xa4\xb4",
    };

    (void)state;
    for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++) {
        char text[512];
        size_t bytes = 0;

        for (const char *c = expected[k]; *c != '\0'; c++)
            if (*c != '|')
                text[bytes++] = *c;
        text[bytes] = '\0';
        if (k == 2) /* the one break of it */
            expect(text, BP_SENTENCES_PUNCTUATION,
                   "Ends e.g. here.|\nBut lower follows. so it goes on.");
        else
            expect(text, BP_SENTENCES_PUNCTUATION, expected[k]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_sentences),
        cmocka_unit_test(full_stops_end_sentences),
    };
    return BP_TEST_RUN(tests);
}
