/* The pre-tokenizer against its pattern, classes against Oniguruma's, cuts against the whole. */
#include "bp_test.h"
#include "pattern_pieces.h"
#include "random_text.h"
#include "text/documents/text_source.h"

static void every_known_character_has_its_class(void **state)
{
    static const char *const patterns[] = {"\\p{L}", "\\p{N}", "\\p{White_Space}", "\\p{Cn}"};
    const uint8_t *classes = bp_unicode_classes();
    pattern_twin twins[4];
    int64_t compared = 0;

    (void)state;
    for (int k = 0; k < 4; k++) {
        twins[k] = pattern_twin_new(patterns[k]);
        if (twins[k].code == NULL)
            bp_test_skip("this Oniguruma does not know the property");
    }
    for (uint32_t code_point = 0; code_point < BP_CODE_POINTS; code_point++) {
        char text[4];
        size_t bytes;

        if (code_point >= 0xD800 && code_point < 0xE000)
            continue;
        bytes = bp_utf8_encode((uint8_t *)text, code_point);
        if (pattern_twin_piece(&twins[3], text, bytes, 0) > 0)
            continue; /* not assigned yet in its tables */
        compared++;
        unsigned expected = pattern_twin_piece(&twins[0], text, bytes, 0) > 0   ? BP_CLASS_LETTER
                            : pattern_twin_piece(&twins[1], text, bytes, 0) > 0 ? BP_CLASS_NUMBER
                            : pattern_twin_piece(&twins[2], text, bytes, 0) > 0 ? BP_CLASS_SPACE
                                                                                : BP_CLASS_OTHER;
        if ((classes[code_point] & BP_CLASS_MASK) != expected)
            fail_msg("U+%04X has class %u, not %u", code_point, classes[code_point], expected);
    }
    for (int k = 0; k < 4; k++)
        pattern_twin_free(&twins[k]);
    assert_true(compared > 270000);
}

static void utf8_is_decoded_as_it_is_encoded(void **state)
{
    (void)state;
    for (uint32_t code_point = 0; code_point < BP_CODE_POINTS; code_point++) {
        uint8_t text[4];
        uint32_t again = BP_CODE_POINTS;
        size_t bytes = bp_utf8_encode(text, code_point);
        bool surrogate = code_point >= 0xD800 && code_point < 0xE000;

        assert_int_equal(bp_utf8_decode(text, bytes, &again), surrogate ? 0 : bytes);
        assert_true(surrogate || again == code_point);
        assert_int_equal(bp_utf8_decode(text, bytes - 1, &again), 0);
    }
}

static void invalid_utf8_is_refused(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "\xBF",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xC2 ",
                                      "\xE0\x80\x80",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xED\xBF\xBF",
                                      "\xE1\x80 ",
                                      "\xF0\x80\x80\x80",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xFE",
                                      "\xFF"};
    uint32_t code_point;

    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(bp_utf8_decode((const uint8_t *)bad[k], strlen(bad[k]), &code_point), 0);
}

/* Oniguruma's tables are older than ours: characters it does not know are taken out. */
static size_t drop_unknown(const pattern_twin *unassigned, char *text, size_t bytes)
{
    size_t kept = 0;

    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &code_point);
        size_t step = length == 0 ? 1 : length;

        if (length == 0 || pattern_twin_piece(unassigned, text + at, length, 0) == 0) {
            memmove(text + kept, text + at, step);
            kept += step;
        }
        at += step;
    }
    return kept;
}

static void pieces_are_those_of_the_pattern(void **state)
{
    pattern_twin twin = pattern_twin_new(PATTERN_TWIN), unassigned = pattern_twin_new("\\p{Cn}");
    static char text[4000];

    (void)state;
    if (twin.code == NULL)
        bp_test_skip("this Oniguruma does not know the property");
    for (uint64_t seed = 0; seed < 600; seed++) {
        random_text r = random_text_of(seed);
        size_t bytes = random_fill(&r, text, 8 + random_below(&r, sizeof text - 8), seed % 3 == 0);

        bytes = drop_unknown(&unassigned, text, bytes);
        compare_with_pattern(&twin, text, bytes);
    }
    pattern_twin_free(&twin);
    pattern_twin_free(&unassigned);
}

