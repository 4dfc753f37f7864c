/* What blocks keep for backward is copied for windows that read the same: every row of each form,
 * all copies, nothing where memory is only counted. */
#include "bp_test.h"

#include "nn/core/block.h"

#include <string.h>

enum { ROWS = 3, COLUMNS = 5, TIMES = 4, FLOATS = ROWS * COLUMNS };

static void rows_of_every_form_are_copied(void **state)
{
    static const bp_operand_form FORMS[] = {BP_OPERAND_F32, BP_OPERAND_ROUNDED, BP_OPERAND_BF16};
    float from[FLOATS], to[TIMES * FLOATS + 1];

    (void)state;
    for (int i = 0; i < FLOATS; i++)
        from[i] = (float)(i + 1) / 7;
    for (size_t f = 0; f < sizeof FORMS / sizeof FORMS[0]; f++) {
        size_t bytes = bp_operand_bytes(FORMS[f], ROWS, COLUMNS);
        bp_operand one = {FORMS[f], ROWS, COLUMNS, COLUMNS, from},
                   all = {FORMS[f], TIMES * ROWS, COLUMNS, COLUMNS, to}, none = {0};

        memset(to, 0xFF, sizeof to);
        bp_repeat_rows(&all, &one, TIMES);
        for (size_t k = 0; k < TIMES; k++)
            assert_memory_equal((char *)to + k * bytes, from, bytes);
        assert_int_equal(((unsigned char *)to)[TIMES * bytes], 0xFF);
        bp_repeat_rows(&none, &none, TIMES);
    }
}

static void floats_are_copied(void **state)
{
    float from[FLOATS], to[TIMES * FLOATS];

    (void)state;
    for (int i = 0; i < FLOATS; i++)
        from[i] = (float)i;
    bp_repeat_floats(to, from, FLOATS, TIMES);
    for (size_t k = 0; k < TIMES; k++)
        assert_memory_equal(to + k * FLOATS, from, sizeof from);
    bp_repeat_floats(NULL, NULL, FLOATS, TIMES);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_every_form_are_copied),
                                              cmocka_unit_test(floats_are_copied)};

    return BP_TEST_RUN(tests);
}
