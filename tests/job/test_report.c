/* Installed templates and scripts, and gnuplot as a child. A shell script stands for gnuplot where
 * it has to be missing, to fail, or to hang. */
#include "bp_test.h"

#include "base/process/clock.h"
#include "job/report/report.h"

#include <sys/stat.h>

/* A folder share/bagpipe of this test alone. */
static void use_share(const char *kind, const char *name, const char *text)
{
    char *folder = bp_sprintf("%s/report/%s", bp_test_path("share"), kind);
    char *path = bp_path_join(folder, name);

    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
    assert_int_equal(setenv("BAGPIPE_SHARE", bp_test_path("share"), 1), 0);
    bp_free(path);
    bp_free(folder);
}

static char *read_text(const char *path)
{
    char *text;
    size_t bytes;

    bp_test_expect(bp_file_read(path, 1 << 20, &text, &bytes), BP_OK);
    return text;
}

static bool has_gnuplot(void)
{
    return system("command -v gnuplot >/dev/null") == 0;
}

/* ---- pages ---- */

static void a_page_holds_its_style_and_script(void **state)
{
    const char *path = bp_test_path("page.html");
    json_t *data = json_pack("{s:s}", "name", "a & b");
    char *text;

    (void)state;
    use_share("pages", "style.css", "p { color: red }");
    use_share("pages", "head.html", "<title>{{title}}</title>");
    use_share("pages", "script.js", "let a;");
    use_share("pages", "small.html",
              "<style>{{{style}}}</style><p>{{name}}</p><script>{{{script}}}</script>\n");
    bp_test_expect(bp_report_page(path, "small", data), BP_OK);
    text = read_text(path);
    assert_string_equal(text, "<title></title><style>p { color: red }</style><p>a &amp; b</p>"
                              "<script>let a;</script>\n");
    assert_int_equal(json_object_size(data), 1); /* the caller's is as it was */
    bp_free(text);
    json_decref(data);
}

static void a_missing_template_is_named_with_the_remedy(void **state)
{
    json_t *data = json_object();

    (void)state;
    use_share("pages", "style.css", "");
    use_share("pages", "head.html", "");
    use_share("pages", "script.js", "");
    bp_test_expect(bp_report_page(bp_test_path("none.html"), "none", data), BP_ERR_INPUT);
    bp_test_message_has("share/report/pages/none.html ... [report.file_missing]");
    bp_test_message_has("BAGPIPE_SHARE");
    assert_false(bp_path_exists(bp_test_path("none.html")));
    use_share("pages", "torn.html", "{{#a}}");
    bp_test_expect(bp_report_page(bp_test_path("torn.html"), "torn", data), BP_ERR_FORMAT);
    bp_test_message_has("torn.html:1 ... [report.bad_template]");
    json_decref(data);
}

/* The tests' programs lie beside bin: the same rule finds the sources' files. */
static void files_are_found_beside_the_program(void **state)
{
    json_t *variables = json_object();
    char *script;

    (void)state;
    assert_int_equal(unsetenv("BAGPIPE_SHARE"), 0);
    bp_test_expect(bp_report_script(&script, "common", variables), BP_OK);
    assert_non_null(strstr(script, "#0072b2"));
    bp_free(script);
    bp_test_expect(bp_report_script(&script, "none", variables), BP_ERR_INPUT);
    bp_test_message_has("/share/bagpipe/report/plots/none.gp");
    assert_null(script);
    json_decref(variables);
}

static void ids_of_a_picture_are_its_own(void **state)
{
    char *svg = bp_report_svg("<?xml?>\n<svg id=\"a\"><title>Gnuplot</title><use xlink:href='#b'/>"
                              "<g fill=\"url(#c)\" href=\"x\">id='d'</g></svg>",
                              "k\"");

    (void)state;
    assert_string_equal(svg, "<svg id=\"k&quot;-a\"><use xlink:href='#k&quot;-b'/>"
                             "<g fill=\"url(#k&quot;-c)\" href=\"x\">id='d'</g></svg>");
    bp_free(svg);
    assert_null(bp_report_svg("no picture", "k"));
    assert_null(bp_report_svg(NULL, "k"));
}

/* ---- scripts ---- */

