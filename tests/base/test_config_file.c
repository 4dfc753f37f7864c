/* The INI file: its lines, what it refuses, and what config.ini holds is read back as it was. */
#include "config_texts.h"

/* A line of exactly `bytes` bytes, given to the reader. */
static bp_err try_line(size_t bytes, const char *begin)
{
    char text[1024] = "[run]\n";
    size_t head = strlen(text);

    (void)snprintf(text + head, sizeof text - head, "%s", begin);
    memset(text + head + strlen(begin), 'x', bytes - strlen(begin));
    (void)snprintf(text + head + bytes, sizeof text - head - bytes, "\nnote = n\n");
    bp_config *config = new_config();
    bp_err err = read_text(config, text);
    if (err == BP_OK) {
        const char *dir = bp_config_string(config, "run.dir");
        assert_true(dir == NULL || strlen(dir) == bytes - strlen("dir = "));
        assert_string_equal(bp_config_string(config, "run.note"), "n");
    }
    bp_config_free(&config);
    return err;
}

static void long_line_is_refused_and_never_cut(void **state)
{
    bp_test_expect(try_line(198, "dir = "), BP_OK);
    bp_test_expect(try_line(199, "dir = "), BP_OK);
    bp_test_expect(try_line(199, "; comment "), BP_OK);
    for (size_t bytes = 200; bytes < 450; bytes++) {
        bp_test_expect(try_line(bytes, "dir = "), BP_ERR_CONFIG);
        bp_test_message_has("[config.bad_line]");
        bp_test_message_has("test.ini:2");
        assert_null(strstr(bp_err_message(), "test.ini:3"));
    }
    bp_test_expect(try_line(200, "; comment "), BP_ERR_CONFIG);
}

static void backslash_continues_a_value(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(read_text(config, "[run]\n"
                                     "dir = a,\\\n"
                                     "  b,\\\r\n"
                                     "; in between\n"
                                     "[c],\\\n"
                                     "note = d\n"
                                     "note = e\\\n"),
                   BP_OK);
    assert_string_equal(bp_config_string(config, "run.dir"), "a,b,[c],note = d");
    assert_string_equal(bp_config_string(config, "run.note"), "e");
    bp_config_free(&config);
}

static void damaged_text_is_refused(void **state)
{
    static const char zero[] = "[run]\ndir = a\0b\n", utf16[] = "\xff\xfe[\0r\0u\0n\0]\0\n\0";
    char section[256];
    bp_config *config = new_config();

    bp_test_expect(
        bp_config_read(config, bp_test_write("zero.ini", zero, sizeof zero - 1), 0, NULL),
        BP_ERR_CONFIG);
    bp_test_message_has("[config.bad_line]");
    bp_test_message_has("zero.ini:2");
    bp_test_expect(
        bp_config_read(config, bp_test_write("utf16.ini", utf16, sizeof utf16 - 1), 0, NULL),
        BP_ERR_CONFIG);
    bp_config_free(&config);
    bp_test_expect(try_text("[train\nsteps = 5\n"), BP_ERR_CONFIG);
    bp_test_message_has("[config.bad_section]");
    bp_test_expect(try_text("[train] steps = 5\n"), BP_ERR_CONFIG);
    (void)snprintf(section, sizeof section, "[%060d]\nsteps = 5\n", 0);
    bp_test_expect(try_text(section), BP_ERR_CONFIG); /* inih would cut it at 49 */
    bp_test_expect(try_text("[run]\ndir = a\x1b[2J\n"), BP_ERR_CONFIG);
    bp_test_message_has("[config.bad_value]");
    bp_test_expect(try_text("[train]\nsteps =\n"), BP_OK); /* as if it were not there */
    bp_test_expect(try_text("[train]\nrate =\n"), BP_ERR_CONFIG);
    bp_test_message_has("[config.empty_value]");
    bp_test_message_has("train.rate");
    bp_test_expect(try_text("[train]\nsteps = 5 # five\n"), BP_ERR_CONFIG);
    bp_test_message_has("' ;' ... [config.bad_value]");
    bp_test_expect(try_text("= 5\n"), BP_ERR_CONFIG);
}

