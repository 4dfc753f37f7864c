/* The keys of families and those that they share: what a family's table of sizes names is there, of
 * one type and range wherever it is. */
#include "bp_test.h"

#include "models/family.h"

#include <stdio.h>
#include <string.h>

static const bp_option *row_of(const bp_option *rows, const char *key)
{
    for (; rows && rows->key; rows++)
        if (strcmp(rows->key, key) == 0)
            return rows;
    return NULL;
}

static bool is_size(const bp_model_family *family, const char *key)
{
    for (const bp_model_size *size = family->sizes; size->name; size++)
        if (strcmp(strchr(key, '.') + 1, size->name) == 0)
            return true;
    return false;
}

/* Of every family: the names are the values of model.kind. */
static void each_family(void (*check)(const bp_model_family *family))
{
    const char *at = row_of(bp_model_options, "model.kind")->choices;
    int count = 0;

    for (char name[64]; *at; at += strcspn(at, "|"), at += *at == '|', count++) {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
        assert_non_null(bp_model_family_find(name));
        check(bp_model_family_find(name));
    }
    assert_true(count >= 16);
}

static void check_sizes(const bp_model_family *family)
{
    static const bp_option_type TYPES[] = {[BP_SIZE_COUNT] = BP_OPTION_INT,
                                           [BP_SIZE_REAL] = BP_OPTION_REAL,
                                           [BP_SIZE_FLAG] = BP_OPTION_BOOL,
                                           [BP_SIZE_CHOICE] = BP_OPTION_CHOICE,
                                           [BP_SIZE_PAIRS] = BP_OPTION_STRING};

    for (const bp_model_size *size = family->sizes; size->name; size++) {
        const char *section = size->section ? size->section : family->section;
        char key[64];

        (void)snprintf(key, sizeof key, "%s.%s", section ? section : "model", size->name);
        const bp_option *row = row_of(bp_model_options, key);
        if (!row || row->type != TYPES[size->type])
            fail_msg("%s: %s is no key, or of another type", family->name, key);
    }
}

static void every_size_is_a_key_of_its_type(void **state)
{
    (void)state;
    each_family(check_sizes);
}

static const char *text(const char *value)
{
    return value ? value : "";
}

static void check_own(const bp_model_family *family)
{
    for (const bp_option *row = family->keys; row && row->key; row++) {
        const bp_option *listed = row_of(bp_model_options, row->key);

        assert_non_null(listed);
        if (listed->type != row->type || listed->min != row->min || listed->max != row->max ||
            strcmp(text(listed->choices), text(row->choices)) != 0 ||
            strcmp(text(listed->value), text(row->value)) != 0 || listed->required != row->required)
            fail_msg("%s: %s is not the key of that name elsewhere", family->name, row->key);
        if (!is_size(family, row->key) && row->at == 0)
            fail_msg("%s: %s is read by nobody", family->name, row->key);
    }
}

static void a_family_s_own_keys_are_listed_and_read(void **state)
{
    (void)state;
    each_family(check_own);
}

static void no_key_is_listed_twice(void **state)
{
    (void)state;
    for (const bp_option *row = bp_model_options; row->key; row++)
        assert_ptr_equal(row_of(bp_model_options, row->key), row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_a_key_of_its_type),
        cmocka_unit_test(a_family_s_own_keys_are_listed_and_read),
        cmocka_unit_test(no_key_is_listed_twice),
    };
    return BP_TEST_RUN(tests);
}