static void variables_are_what_they_are_in_gnuplot(void **state)
{
    json_t *variables =
        json_pack("{s:s, s:i, s:f, s:[s,s], s:[f,n], s:s}", "title", "'it''s\n`date` \\n \"x\"",
                  "n", 3, "x", 0.25, "names", "a", "b c", "reals", 1.5, "$data", "1,2\n3,4\n");
    char *script;

    (void)state;
    use_share("plots", "common.gp", "# common\n");
    use_share("plots", "echo.gp",
              "print title, '|', n, '|', x, '|', names[2], '|', |reals|\n"
              "print $data\n");
    bp_test_expect(bp_report_script(&script, "echo", variables), BP_OK);
    json_decref(variables);
    if (has_gnuplot()) {
        char *picture, *said;
        char *whole = bp_sprintf("set print '-'\n%s", script);
        size_t bytes;

        bp_test_expect(bp_gnuplot(&picture, &bytes, NULL, whole), BP_OK);
        said = picture;
        assert_string_equal(said, "'it''s `date` \\n \"x\" | 3 | 0.25 | b c | 2\n1,2\n3,4\n\n");
        bp_free(picture);
        bp_free(whole);
    }
    bp_free(script);
}

/* ---- gnuplot ---- */

static void pictures_are_drawn_in_a_folder_and_in_memory(void **state)
{
    static const char SCRIPT[] = "set terminal svg\nplot x\nset output 'there.svg'\nplot x\n";
    const char *folder = bp_test_path("'it's ''here'");
    char *picture, *path = bp_path_join(folder, "there.svg");
    size_t bytes;

    (void)state;
    if (!has_gnuplot())
        bp_test_skip("there is no gnuplot");
    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_gnuplot(&picture, &bytes, folder, SCRIPT), BP_OK);
    assert_int_equal(strlen(picture), bytes);
    assert_non_null(strstr(picture, "</svg>"));
    assert_true(bp_path_exists(path));
    bp_free(picture);
    bp_test_expect(bp_gnuplot(&picture, &bytes, NULL, "plot nonsense(3)\n"), BP_ERR_FORMAT);
    bp_test_message_has("nonsense ... [gnuplot.failed]");
    assert_null(picture);
    bp_free(path);
}

/* A program of this name, first in PATH. */
static void use_gnuplot(const char *text)
{
    const char *folder = bp_test_path("tools");
    char *path = bp_path_join(folder, "gnuplot"), *old = bp_strdup(getenv("PATH")), *all;

    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
    assert_int_equal(chmod(path, 0755), 0);
    all = bp_sprintf("%s:%s", folder, old);
    assert_int_equal(setenv("PATH", all, 1), 0);
    bp_free(all);
    bp_free(old);
    bp_free(path);
}

static void a_gnuplot_that_is_missing_fails_or_hangs_is_reported(void **state)
{
    char *picture, *path = bp_strdup(getenv("PATH"));
    size_t bytes;
    double began, limit = bp_gnuplot_seconds;

    (void)state;
    assert_int_equal(setenv("PATH", bp_test_path("nowhere"), 1), 0);
    bp_test_expect(bp_gnuplot(&picture, &bytes, NULL, "plot x\n"), BP_ERR_INPUT);
    bp_test_message_has("[gnuplot.missing]");
    assert_int_equal(setenv("PATH", path, 1), 0);
    use_gnuplot("#!/bin/sh\necho first >&2\necho its last word >&2\nexit 3\n");
    bp_test_expect(bp_gnuplot(&picture, &bytes, NULL, "plot x\n"), BP_ERR_FORMAT);
    bp_test_message_has("3 ... its last word ... [gnuplot.failed]");
    bp_gnuplot_seconds = 0.3;
    use_gnuplot("#!/bin/sh\nexec sleep 600\n");
    began = bp_clock_now();
    bp_test_expect(bp_gnuplot(&picture, &bytes, NULL, "plot x\n"), BP_ERR_SYSTEM);
    bp_test_message_has("[gnuplot.too_slow]");
    assert_true(bp_clock_now() - began >= 0.3);
    bp_gnuplot_seconds = limit;
    assert_null(picture);
    assert_int_equal(setenv("PATH", path, 1), 0);
    bp_free(path);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_its_style_and_script),
        cmocka_unit_test(a_missing_template_is_named_with_the_remedy),
        cmocka_unit_test(files_are_found_beside_the_program),
        cmocka_unit_test(ids_of_a_picture_are_its_own),
        cmocka_unit_test(variables_are_what_they_are_in_gnuplot),
        cmocka_unit_test(pictures_are_drawn_in_a_folder_and_in_memory),
        cmocka_unit_test(a_gnuplot_that_is_missing_fails_or_hangs_is_reported),
    };
    return BP_TEST_RUN(tests);
}
