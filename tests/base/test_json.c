#include "base/buffer.h"
#include "base/config/csv.h"
#include "base/config/json.h"
#include "base/fault.h"
#include "base/printable.h"
#include "bp_test.h"
#include <math.h>

static bp_err parse(json_t **out, const char *text)
{
    return bp_json_parse(out, text, strlen(text), "a.json");
}

static void text_is_canonical(void **state)
{
    json_t *value;

    bp_test_expect(parse(&value, " {\"b\":[1,2.5,{}],\"a\":\"\\u00e9\",\"c\":null}"), BP_OK);
    char *text = bp_json_text(value), *line = bp_json_line(value);
    assert_string_equal(text, "{\n  \"b\": [\n    1,\n    2.5,\n    {}\n  ],\n  \"a\": "
                              "\"\xc3\xa9\",\n  \"c\": null\n}\n");
    assert_string_equal(line, "{\"b\": [1, 2.5, {}], \"a\": \"\xc3\xa9\", \"c\": null}\n");
    bp_free(text);
    bp_free(line);
    json_decref(value);
}

/* What is read of an object with the members "a" and "b", as a line; NULL: nothing. */
static char *members(const char *text)
{
    static const char *const keys[] = {"a", "b"};
    json_t *value = bp_json_members(text, strlen(text), JSON_REJECT_DUPLICATES, keys, 2, NULL);
    char *line = value != NULL ? bp_json_line(value) : NULL;

    json_decref(value);
    return line;
}

static void members_that_nobody_reads_may_be_anything(void **state)
{
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } cases[] = {
        {"{\"a\": 1, \"x\": NaN}", "{\"a\": 1}\n"},
        {"{\"x\": NaN, \"a\": 1}", "{\"a\": 1}\n"},
        {"{\"x\": -Infinity, \"x\": 1e999, \"y\": 18446744073709551616}", "{}\n"},
        {"{\"a\": [1, {\"x\": nan, \"b\": 2}], \"x\": {\"a\": [NaN, {}, [], \"]}\\\"\"]}, \"b\": 3 "
         "}",
         "{\"a\": [1, {\"b\": 2}], \"b\": 3}\n"},
        {"{\"x\": \"\\ud800\", \"\\ud800\": 1, \"\\u0061\": 1}", "{\"a\": 1}\n"},
        {"{\"x\": \"\xff\t\", \"\xff\": 1, \"a\": 1}", "{\"a\": 1}\n"},
        {"{\"a\": 1, \"x\": 2, \"y\": 3}", "{\"a\": 1}\n"},
        {"{\"x\": 2, \"a\": 1, \"y\": 3, \"b\": 2, \"z\":[[]]}", "{\"a\": 1, \"b\": 2}\n"},
        {"{}", "{}\n"},
        {"[{\"x\": NaN}]", "[{}]\n"},
        {"{\"a\": NaN}", NULL},
        {"{\"a\": 1, \"a\": 2}", NULL},
        {"{\"a\": 1, \"x\": NaN,}", NULL},
        {"{\"a\": 1, \"x\": [1,]}", NULL},
        {"{\"a\": 1, \"x\": [1}}", NULL},
        {"{\"a\": 1, \"x\": \"}", NULL},
        {"{\"a\": 1, \"x\" 2}", NULL},
        {"{\"a\": 1, \"x\": }", NULL},
        {"{\"a\": 1} {", NULL},
        {"{\"a\": 1, x: 1}", NULL},
        {"", NULL},
    };

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char *line = members(cases[k].text);

        if ((line == NULL) != (cases[k].expected == NULL))
            print_error("%s\n", cases[k].text);
        assert_true((line == NULL) == (cases[k].expected == NULL));
        if (line != NULL)
            assert_string_equal(line, cases[k].expected);
        bp_free(line);
    }
}

/* {"a": 1, KEY: OPEN ... OPEN 1 CLOSE ... CLOSE} */
static char *deep_members(const char *key, size_t depth, const char *open, const char *close)
{
    bp_buffer text = {0};
    char *line;

    bp_buffer_printf(&text, "{\"a\": 1, \"%s\": ", key);
    for (size_t k = 0; k < depth; k++)
        bp_buffer_printf(&text, "%s", open);
    bp_buffer_printf(&text, "1");
    for (size_t k = 0; k < depth; k++)
        bp_buffer_printf(&text, "%s", close);
    bp_buffer_printf(&text, "}");
    line = members(text.data);
    bp_buffer_clear(&text);
    return line;
}