/* Length of the piece, of the word or White_Space run, or of the character at p. */
static size_t unit_at(bp_cut cut, const uint8_t *p, size_t bytes)
{
    const uint8_t *classes = bp_unicode_classes();
    uint32_t code_point;
    size_t length;

    if (cut == BP_CUT_PATTERN)
        return bp_scan_piece(classes, p, bytes);
    if (cut == BP_CUT_CHAR)
        length = bp_utf8_decode(p, bytes, &code_point);
    else {
        length = bp_scan_word(classes, p, bytes);
        if (length == 0)
            length = bp_scan_space(classes, p, bytes);
    }
    return length == 0 ? 1 : length;
}

static bool is_boundary(bp_cut cut, const char *text, size_t bytes, size_t at)
{
    size_t p = 0;

    while (p < at)
        p += unit_at(cut, (const uint8_t *)text + p, bytes - p);
    return p == at;
}

/* A cut found in the first part of a text holds for the whole text, and there a piece (word) of
 * either kind ends. */
static void cuts_are_boundaries_whatever_follows(void **state)
{
    static const bp_cut cuts[] = {BP_CUT_SPACE, BP_CUT_PATTERN, BP_CUT_CHAR};
    static char text[300];
    int found[3] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        random_text r = random_text_of(1000 + seed);
        size_t bytes = random_fill(&r, text, sizeof text, seed % 2 == 0);

        for (int k = 0; k < 3; k++) {
            size_t seen = 1 + random_below(&r, (uint32_t)bytes);
            size_t at = bp_text_cut(cuts[k], text, seen);

            assert_true(at <= seen);
            if (at == 0)
                continue;
            found[k]++;
            assert_true(is_boundary(cuts[k], text, bytes, at));
            if (cuts[k] == BP_CUT_SPACE) /* good for all kinds */
                assert_true(is_boundary(BP_CUT_PATTERN, text, bytes, at) &&
                            is_boundary(BP_CUT_CHAR, text, bytes, at));
        }
    }
    for (int k = 0; k < 3; k++)
        assert_true(found[k] > 2500); /* the text is full of places to cut */
}

static void text_of_one_class_has_no_cut(void **state)
{
    (void)state;
    assert_int_equal(bp_text_cut(BP_CUT_SPACE, "aaaaaaaa", 8), 0);
    assert_int_equal(bp_text_cut(BP_CUT_PATTERN, "aaaaaaaa", 8), 0);
    assert_int_equal(bp_text_cut(BP_CUT_PATTERN, "''''aaaa", 8), 0); /* 'a could be 'll... */
    assert_int_equal(bp_text_cut(BP_CUT_PATTERN, "    aaaa", 8), 0); /* the last space is a's */
    assert_int_equal(bp_text_cut(BP_CUT_SPACE, "        ", 8), 0);
    assert_int_equal(bp_text_cut(BP_CUT_CHAR, "aaaaaaaa", 8), 8);
    assert_int_equal(bp_text_cut(BP_CUT_CHAR, "aaaaa\xF0\x9F\x98", 8), 5);
    assert_int_equal(bp_text_cut(BP_CUT_NEVER, "a b c d ", 8), 0);
    assert_int_equal(bp_text_cut(BP_CUT_SPACE, "a bc d e", 8), 6);
    assert_int_equal(bp_text_cut(BP_CUT_PATTERN, "ab12..cd", 8), 6);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_character_has_its_class),
        cmocka_unit_test(utf8_is_decoded_as_it_is_encoded),
        cmocka_unit_test(invalid_utf8_is_refused),
        cmocka_unit_test(pieces_are_those_of_the_pattern),
        cmocka_unit_test(cuts_are_boundaries_whatever_follows),
        cmocka_unit_test(text_of_one_class_has_no_cut),
    };

    return BP_TEST_RUN(tests);
}
