/* The lists of a comparison: names, folders, groups of documents, and what is refused of them. */
#include "bp_test.h"

#include "base/files/fs.h"
#include "uncertainty/comparison/comparison.h"

static void expect_methods(const char *text, bp_err code, const char *says)
{
    comparison_methods methods;

    bp_test_expect(comparison_methods_parse(&methods, text), code);
    if (says)
        bp_test_message_has(says);
    comparison_methods_clear(&methods);
}

static void methods_have_names_folders_and_ways(void **state)
{
    comparison_methods methods;

    (void)state;
    bp_test_expect(comparison_methods_parse(&methods,
                                            " one = runs/a ,two=runs/b:dropout,3=/c=d:laplace,"
                                            "four=runs:old/e,five=runs:f/"),
                   BP_OK);
    assert_int_equal(methods.count, 5);
    assert_string_equal(methods.items[0].name, "one");
    assert_string_equal(methods.items[0].path, "runs/a");
    assert_string_equal(methods.items[0].way->word, "plain");
    assert_string_equal(methods.items[1].path, "runs/b");
    assert_string_equal(methods.items[1].way->word, "dropout");
    assert_string_equal(methods.items[2].path, "/c=d");
    assert_string_equal(methods.items[2].way->word, "laplace");
    assert_string_equal(methods.items[3].path, "runs:old/e");
    assert_string_equal(methods.items[4].path, "runs:f/");
    comparison_methods_clear(&methods);
}

static void wrong_methods_are_refused(void **state)
{
    (void)state;
    expect_methods("a=x:mcmc", BP_ERR_CONFIG, ":mcmc");
    expect_methods("a=x,a=y", BP_ERR_CONFIG, "'a'");
    expect_methods("x", BP_ERR_CONFIG, "[comparison.no_name]");
    expect_methods("a=x,", BP_ERR_CONFIG, "[comparison.no_name]");
    expect_methods("=x", BP_ERR_CONFIG, "[comparison.bad_name]");
    expect_methods("a=", BP_ERR_CONFIG, "[comparison.no_folder]");
    expect_methods("a=:dropout", BP_ERR_CONFIG, "[comparison.no_folder]");
    expect_methods("a b=x", BP_ERR_CONFIG, "'a b' ... [comparison.bad_name]");
    expect_methods(".a=x", BP_ERR_CONFIG, "'.a'");
    expect_methods("../a=x", BP_ERR_CONFIG, "'../a'");
}

static void each_method_is_found_by_its_word(void **state)
{
    char *words = bp_uncertainty_method_words();

    (void)state;
    for (const bp_uncertainty_method *const *one = bp_uncertainty_methods; *one; one++) {
        assert_ptr_equal(bp_uncertainty_method_find((*one)->word), *one);
        assert_non_null(strstr(words, (*one)->word));
        assert_non_null((*one)->sampler);
    }
    assert_null(bp_uncertainty_method_find("plain")); /* that of no word */
    bp_free(words);
}

static void expect_group(const comparison_groups *groups, int64_t g, const char *name,
                         int64_t parts)
{
    assert_true(g < groups->count);
    assert_string_equal(groups->items[g].name, name);
    assert_int_equal(groups->items[g].part_count, parts);
}

static void expect_part(const comparison_part *part, const char *corpus, const char *label,
                        const char *value)
{
    assert_string_equal(part->corpus, corpus);
    assert_int_equal(part->label != NULL, label != NULL);
    if (label) {
        assert_string_equal(part->label, label);
        assert_string_equal(part->value, value);
    }
}