static void members_that_nobody_reads_may_be_of_any_depth(void **state)
{
    static const size_t depths[] = {1, 2047, 2048, 2049, 200000};

    for (size_t k = 0; k < sizeof depths / sizeof depths[0]; k++)
        for (int object = 0; object < 2; object++) {
            char *line = deep_members("x", depths[k], object ? "{\"a\":" : "[", object ? "}" : "]");
            assert_non_null(line);
            assert_string_equal(line, "{\"a\": 1}\n");
            bp_free(line);
        }
    assert_null(deep_members("x", 3000, "[", "}"));
    assert_null(deep_members("b", 3000, "[", "]")); /* it is read: jansson's limit */
    assert_null(deep_members("b", 200000, "[", "]"));
}

static void text_for_spreadsheets_is_no_formula(void **state)
{
    static const char *const cases[][2] = {{"=1+1", "'=1+1"},
                                           {"@SUM(A1)", "'@SUM(A1)"},
                                           {"+a", "'+a"},
                                           {"-LRB-", "'-LRB-"},
                                           {"--", "'--"},
                                           {"\tx", "'\tx"},
                                           {"\rx", "\"'\rx\""},
                                           {"-", "-"},
                                           {"=", "="},
                                           {"-1", "-1"},
                                           {"+2.50", "+2.50"},
                                           {"-.5e-7", "-.5e-7"},
                                           {"-1e", "'-1e"},
                                           {"-1.2.3", "'-1.2.3"},
                                           {"-.", "'-."},
                                           {"a=1", "a=1"},
                                           {"=a,\"b", "\"'=a,\"\"b\""},
                                           {"", ""},
                                           {"a\nb", "\"a\nb\""}};

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        bp_buffer out = {0};

        bp_csv_add(&out, cases[k][0], strlen(cases[k][0]));
        assert_string_equal(out.bytes > 0 ? out.data : "", cases[k][1]);
        bp_buffer_clear(&out);
    }
}

static void foreign_text_is_printable(void **state)
{
    static const char *const cases[][2] = {
        {"a\x1b[31m\x7f", "a\\x1B[31m\\x7F"},
        {"\xC2\x9B\xC2\xA0", "\\xC2\\x9B\xC2\xA0"},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98", "\xF0\x9F\x98\x80\\xF0\\x9F\\x98"},
        {"\xC0\xAF\xF4\x90\x80\x80", "\\xC0\\xAF\\xF4\\x90\\x80\\x80"},
        {"a\nb", "a\\x0Ab"},
        {"", ""}};

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char *text = bp_printable(cases[k][0]);

        assert_string_equal(text, cases[k][1]);
        bp_free(text);
    }
}

static void strings_of_any_bytes_are_spelled(void **state)
{
    static const char *const cases[][2] = {
        {"caf\xC3\xA9", "caf\xC3\xA9"},
        {"a\xFF\xC3", "a\\xFF\\xC3"},
        {"\xED\xA0\x80\xE2\x82\xAC", "\\xED\\xA0\\x80\xE2\x82\xAC"},
        {"", ""}};

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        json_t *value = bp_json_string(cases[k][0]);

        assert_string_equal(json_string_value(value), cases[k][1]);
        json_decref(value);
    }
}

static void reals_read_back_to_the_bit(void **state)
{
    static const double values[] = {0.1, 1.0 / 3, 1e-308, 1.7976931348623157e308, -0.0, 3, 1e22};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        json_t *real = bp_json_real(values[i]), *again;
        char *line = bp_json_line(real);
        bp_test_expect(parse(&again, line), BP_OK);
        double value = json_number_value(again);
        assert_memory_equal(&value, &values[i], sizeof value);
        assert_true(json_is_real(again)); /* 3 is written as 3.0 */
        json_decref(real);
        json_decref(again);
        bp_free(line);
    }
}

static void what_is_not_finite_is_null(void **state)
{
    for (int i = 0; i < 3; i++) {
        json_t *value = bp_json_real(i == 0 ? NAN : i == 1 ? INFINITY : -INFINITY);
        assert_true(json_is_null(value));
        json_decref(value);
    }
}

