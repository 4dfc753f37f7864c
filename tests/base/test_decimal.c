/* What is a decimal number, and what is none. */
#include "bp_test.h"

#include "base/config/decimal.h"

#include <locale.h>
#include <string.h>

static void decimal_numbers_are_read(void **state)
{
    static const struct {
        const char *text;
        double value;
    } CASES[] = {{"0", 0},      {"-0.25", -0.25}, {"+3", 3},        {".5", 0.5},
                 {"5.", 5},     {"1e3", 1000},    {"2.5E-1", 0.25}, {"007", 7},
                 {"1e-400", 0}, {"0.1", 0.1},     {"1e+2", 100},    {"16777217", 16777217}};

    (void)state;
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one, its comma changes nothing */
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        double value = -1;
        float single = -1;

        assert_true(bp_decimal(&value, CASES[k].text, strlen(CASES[k].text)));
        assert_true(value == CASES[k].value);
        assert_true(bp_decimal_float(&single, CASES[k].text, strlen(CASES[k].text)));
        assert_true(single == (float)CASES[k].value);
    }
    (void)setlocale(LC_ALL, "C");
}

static void others_are_none(void **state)
{
    static const char *const CASES[] = {
        "",      "-",      "+",      ".",        "e5",  "1e",    "1e+",     "0x10",  "inf", "-inf",
        "nan",   "NaN",    "1,5",    "1 ",       " 1",  "1.2.3", "1_0",     "1f",    "--1", "1e1.",
        "0x1p3", "1e9999", "-1e400", "infinity", "1d3", "1\n",   "\u22121", "\u0661"};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        double value = -1;
        float single = -1;

        if (bp_decimal(&value, CASES[k], strlen(CASES[k])) ||
            bp_decimal_float(&single, CASES[k], strlen(CASES[k])))
            fail_msg("'%s' is taken as a number", CASES[k]);
        assert_true(value == 0 && single == 0);
    }
}

static void a_number_ends_where_its_bytes_do(void **state)
{
    double value;
    float single;

    (void)state;
    assert_true(bp_decimal(&value, "12345", 3) && value == 123);
    assert_false(bp_decimal(&value, "1\0005", 3));
    assert_false(bp_decimal_float(&single, "1e39", 4));
    assert_true(bp_decimal(&value, "1e39", 4) && value == 1e39);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimal_numbers_are_read),
        cmocka_unit_test(others_are_none),
        cmocka_unit_test(a_number_ends_where_its_bytes_do),
    };
    return BP_TEST_RUN(tests);
}
