/* Keys: types, ranges, what is required or excludes, several tables, help, values in a struct. */
#include "config_texts.h"

static void values_of_all_types_are_read(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(read_text(config, "\xEF\xBB\xBF; a comment\r\n"
                                     "[train]\r\n"
                                     "steps = 120 ; behind\r\n"
                                     "\tmemory: 64MiB\r\n"
                                     "  trace=true\n"
                                     "# another\n"
                                     "order =running\n"
                                     "limit= -1.5e3\n"
                                     "\n"
                                     "[run] ; a section\n"
                                     "dir =  /a b/c=d;e  \n"
                                     "[train]\n"
                                     "shift = +7"),
                   BP_OK);
    bp_test_expect(bp_config_check(config), BP_OK);
    assert_int_equal(bp_config_int(config, "train.steps"), 120);
    assert_int_equal(bp_config_int(config, "train.memory"), 64 << 20);
    assert_true(bp_config_bool(config, "train.trace"));
    assert_string_equal(bp_config_string(config, "train.order"), "running");
    assert_true(bp_config_real(config, "train.limit") == -1500);
    assert_string_equal(bp_config_string(config, "run.dir"), "/a b/c=d;e");
    assert_int_equal(bp_config_int(config, "train.shift"), 7);
    assert_true(bp_config_real(config, "train.rate") == 3e-4);
    assert_true(bp_config_is_given(config, "train.steps"));
    assert_false(bp_config_is_given(config, "train.rate"));
    assert_true(bp_config_is_set(config, "train.rate"));
    assert_false(bp_config_is_set(config, "run.note"));
    assert_null(bp_config_string(config, "run.note"));
    bp_config_free(&config);
}

static void compare_default(void *context, const bp_option *option, const char *value)
{
    char *usual = bp_config_default(option);

    (void)context;
    assert_string_equal(usual ? usual : "", value ? value : "");
    bp_free(usual);
}

/* "3e-4" is 0.0003 in a configuration. */
static void defaults_have_the_form_of_values(void **state)
{
    bp_config *config = new_config();

    (void)state;
    bp_config_each(config, compare_default, NULL);
    bp_config_free(&config);
}