static void broken_text_is_reported_with_its_place(void **state)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "{\"a\":1,}",
                                      "[1 2]",
                                      "{\"a\":1} x",
                                      "[1e400]",
                                      "[NaN]",
                                      "{\"a\":1,\"a\":2}",
                                      "\"\xff\"",
                                      "[9223372036854775808]",
                                      "\xEF\xBB\xBF{}",
                                      "\"\\u0000\"",
                                      "[01]"};
    json_t *value;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bp_test_expect(parse(&value, bad[i]), BP_ERR_FORMAT);
        assert_null(value);
    }
    bp_test_expect(parse(&value, "{\n \"a\": x}"), BP_ERR_FORMAT);
    bp_test_message_has("a.json:2 ... [json.invalid]");
    bp_test_expect(bp_json_parse(&value, "[1]\0[2]", 7, "a.json"), BP_ERR_FORMAT);
    bp_test_expect(bp_json_parse(&value, "[1,\n2\0]", 7, "a.json"), BP_ERR_FORMAT);
    bp_test_message_has("a.json:2 ... [json.invalid]");
    static char deep[100000];
    memset(deep, '[', sizeof deep);
    bp_test_expect(bp_json_parse(&value, deep, sizeof deep, "deep"), BP_ERR_FORMAT);
}

static void files_are_saved_and_loaded(void **state)
{
    const char *path = bp_test_path("file.json");
    json_t *value;
    int64_t n;

    bp_test_expect(parse(&value, "{\"n\": 5}"), BP_OK);
    bp_test_expect(bp_json_save(path, value), BP_OK);
    json_decref(value);
    bp_test_expect(bp_json_load(&value, path, 100), BP_OK);
    bp_test_expect(bp_json_get_int(value, "n", &n, path), BP_OK);
    assert_int_equal(n, 5);
    bp_test_expect(bp_json_save(bp_test_path("no/folder"), value), BP_ERR_CREATE);
    json_decref(value);
    bp_test_expect(bp_json_load(&value, path, 3), BP_ERR_FORMAT);
    assert_null(value);
    bp_test_expect(bp_json_load(&value, bp_test_path("none.json"), 100), BP_ERR_INPUT);
    assert_null(value);
}

static void members_have_their_types(void **state)
{
    json_t *object, *list;
    int64_t n;
    double x;
    bool flag;
    const char *text;

    bp_test_expect(parse(&object, "{\"n\":-7,\"x\":1.5,\"s\":\"text\",\"f\":true,\"z\":null}"),
                   BP_OK);
    bp_test_expect(bp_json_get_int(object, "n", &n, "f"), BP_OK);
    bp_test_expect(bp_json_get_real(object, "x", &x, "f"), BP_OK);
    bp_test_expect(bp_json_get_string(object, "s", &text, "f"), BP_OK);
    bp_test_expect(bp_json_get_bool(object, "f", &flag, "f"), BP_OK);
    assert_true(n == -7 && x == 1.5 && flag);
    assert_string_equal(text, "text");
    bp_test_expect(bp_json_get_real(object, "n", &x, "f"), BP_OK); /* an integer is a number too */
    assert_true(x == -7);
    bp_test_expect(bp_json_get_int(object, "x", &n, "f"), BP_ERR_FORMAT);
    bp_test_expect(bp_json_get_real(object, "s", &x, "f"), BP_ERR_FORMAT);
    bp_test_expect(bp_json_get_real(object, "z", &x, "f"), BP_ERR_FORMAT);
    bp_test_expect(bp_json_get_string(object, "n", &text, "f"), BP_ERR_FORMAT);
    bp_test_expect(bp_json_get_bool(object, "n", &flag, "f"), BP_ERR_FORMAT);
    bp_test_message_has("[json.wrong_type]");
    bp_test_message_has("\"n\"");
    bp_test_expect(bp_json_get_int(object, "none", &n, "file.json"), BP_ERR_FORMAT);
    bp_test_message_has("[json.missing_key]");
    bp_test_message_has("\"none\"");
    bp_test_expect(parse(&list, "[1]"), BP_OK);
    bp_test_expect(bp_json_get_int(list, "n", &n, "f"), BP_ERR_FORMAT);
    json_decref(list);
    json_decref(object);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_canonical),
        cmocka_unit_test(members_that_nobody_reads_may_be_anything),
        cmocka_unit_test(members_that_nobody_reads_may_be_of_any_depth),
        cmocka_unit_test(text_for_spreadsheets_is_no_formula),
        cmocka_unit_test(foreign_text_is_printable),
        cmocka_unit_test(strings_of_any_bytes_are_spelled),
        cmocka_unit_test(reals_read_back_to_the_bit),
        cmocka_unit_test(what_is_not_finite_is_null),
        cmocka_unit_test(broken_text_is_reported_with_its_place),
        cmocka_unit_test(files_are_saved_and_loaded),
        cmocka_unit_test(members_have_their_types),
    };
    return BP_TEST_RUN(tests);
}