static void groups_are_named_by_file_value_or_user(void **state)
{
    comparison_groups groups;

    (void)state;
    bp_test_expect(
        comparison_groups_parse(&groups, "key",
                                "d/brown.h5, b.h5:genre=science fiction,odd=c.h5,odd=d.h5:x=1,"
                                "/a:b/job=12/e.h5",
                                NULL),
        BP_OK);
    assert_int_equal(groups.count, 4);
    expect_group(&groups, 0, "brown", 1);
    expect_part(&groups.items[0].parts[0], "d/brown.h5", NULL, NULL);
    expect_group(&groups, 1, "science fiction", 1);
    expect_part(&groups.items[1].parts[0], "b.h5", "genre", "science fiction");
    expect_group(&groups, 2, "odd", 2);
    expect_part(&groups.items[2].parts[0], "c.h5", NULL, NULL);
    expect_part(&groups.items[2].parts[1], "d.h5", "x", "1");
    expect_group(&groups, 3, "e", 1);
    expect_part(&groups.items[3].parts[0], "/a:b/job=12/e.h5", NULL, NULL);
    comparison_groups_clear(&groups);
}

static void a_list_can_be_one_group(void **state)
{
    comparison_groups groups;

    (void)state;
    bp_test_expect(comparison_groups_parse(&groups, "key", "a.h5:g=x,a.h5:g=y,b/a.h5", "all"),
                   BP_OK);
    assert_int_equal(groups.count, 1);
    expect_group(&groups, 0, "all", 3);
    comparison_groups_clear(&groups);
}

/* A file that is there is one, whatever its name looks like. */
static void a_file_that_exists_is_a_file(void **state)
{
    const char *path = bp_test_write("odd:genre=news", "", 0);
    comparison_groups groups;

    (void)state;
    bp_test_expect(comparison_groups_parse(&groups, "key", path, NULL), BP_OK);
    expect_part(&groups.items[0].parts[0], path, NULL, NULL);
    comparison_groups_clear(&groups);
}

static void expect_groups(const char *text, bp_err code, const char *says)
{
    comparison_groups groups;

    bp_test_expect(comparison_groups_parse(&groups, "the.key", text, NULL), code);
    bp_test_message_has(says);
    bp_test_message_has("the.key");
    comparison_groups_clear(&groups);
}

static void wrong_groups_are_refused(void **state)
{
    const char *path;
    char item[4096];

    (void)state;
    expect_groups("", BP_ERR_CONFIG, "[comparison.no_corpus]");
    expect_groups("a.h5,,b.h5", BP_ERR_CONFIG, "[comparison.no_corpus]");
    expect_groups("x=", BP_ERR_CONFIG, "[comparison.no_corpus]");
    expect_groups(":g=x", BP_ERR_CONFIG, "[comparison.no_corpus]");
    expect_groups("a.h5:=x", BP_ERR_CONFIG, "[comparison.no_corpus]");
    expect_groups("a.h5,b/a.h5", BP_ERR_CONFIG, "'a'");
    expect_groups("x=a.h5,x.h5", BP_ERR_CONFIG, "'x'");
    expect_groups("a.h5:g=x,b.h5:g=x", BP_ERR_CONFIG, "'x'");
    expect_groups("a b=c.h5", BP_ERR_CONFIG, "'a b' ... [comparison.bad_name]");
    path = bp_test_path("there.h5");
    bp_test_expect(bp_file_write(path, "x", 1), BP_OK);
    (void)snprintf(item, sizeof(item), "%s:kind", path);
    expect_groups(item, BP_ERR_CONFIG, "there.h5:kind=VALUE");
}

static void names_become_names_of_files(void **state)
{
    static const struct {
        const char *name, *safe;
    } cases[] = {{"news", "news"}, {"a/b c", "a_b_c"}, {"..", "_."}, {"", "_"}, {"é<", "___"}};

    (void)state;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        char *safe = comparison_safe_name(cases[k].name);

        assert_string_equal(safe, cases[k].safe);
        bp_free(safe);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_method_is_found_by_its_word),
        cmocka_unit_test(methods_have_names_folders_and_ways),
        cmocka_unit_test(wrong_methods_are_refused),
        cmocka_unit_test(groups_are_named_by_file_value_or_user),
        cmocka_unit_test(a_list_can_be_one_group),
        cmocka_unit_test(a_file_that_exists_is_a_file),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(names_become_names_of_files),
    };
    return BP_TEST_RUN(tests);
}