static void numbers_are_taken_strictly(void **state)
{
    static const char *const bad[] = {"train.steps=1.5",
                                      "train.steps=1e3",
                                      "train.steps=0x10",
                                      "train.steps=ten",
                                      "train.steps=5x",
                                      "train.steps=9223372036854775808",
                                      "train.steps=1 2",
                                      "train.steps=--5",
                                      "train.rate=nan",
                                      "train.rate=inf",
                                      "train.rate=1e400",
                                      "train.rate=0x1p3",
                                      "train.rate=1e-400",
                                      "train.rate=.",
                                      "train.rate=1,5",
                                      "train.rate=-",
                                      "train.memory=1.5G",
                                      "train.memory=5 KB",
                                      "train.memory=9G9",
                                      "train.memory=GiB",
                                      "train.memory=99999999999 GiB",
                                      "train.trace=maybe",
                                      "train.trace=YES",
                                      "train.order=tre",
                                      "train.order=tree|running",
                                      "train.order=",
                                      "train.steps=1e400"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        bp_test_expect(try_argument(bad[i]), BP_ERR_CONFIG);
    bp_test_expect(try_argument("train.steps=1.5"), BP_ERR_CONFIG);
    bp_test_message_has("[config.bad_value]");
    bp_test_message_has("train.steps = 1.5 ... [config.bad_value]");
    bp_test_expect(try_argument("train.order=tre"), BP_ERR_CONFIG);
    bp_test_message_has("tree, running ... [config.bad_value]");
}

static void ranges_are_to_the_last_value(void **state)
{
    static const char *const good[] = {"train.steps=1",
                                       "train.steps=1000000",
                                       "train.rate=0",
                                       "train.rate=10",
                                       "train.rate=1e-300",
                                       "train.shift=-9223372036854775808",
                                       "train.shift=9223372036854775807",
                                       "train.seed=9007199254740992"};
    static const char *const bad[] = {"train.steps=0",      "train.steps=1000001",
                                      "train.steps=-1",     "train.rate=-1e-9",
                                      "train.rate=10.0001", "train.seed=9007199254740993"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        bp_test_expect(try_argument(good[i]), BP_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bp_test_expect(try_argument(bad[i]), BP_ERR_CONFIG);
        bp_test_message_has("[config.bad_value]");
    }
}

static void bytes_know_their_units(void **state)
{
    static const struct {
        const char *argument;
        int64_t bytes;
    } cases[] = {{"train.memory=7", 7},
                 {"train.memory=7k", 7000},
                 {"train.memory=7M", 7000000},
                 {"train.memory=7G", INT64_C(7000000000)},
                 {"train.memory=7KiB", 7168},
                 {"train.memory=7 MiB", 7 << 20},
                 {"train.memory=7GiB", INT64_C(7) << 30},
                 {"train.memory=0", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bp_config *config = new_config();
        char copy[64], *arguments[] = {copy};
        (void)snprintf(copy, sizeof copy, "%s", cases[i].argument);
        bp_test_expect(bp_config_read(config, NULL, 1, arguments), BP_OK);
        assert_int_equal(bp_config_int(config, "train.memory"), cases[i].bytes);
        bp_config_free(&config);
    }
}

static void all_faults_are_reported_with_their_lines(void **state)
{
    bp_test_expect(try_text("steps = 1\n"
                            "[train]\n"
                            "stepz = 5\n"
                            "rate = fast\n"
                            "order\n"
                            "limit = 1\n"
                            "limit = 2\n"
                            "[rum]\n"
                            "dir = x\n"),
                   BP_ERR_CONFIG);
    bp_test_message_has("key steps: ... [config.unknown_key]");
    bp_test_message_has("test.ini:1 ... train.steps ... [config.unknown_key]");
    bp_test_message_has("[config.unknown_key]");
    bp_test_message_has("train.stepz");
    bp_test_message_has("test.ini:3 ... train.steps ... [config.unknown_key]");
    bp_test_message_has("[config.bad_value]");
    bp_test_message_has("train.rate = fast ... [config.bad_value]");
    bp_test_message_has("[config.not_a_pair]");
    bp_test_message_has("test.ini:5");
    bp_test_message_has("[config.key_twice]");
    bp_test_message_has("train.limit");
    bp_test_message_has("test.ini:7 ... line 6 ... [config.key_twice]");
    bp_test_message_has("[config.unknown_key]");
    bp_test_message_has("rum.dir");
    bp_test_message_has("run.dir ... [config.unknown_key]");
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("train.steps"); /* what is missing is reported at the same time */
    assert_int_equal(count_lines(bp_err_message()), 8);
}

static void faults_are_twenty_at_most(void **state)
{
    char text[4096] = "[train]\n";

    for (int i = 0; i < 50; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "key%d = 1\n", i);
    bp_test_expect(try_text(text), BP_ERR_CONFIG);
    assert_int_equal(count_lines(bp_err_message()), 21);
    bp_test_message_has("[config.more_faults]");
    bp_test_message_has("32"); /* 30, and two keys that are missing */
}

static void missing_keys_are_all_reported(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(read_text(config, ""), BP_OK);
    bp_test_expect(bp_config_check(config), BP_ERR_CONFIG);
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("train.steps");
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("run.dir");
    assert_int_equal(count_lines(bp_err_message()), 2); /* score.stride is another job's */
    bp_config_free(&config);
}

static const bp_option asked_table[] = {
    {"asked.kind", BP_OPTION_CHOICE, "long", 0, 0, "long|short", NULL, "of what", false},
    {"asked.steps", BP_OPTION_INT, NULL, 1, 100, NULL, NULL, "how long",
     BP_REQUIRED_ONE | BP_REQUIRED_ASKED},
    {"asked.epochs", BP_OPTION_REAL, NULL, 0, 100, NULL, NULL, "how long",
     BP_REQUIRED_ONE | BP_REQUIRED_ASKED},
    {"asked.batch", BP_OPTION_INT, NULL, 1, 100, NULL, NULL, "how many", BP_REQUIRED_ASKED},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

static void ask_of_long_ones(bp_config *config)
{
    if (strcmp(bp_config_string(config, "asked.kind"), "long") != 0)
        return;
    bp_config_require(config, "asked.steps");
    bp_config_require(config, "asked.batch");
}

static bp_err try_asked(char *a, char *b)
{
    const bp_option *const tables[] = {asked_table, NULL};
    char *arguments[] = {a, b};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_config_require_by(config, ask_of_long_ones);
    bp_err err = bp_config_read(config, NULL, (a != NULL) + (b != NULL), arguments);
    if (err == BP_OK)
        err = bp_config_check(config);
    bp_config_free(&config);
    return err;
}

static void keys_may_be_required_by_the_value_of_another(void **state)
{
    (void)state;
    bp_test_expect(try_asked("asked.kind=short", NULL), BP_OK);
    bp_test_expect(try_asked("asked.batch=2", "asked.epochs=1"), BP_OK);
    bp_test_expect(try_asked("asked.batch=2", NULL), BP_ERR_CONFIG);
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("asked.steps ... asked.epochs ... [config.missing_key]");
    bp_test_expect(try_asked("asked.epochs=1", NULL), BP_ERR_CONFIG);
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("asked.batch");
    bp_test_expect(try_asked("asked.no=1", NULL), BP_ERR_CONFIG);
    assert_int_equal(count_lines(bp_err_message()), 3); /* all in one round */
    bp_test_expect(try_asked("asked.epochs=1", "asked.steps=1"), BP_ERR_CONFIG);
    bp_test_message_has("[config.exclusive_keys]");
}

static const bp_option length_table[] = {
    {"length.steps", BP_OPTION_INT, NULL, 1, 100, NULL, NULL, "how long", BP_REQUIRED_ONE},
    {"length.epochs", BP_OPTION_REAL, NULL, 0, 100, NULL, NULL, "how long", BP_REQUIRED_ONE},
    {"length.other", BP_OPTION_INT, "1", 0, 0, NULL, NULL, "something else", false},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

/* What becomes of these arguments, NULL-ended, where one key of length_table must be given. */
static bp_err try_lengths(const bp_option *const *used, const char *a, const char *b)
{
    const bp_option *const tables[] = {length_table, NULL};
    char *arguments[] = {(char *)a, (char *)b};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, used), BP_OK);
    bp_err err = bp_config_read(config, NULL, (a != NULL) + (b != NULL), arguments);
    if (err == BP_OK)
        err = bp_config_check(config);
    bp_config_free(&config);
    return err;
}

static void one_alone_of_keys_that_exclude_each_other(void **state)
{
    const bp_option *const used[] = {length_table, NULL}, *const others[] = {NULL};

    bp_test_expect(try_lengths(used, "length.steps=3", NULL), BP_OK);
    bp_test_expect(try_lengths(used, "length.epochs=0.5", NULL), BP_OK);
    bp_test_expect(try_lengths(others, NULL, NULL), BP_OK); /* another job's */
    bp_test_expect(try_lengths(used, NULL, NULL), BP_ERR_CONFIG);
    bp_test_message_has("[config.missing_key]");
    bp_test_message_has("length.steps ... length.epochs ... [config.missing_key]");
    assert_int_equal(count_lines(bp_err_message()), 1);
    bp_test_expect(try_lengths(used, "length.steps=3", "length.epochs=2"), BP_ERR_CONFIG);
    bp_test_message_has("[config.exclusive_keys]");
    bp_test_message_has("length.steps = 3 ... [config.exclusive_keys]");
    assert_int_equal(count_lines(bp_err_message()), 1);
    bp_test_expect(try_lengths(used, "length.steps=3", "length.steps="), BP_ERR_CONFIG);
    bp_test_expect(try_lengths(used, "length.epochs=ten", NULL), BP_ERR_CONFIG);
    assert_int_equal(count_lines(bp_err_message()), 1); /* it was given, and wrong */

    char *help = bp_config_help(used, NULL);
    assert_non_null(strstr(help, "how long (integer, 1 to 100; one required)"));
    bp_free(help);
}

static void command_line_wins(void **state)
{
    bp_config *config = new_config();
    char steps[] = "train.steps=7", dir[] = "run.dir= /x/y ", again[] = "train.steps=8",
         nothing[] = "run.note=";
    char *arguments[] = {steps, dir, again, nothing};

    const char *path = bp_test_write("wins.ini", "[train]\nsteps=5\n[run]\nnote=hi\n", 30);
    bp_test_expect(bp_config_read(config, path, 4, arguments), BP_OK);
    assert_int_equal(bp_config_int(config, "train.steps"), 8); /* and the last of them */
    assert_string_equal(bp_config_string(config, "run.dir"), "/x/y");
    assert_false(bp_config_is_set(config, "run.note"));
    bp_config_free(&config);
    bp_test_expect(try_argument("train.steps"), BP_ERR_USAGE);
    bp_test_message_has("[command.not_a_pair]");
    bp_test_message_has("train.steps");
    bp_test_expect(try_argument("train.step=5"), BP_ERR_CONFIG);
    bp_test_message_has("train.step ... train.steps ... [config.unknown_key]");
}

static void keys_of_other_jobs_are_accepted(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(read_text(config, "[score]\nstride = 5\n"), BP_OK);
    assert_int_equal(bp_config_int(config, "score.stride"), 5);
    char *text = bp_config_text(config);
    assert_null(strstr(text, "score"));
    bp_free(text);
    bp_config_free(&config);
}

static void resolved_values_are_checked_but_not_given(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(bp_config_set(config, "train.steps", "9"), BP_OK);
    assert_int_equal(bp_config_int(config, "train.steps"), 9);
    assert_true(bp_config_is_set(config, "train.steps"));
    assert_false(bp_config_is_given(config, "train.steps"));
    bp_test_expect(bp_config_set(config, "train.steps", "0"), BP_ERR_CONFIG);
    assert_int_equal(bp_config_int(config, "train.steps"), 9);
    bp_test_expect(bp_config_set_int(config, "train.steps", 1000000), BP_OK);
    assert_int_equal(bp_config_int(config, "train.steps"), 1000000);
    assert_false(bp_config_is_given(config, "train.steps"));
    bp_test_expect(bp_config_set_int(config, "train.steps", -1), BP_ERR_CONFIG);
    assert_int_equal(bp_config_int(config, "train.steps"), 1000000);
    bp_config_free(&config);
}

static void faults_of_callers_are_collected(void **state)
{
    bp_config *config = new_config();

    bp_test_expect(bp_config_faults(config), BP_OK);
    bp_config_fault(config, "model.not_dividing",
                    "model.width = %d is no multiple of model.heads = %d", 10, 3);
    bp_config_fault(config, "test.two_lines", "two\nlines");
    bp_test_expect(bp_config_faults(config), BP_ERR_CONFIG);
    assert_string_equal(bp_err_message(),
                        "model.width = 10 is no multiple of model.heads = 3 [model.not_dividing]\n"
                        "two lines [test.two_lines]");
    bp_test_expect(bp_config_faults(config), BP_OK);
    bp_config_free(&config);
}

typedef struct visited {
    int count;
    char keys[256];
} visited;

static void visit(void *context, const bp_option *option, const char *value)
{
    visited *v = context;

    v->count++;
    (void)snprintf(v->keys + strlen(v->keys), sizeof v->keys - strlen(v->keys), "%s=%s ",
                   option->key, value == NULL ? "?" : value);
}

static void each_key_of_the_job_is_visited(void **state)
{
    bp_config *config = new_config();
    visited v = {0, ""};

    bp_config_each(config, visit, &v);
    assert_int_equal(v.count, 10);
    assert_string_equal(v.keys, "train.steps=? train.rate=0.0003 train.memory=1 GiB train.trace=no "
                                "train.order=tree train.shift=-3 train.seed=1 train.limit=? "
                                "run.dir=? run.note=? ");
    bp_config_free(&config);
}

static void help_shows_every_key(void **state)
{
    char *help = bp_config_help(used_tables, NULL);

    for (const bp_option *row = train_table; row->key != NULL; row++) {
        assert_non_null(strstr(help, row->key));
        assert_non_null(strstr(help, row->help));
    }
    assert_non_null(strstr(help, "\n[train]\n  train.steps   optimizer steps (steps, 1 or more; "
                                 "required)\n"));
    assert_non_null(strstr(help, "\n[run]\n"));
    assert_non_null(strstr(help, "(tree|running; default tree)"));
    assert_null(strstr(help, "score"));
    for (const char *line = help; *line != 0; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 79);
    bp_free(help);
}

static void groups_of_help_follow_the_sections(void **state)
{
    static const bp_option ROWS[] = {
        {.key = "train.a_key_that_is_longer", .type = BP_OPTION_INT, .help = "of two"}, {0}};
    const bp_key_group groups[] = {{"train.order = tree", ROWS}, {.rows = NULL}};
    char *help = bp_config_help(used_tables, groups);
    const char *last = "\ntrain.order = tree:\n  train.a_key_that_is_longer  of two (integer)\n";

    (void)state;
    assert_string_equal(help + strlen(help) - strlen(last), last);
    assert_non_null(strstr(help, "\n[train]\n  train.steps                 optimizer steps"));
    bp_free(help);
}

typedef struct bound_keys {
    int64_t steps;
    double rate;
    bool flag;
    const char *path;
} bound_keys;

static const bp_option bound_table[] = {
    {"b.steps", BP_OPTION_INT, NULL, 0, 1e9, NULL, NULL, "", false, .at = BP_AT(bound_keys, steps)},
    {"b.rate", BP_OPTION_REAL, "0.5", 0, 1, NULL, NULL, "", false, .at = BP_AT(bound_keys, rate)},
    {"b.flag", BP_OPTION_BOOL, "yes", 0, 0, NULL, NULL, "", false, .at = BP_AT(bound_keys, flag)},
    {"b.path", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, "", false, .at = BP_AT(bound_keys, path),
     .was = "b.file"},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false}};

static void keys_are_bound_to_a_struct(void **state)
{
    const bp_option *const tables[] = {bound_table, NULL};
    char *given[] = {"b.steps=7", "b.file=x/y"};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    const bound_keys *keys = bp_config_bound(config, bound_table);
    assert_int_equal(keys->steps, 0);
    assert_true(keys->flag);
    assert_null(keys->path);
    bp_test_expect(bp_config_read(config, NULL, 2, given), BP_OK);
    assert_ptr_equal(bp_config_bound(config, bound_table), keys);
    assert_int_equal(keys->steps, 7);
    assert_float_equal(keys->rate, 0.5, 0);
    assert_string_equal(keys->path, "x/y");
    bp_test_expect(bp_config_set_int(config, "b.steps", 9), BP_OK);
    bp_test_expect(bp_config_set(config, "b.flag", "no"), BP_OK);
    assert_int_equal(keys->steps, 9);
    assert_false(keys->flag);
    bp_config_free(&config);
}

static void names_with_equals_are_distinguished_from_pairs(void **state)
{
    char folder[PATH_MAX];

    assert_true(bp_config_is_pair("train.steps=3"));
    assert_true(bp_config_is_pair("steps=3"));
    assert_true(bp_config_is_pair("run.dir=a/b=c"));
    assert_false(bp_config_is_pair("small.ini"));
    assert_false(bp_config_is_pair("./lr=3.ini"));
    assert_false(bp_config_is_pair("a.b/lr=3.ini"));
    assert_non_null(getcwd(folder, sizeof folder));
    assert_int_equal(chdir(bp_test_folder()), 0);
    (void)bp_test_write("lr=3.ini", "x", 1);
    assert_false(bp_config_is_pair("lr=3.ini"));
    assert_int_equal(chdir(folder), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_bound_to_a_struct),
        cmocka_unit_test(names_with_equals_are_distinguished_from_pairs),
        cmocka_unit_test(values_of_all_types_are_read),
        cmocka_unit_test(defaults_have_the_form_of_values),
        cmocka_unit_test(numbers_are_taken_strictly),
        cmocka_unit_test(ranges_are_to_the_last_value),
        cmocka_unit_test(bytes_know_their_units),
        cmocka_unit_test(all_faults_are_reported_with_their_lines),
        cmocka_unit_test(faults_are_twenty_at_most),
        cmocka_unit_test(missing_keys_are_all_reported),
        cmocka_unit_test(keys_may_be_required_by_the_value_of_another),
        cmocka_unit_test(one_alone_of_keys_that_exclude_each_other),
        cmocka_unit_test(command_line_wins),
        cmocka_unit_test(keys_of_other_jobs_are_accepted),
        cmocka_unit_test(resolved_values_are_checked_but_not_given),
        cmocka_unit_test(faults_of_callers_are_collected),
        cmocka_unit_test(each_key_of_the_job_is_visited),
        cmocka_unit_test(help_shows_every_key),
        cmocka_unit_test(groups_of_help_follow_the_sections),
    };
    return BP_TEST_RUN(tests);
}