static void what_is_no_file_is_an_error(void **state)
{
    bp_config *config = new_config();
    const char *fifo = bp_test_path("fifo.ini");

    bp_test_expect(bp_config_read(config, bp_test_path("none.ini"), 0, NULL), BP_ERR_INPUT);
    bp_test_message_has("none.ini ... [file.missing]");
    bp_test_expect(bp_config_read(config, bp_test_folder(), 0, NULL), BP_ERR_INPUT);
    assert_int_equal(mkfifo(fifo, 0666), 0);
    bp_test_expect(bp_config_read(config, fifo, 0, NULL), BP_ERR_INPUT);
    static char large[(1 << 20) + 1];
    memset(large, '\n', sizeof large);
    bp_test_expect(bp_config_read(config, bp_test_write("large.ini", large, sizeof large), 0, NULL),
                   BP_ERR_CONFIG);
    bp_config_free(&config);
}

static void config_ini_reads_back_as_itself(void **state)
{
    bp_config *first = new_config(), *second = new_config();
    char dir[4000] = "run.dir=", real[] = "train.rate=0.1", bytes[] = "train.memory=3000k",
         steps[] = "train.steps=0005";
    char *arguments[] = {dir, real, bytes, steps};

    for (int i = 0; i < 200; i++)
        (void)snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "%s;c#o%d ;[x]",
                       i % 5 == 0 ? "," : "", i);
    bp_test_expect(bp_config_read(first, NULL, 4, arguments), BP_ERR_CONFIG); /* " ;" */
    for (char *p = dir; *p != 0; p++)
        if (*p == ' ')
            *p = '_';
    bp_test_expect(bp_config_read(first, NULL, 4, arguments), BP_OK);
    char *text = bp_config_text(first);
    for (const char *line = text; *line != 0; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 199);
    bp_test_expect(read_text(second, text), BP_OK);
    char *again = bp_config_text(second);
    assert_string_equal(text, again);
    assert_string_equal(bp_config_string(second, "run.dir"), dir + strlen("run.dir="));
    assert_non_null(strstr(text, "rate = 0.1\n"));
    assert_non_null(strstr(text, "steps = 5\n"));
    assert_non_null(strstr(text, "memory = 3000000\n"));
    assert_non_null(strstr(text, "; note =\n"));
    bp_free(text);
    bp_free(again);
    bp_config_free(&first);
    bp_config_free(&second);
}

static void values_that_ini_cannot_hold_are_refused(void **state)
{
    bp_test_expect(try_argument("run.dir=a ;b"), BP_ERR_CONFIG);
    bp_test_expect(try_argument("run.dir=;b"), BP_ERR_CONFIG);
    bp_test_expect(try_argument("run.dir=a\nb"), BP_ERR_CONFIG);
    bp_test_expect(try_argument("run.dir=a\\"), BP_ERR_CONFIG);
    bp_test_expect(try_argument("run.dir=a;b#c\\d"), BP_OK);
    bp_test_expect(try_argument("run.dir=\xe5\x94\x90"), BP_OK);
}

static void long_values_are_shown_in_part(void **state)
{
    char argument[4000] = "train.steps=";

    memset(argument + strlen(argument), 'x', sizeof argument - strlen(argument) - 1);
    argument[sizeof argument - 1] = 0;
    bp_test_expect(try_argument(argument), BP_ERR_CONFIG);
    bp_test_message_has("xxx... is not an integer: at the command line; give an integer");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_line_is_refused_and_never_cut),
        cmocka_unit_test(backslash_continues_a_value),
        cmocka_unit_test(damaged_text_is_refused),
        cmocka_unit_test(what_is_no_file_is_an_error),
        cmocka_unit_test(config_ini_reads_back_as_itself),
        cmocka_unit_test(values_that_ini_cannot_hold_are_refused),
        cmocka_unit_test(long_values_are_shown_in_part),
    };
    return BP_TEST_RUN(tests);
}
