/* search.space and search.limit: what is read, drawn and refused. */
#include "bp_test.h"
#include "search/limit.h"
#include "search/space.h"

#include <string.h>

static const char TEXT[] = "model.layers=2,4,6; model.width=64,128 ;optimizer.lr = 1e-3, 3e-4";

static nas_space *read_space(const char *text, bp_err expected)
{
    nas_space *space = bp_alloc("test", 1, sizeof *space);

    bp_test_expect(nas_space_read(space, text), expected);
    return space;
}

static void keys_and_values_are_read(void **state)
{
    nas_space *space = read_space(TEXT, BP_OK);

    (void)state;
    assert_int_equal(space->count, 3);
    assert_string_equal(space->axes[1].key, "model.width");
    assert_string_equal(space->axes[2].values[1], "3e-4");
    assert_true(space->axes[2].numbers[1] == 3e-4 && nas_space_points(space) == 12);
    bp_free(space);
    space = read_space(NULL, BP_OK);
    assert_true(space->count == 0 && nas_space_points(space) == 1);
    bp_free(space);
}

static void bad_spaces_are_refused(void **state)
{
    static const char *const BAD[] = {
        "model.layers",        "=1",
        "model.layers=",       "model.layers=1,,2",
        "model.layers=1,1",    "a.b=1; a.b=2",
        "model.layers=1 2",    "model.layers=1=2",
        "a.b=1;c.d",           "a.b=1, ;",
        "a.b=1,2;model.width", "a.b=0123456789012345678901234567890123456789"};

    (void)state;
    for (size_t k = 0; k < sizeof BAD / sizeof BAD[0]; k++) {
        bp_free(read_space(BAD[k], BP_ERR_CONFIG));
        bp_test_message_has("[search.bad_space]");
    }
}

static void settings_that_no_trial_holds_are_refused(void **state)
{
    char text[2000] = "";

    (void)state;
    for (int k = 0; k < 20; k++) /* 20 keys of 40 letters, with values of 20 */
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "model.an_unusually_long_name_of_a_key_%02d=01234567890123456789;", k);
    bp_free(read_space(text, BP_ERR_CONFIG));
    bp_test_message_has("too many keys");
}

static void points_are_settings_and_back(void **state)
{
    nas_space *space = read_space(TEXT, BP_OK);
    char text[200], least[200], most[200];

    (void)state;
    for (int64_t k = 0; k < 12; k++) {
        nas_point point = nas_space_point(space, k), found;

        assert_true(nas_space_text(text, sizeof text, space, &point));
        assert_true(nas_space_find(space, text, &found));
        assert_memory_equal(&point, &found, sizeof point);
        for (int64_t j = 0; j < k; j++) {
            nas_point other = nas_space_point(space, j);

            assert_true(memcmp(&other, &point, sizeof point) != 0);
        }
    }
    nas_point first = nas_space_smallest(space), last = nas_space_largest(space), none;
    assert_true(nas_space_text(least, sizeof least, space, &first));
    assert_true(nas_space_text(most, sizeof most, space, &last));
    assert_string_equal(least, "model.layers=2 model.width=64 optimizer.lr=3e-4");
    assert_string_equal(most, "model.layers=6 model.width=128 optimizer.lr=1e-3");
    assert_false(nas_space_find(space, "model.layers=3 model.width=64 optimizer.lr=3e-4", &none));
    assert_false(nas_space_find(space, "model.layers=2 model.width=64", &none));
    assert_false(nas_space_text(text, 20, space, &first));
    bp_free(space);
}

static void draws_are_uniform_and_keyed(void **state)
{
    nas_space *space = read_space(TEXT, BP_OK);
    int64_t counts[3] = {0};

    (void)state;
    for (int64_t k = 0; k < 3000; k++) {
        bp_rng_key key = bp_rng_key_of(1, BP_RNG_SEARCH, 0, k, 2);
        nas_point point = nas_space_draw(space, &key, 0), again = nas_space_draw(space, &key, 0);

        assert_memory_equal(&point, &again, sizeof point);
        counts[point.at[0]]++;
    }
    for (int k = 0; k < 3; k++) /* four standard deviations of 1000 */
        assert_true(counts[k] > 1000 - 4 * 26 && counts[k] < 1000 + 4 * 26);
    bp_free(space);
}

static void limits_are_read_and_kept(void **state)
{
    static const char *const BAD[] = {"parameters<3",     "parameters<=",   "parameters<=-1",
                                      "parameters<=nan",  "parameters<=1x", "speed>=1",
                                      "bytes<=1,bytes<=2"};
    nas_limit limit;

    (void)state;
    bp_test_expect(nas_limit_read(&limit, " tokens_per_second>=2000, parameters<=3e6 "), BP_OK);
    assert_true(limit.tokens_per_second == 2000 && limit.parameters == 3e6 && limit.bytes == 0);
    assert_true(nas_limit_takes(&limit, 3000000) && !nas_limit_takes(&limit, 3000001));
    bp_test_expect(nas_limit_read(&limit, "bytes<=400"), BP_OK);
    assert_true(nas_limit_takes(&limit, 100) && !nas_limit_takes(&limit, 101));
    bp_test_expect(nas_limit_read(&limit, NULL), BP_OK);
    assert_true(nas_limit_takes(&limit, INT64_MAX / 8));
    for (size_t k = 0; k < sizeof BAD / sizeof BAD[0]; k++) {
        bp_test_expect(nas_limit_read(&limit, BAD[k]), BP_ERR_CONFIG);
        bp_test_message_has("[search.bad_limit]");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_are_read),
        cmocka_unit_test(bad_spaces_are_refused),
        cmocka_unit_test(settings_that_no_trial_holds_are_refused),
        cmocka_unit_test(points_are_settings_and_back),
        cmocka_unit_test(draws_are_uniform_and_keyed),
        cmocka_unit_test(limits_are_read_and_kept),
    };
    return BP_TEST_RUN(tests);
}
