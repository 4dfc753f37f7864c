#include "base/fault.h"
#include "base/log.h"
#include "bp_test.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void severity_is_ordered_as_agreed(void **state)
{
    static const bp_err worst_first[] = {
        BP_ERR_SOFTWARE, BP_ERR_SYSTEM, BP_ERR_IO,     BP_ERR_CREATE, BP_ERR_DENIED,  BP_ERR_BUSY,
        BP_ERR_FORMAT,   BP_ERR_INPUT,  BP_ERR_CONFIG, BP_ERR_USAGE,  BP_ERR_STOPPED, BP_OK};

    for (size_t i = 1; i < sizeof worst_first / sizeof worst_first[0]; i++)
        assert_true(bp_err_severity(worst_first[i - 1]) > bp_err_severity(worst_first[i]));
    assert_int_equal(bp_err_severity(BP_OK), 0);
    assert_true(bp_err_severity((bp_err)99) > bp_err_severity(BP_ERR_SOFTWARE));
}

static void bytes_of_users_are_escaped(void **state)
{
    assert_int_equal(BP_FAIL(BP_ERR_FORMAT, "test.odd", "a\x1b[2J\tb\xc3\xa9\x7f: at %s", "x"),
                     BP_ERR_FORMAT);
    assert_string_equal(bp_err_message(), "a\\x1B[2J\\x09b\\xC3\\xA9\\x7F: at x [test.odd]");
    assert_int_equal(BP_FAIL_LINES(BP_ERR_CONFIG, "test.odd", "one\ntwo\n\n"), BP_ERR_CONFIG);
    assert_string_equal(bp_err_message(), "one [test.odd]\ntwo [test.odd]");
}

static void long_line_keeps_its_head_and_tail(void **state)
{
    char value[3000], text[3100];

    memset(value, '\xff', sizeof value);
    value[sizeof value - 1] = 0;
    (void)snprintf(text, sizeof text, "bad value %s: at file:3; give 5\nnext", value);
    assert_int_equal(BP_FAIL_LINES(BP_ERR_CONFIG, "test.odd", text), BP_ERR_CONFIG);
    const char *message = bp_err_message();
    size_t first = strcspn(message, "\n");
    assert_in_range(first, BP_ERR_LINE_BYTES - 8, BP_ERR_LINE_BYTES);
    assert_memory_equal(message, "bad value \\xFF\\xFF", 18);
    assert_non_null(strstr(message, "\\xFF ... \\xFF")); /* no escape is split */
    assert_non_null(strstr(message, "\\xFF: at file:3; give 5 [test.odd]\nnext [test.odd]"));
}

static void a_message_is_one_line_but_for_faults(void **state)
{
    assert_int_equal(BP_FAIL(BP_ERR_CONFIG, "test.odd", "odd: at a\nb; use b"), BP_ERR_CONFIG);
    assert_string_equal(bp_err_message(), "odd: at a\\x0Ab; use b [test.odd]");
    (void)bp_err_prefix(BP_ERR_CONFIG, "c\nd");
    assert_string_equal(bp_err_message(), "c\\x0Ad: odd: at a\\x0Ab; use b [test.odd]");
    assert_int_equal(BP_FAIL(BP_ERR_INPUT, "test.odd", "no such file: at a\nb\n"), BP_ERR_INPUT);
    assert_string_equal(bp_err_message(), "no such file: at a\\x0Ab\\x0A [test.odd]");
    bp_err_set_message("one\ntwo"); /* another rank's, of a configuration */
    assert_string_equal(bp_err_message(), "one\ntwo");
}

static void any_length_fits_the_buffer(void **state)
{
    char *text = malloc(200000);

    assert_non_null(text);
    for (int i = 0; i < 199999; i++)
        text[i] = i % 50 == 49 ? '\n' : '\x01';
    text[199999] = 0;
    assert_int_equal(BP_FAIL_LINES(BP_ERR_CONFIG, "test.odd", text), BP_ERR_CONFIG);
    assert_in_range(strlen(bp_err_message()), BP_ERR_MESSAGE_BYTES / 2, BP_ERR_MESSAGE_BYTES - 1);
    free(text);
}

static void prefix_stands_before_the_message(void **state)
{
    bp_err err = BP_FAIL(BP_ERR_IO, "test.odd", "short read: at x");
    assert_int_equal(bp_err_prefix(err, "shard %d", 3), BP_ERR_IO);
    assert_string_equal(bp_err_message(), "shard 3: short read: at x [test.odd]");
}

static void identifier_goes_along(void **state)
{
    (void)BP_FAIL(BP_ERR_IO, "test.odd", "short read: at [x.y]");
    assert_string_equal(bp_err_text(), "short read: at [x.y]");
    assert_string_equal(bp_err_id(bp_err_message()), "test.odd]");
    assert_int_equal(bp_err_wrap(BP_ERR_FORMAT, "bad (%s), so", bp_err_text()), BP_ERR_FORMAT);
    assert_string_equal(bp_err_message(), "bad (short read: at [x.y]), so [test.odd]");
    bp_err_set_message("as it comes: at [here]");
    assert_string_equal(bp_err_text(), bp_err_message());
    assert_string_equal(bp_err_id(bp_err_message()), "");
    (void)bp_err_prefix(BP_ERR_IO, "5");
    assert_string_equal(bp_err_message(), "5: as it comes: at [here]");
}

static void a_remedy_is_given_once(void **state)
{
    assert_int_equal(
        bp_err_advise(BP_FAIL(BP_ERR_FORMAT, "test.odd", "5 is odd; 2 to 8: at x"), "halve it"),
        BP_ERR_FORMAT);
    assert_string_equal(bp_err_message(), "5 is odd; 2 to 8: at x; halve it [test.odd]");
    assert_int_equal(bp_err_advise(BP_ERR_FORMAT, "double it"), BP_ERR_FORMAT);
    assert_string_equal(bp_err_message(), "5 is odd; 2 to 8: at x; halve it [test.odd]");
    assert_int_equal(
        bp_err_advise(BP_FAIL(BP_ERR_FORMAT, "test.odd", "cut: at x, line 3"), "mend it"),
        BP_ERR_FORMAT);
    assert_string_equal(bp_err_message(), "cut: at x, line 3; mend it [test.odd]");
    assert_int_equal(bp_err_advise(BP_FAIL(BP_ERR_IO, "test.odd", "short read: at x"), "halve it"),
                     BP_ERR_IO);
    assert_string_equal(bp_err_message(), "short read: at x [test.odd]");
    assert_int_equal(bp_err_advise(BP_OK, "halve it"), BP_OK);
}

static void errno_decides_the_code(void **state)
{
    static const struct {
        int number;
        bp_err reading, creating;
    } cases[] = {{ENOENT, BP_ERR_INPUT, BP_ERR_CREATE},  {ENOTDIR, BP_ERR_INPUT, BP_ERR_CREATE},
                 {EACCES, BP_ERR_DENIED, BP_ERR_DENIED}, {EPERM, BP_ERR_DENIED, BP_ERR_DENIED},
                 {EROFS, BP_ERR_DENIED, BP_ERR_DENIED},  {ENOMEM, BP_ERR_SYSTEM, BP_ERR_SYSTEM},
                 {EMFILE, BP_ERR_SYSTEM, BP_ERR_SYSTEM}, {ENFILE, BP_ERR_SYSTEM, BP_ERR_SYSTEM},
                 {ENOSPC, BP_ERR_IO, BP_ERR_IO},         {EDQUOT, BP_ERR_IO, BP_ERR_IO},
                 {EIO, BP_ERR_IO, BP_ERR_CREATE}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        errno = cases[i].number;
        assert_int_equal(bp_fail_errno(BP_ERR_IO, "can't read", "/a/b"), cases[i].reading);
        errno = cases[i].number;
        assert_int_equal(bp_fail_create("can't make", "/a/b"), cases[i].creating);
    }
    assert_string_equal(
        bp_err_message(),
        "can't make: Input/output error: at /a/b; check the file system [file.io_error]");
}

static void *fail_in_thread(void *context)
{
    (void)context;
    (void)BP_FAIL(BP_ERR_IO, "test.thread", "in the thread");
    return NULL;
}

static void message_belongs_to_its_thread(void **state)
{
    pthread_t thread;

    (void)BP_FAIL(BP_ERR_IO, "test.main", "in main");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(bp_err_message(), "in main [test.main]");
    bp_err_set_message("handed over");
    assert_string_equal(bp_err_message(), "handed over");
}

/* What `act` writes to standard error in a child of ours; *status is the child's. */
static void capture(char *out, size_t out_bytes, int *status, void (*act)(void))
{
    const char *path = bp_test_path("stderr");
    FILE *file;

    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
            _exit(1);
        (void)signal(SIGABRT, SIG_DFL); /* cmocka catches it */
        act();
        _exit(0);
    }
    assert_int_equal(waitpid(child, status, 0), child);
    file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, out_bytes - 1, file)] = 0;
    (void)fclose(file);
}

static void print_two_faults(void)
{
    bp_err_print(BP_FAIL_LINES(BP_ERR_CONFIG, "test.odd", "one: at a:1\ntwo: at a:2"));
}

static void every_fault_has_a_line(void **state)
{
    char text[1024];
    int status;

    capture(text, sizeof text, &status, print_two_faults);
    assert_string_equal(
        text,
        "bagpipe: error[78]: one: at a:1 [test.odd]\nbagpipe: error[78]: two: at a:2 [test.odd]\n");
}

static void stop_as_asked(void)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err = bp_fail_stopped("at step %d of 9; the same command goes on", 3);

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (err != BP_ERR_STOPPED || !bp_err_was_asked(err) || bp_err_was_asked(BP_ERR_IO))
        _exit(1);
    (void)BP_FAIL(BP_ERR_IO, "test.odd", "another");
    bp_err_set_message(message); /* as it comes from another rank */
    bp_err_print(err);
    bp_err_print(bp_err_prefix(bp_fail_stopped("halted"), "method %d", 2));
    err = BP_FAIL(BP_ERR_STOPPED, "test.odd", "memory changed: at rank 1");
    if (!bp_err_was_asked(err))
        bp_err_print(err);
}

static void what_was_asked_for_is_no_error(void **state)
{
    char text[1024];
    int status;

    capture(text, sizeof text, &status, stop_as_asked);
    assert_string_equal(text,
                        "bagpipe: stopped: at step 3 of 9; the same command goes on [run.stopped]\n"
                        "bagpipe: stopped: method 2: halted [run.stopped]\n"
                        "bagpipe: error[75]: memory changed: at rank 1 [test.odd]\n");
}

static void speak_as_another(void)
{
    bp_err_set_program("bagpipe-data");
    bp_err_print(BP_FAIL(BP_ERR_IO, "test.odd", "one"));
    BP_WARN("test.even", "two");
    BP_ASSERT(1 + 1 == 3);
}

static void program_calls_itself_by_its_name(void **state)
{
    static const char begin[] =
        "bagpipe-data: error[74]: one [test.odd]\nbagpipe-data: warning: two [test.even]\n"
        "bagpipe-data: error[70]: a bug: ";
    char text[1024];
    int status;

    capture(text, sizeof text, &status, speak_as_another);
    assert_memory_equal(text, begin, sizeof begin - 1);
}

static void warn_of_a_step_and_of_a_failure(void)
{
    BP_WARN("test.odd", "step %d is damaged", 7);
    (void)BP_FAIL(BP_ERR_IO, "test.even", "the disk is full");
    bp_warn_failure("no page: %s; step %d goes on", bp_err_text(), 8);
    bp_err_set_message("of another program");
    bp_warn_failure("%s", bp_err_text());
}

static void warning_is_one_line_with_its_identifier(void **state)
{
    char text[1024];
    int status;

    capture(text, sizeof text, &status, warn_of_a_step_and_of_a_failure);
    assert_string_equal(text,
                        "bagpipe: warning: step 7 is damaged [test.odd]\n"
                        "bagpipe: warning: no page: the disk is full; step 8 goes on [test.even]\n"
                        "bagpipe: warning: of another program\n");
}

static void warn_at_length(void)
{
    BP_WARN("test.odd", "%0500d; remedy", 1);
}

static void warning_that_is_too_long_keeps_its_identifier(void **state)
{
    static const char head[] = "bagpipe: warning: 0", tail[] = "1; remedy [test.odd]\n";
    char text[1024];
    int status;

    capture(text, sizeof text, &status, warn_at_length);
    assert_memory_equal(text, head, sizeof head - 1);
    assert_string_equal(text + strlen(text) - (sizeof tail - 1), tail);
    assert_true(strlen(text) <= strlen("bagpipe: warning: \n") + BP_ERR_LINE_BYTES);
}

static void fail_assertion(void)
{
    BP_ASSERT(1 + 1 == 2);
    BP_ASSERT(1 + 1 == 3);
}

static void leave_with(int status)
{
    _exit(status);
}

static void fail_assertion_with_handler(void)
{
    bp_assert_set_handler(leave_with, 5);
    fail_assertion();
}

static void take_too_much(void)
{
    bp_assert_set_handler(leave_with, 5);
    bp_free(bp_alloc("test.much", INT64_MAX, 1));
}

static void end_of_memory_ends_the_program(void **state)
{
    char text[1024];
    int status;

    capture(text, sizeof text, &status, take_too_much);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 71);
    assert_non_null(strstr(text, "ranks on each [memory.short]\n"));
    assert_non_null(strstr(text, "for test.much, rank 5; use more nodes"));
}

static void broken_assertion_ends_the_program(void **state)
{
    char text[1024];
    int status;

    capture(text, sizeof text, &status, fail_assertion);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "error[70]: a bug: \"1 + 1 == 3\" does not hold: at test_err.c:"));
    capture(text, sizeof text, &status, fail_assertion_with_handler);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 70);
    assert_non_null(strstr(text, "rank 5; please report it [program.bug]\n"));
}

static void faults_are_injected_by_name_call_and_rank(void **state)
{
    bp_fault_arm("base.read:2,base.write@1,math.gemm:2+");
    assert_false(bp_fault("base.read"));
    assert_true(bp_fault("base.read"));
    assert_false(bp_fault("base.read"));
    assert_false(bp_fault("base.write"));
    bp_fault_set_rank(1);
    assert_true(bp_fault("base.write"));
    bp_fault_set_rank(0);
    assert_false(bp_fault("math.gemm"));
    assert_true(bp_fault("math.gemm"));
    assert_true(bp_fault("math.gemm"));
    assert_false(bp_fault("math.weight"));
    bp_fault_arm(NULL);
    assert_false(bp_fault("math.gemm"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(severity_is_ordered_as_agreed),
        cmocka_unit_test(bytes_of_users_are_escaped),
        cmocka_unit_test(long_line_keeps_its_head_and_tail),
        cmocka_unit_test(a_message_is_one_line_but_for_faults),
        cmocka_unit_test(any_length_fits_the_buffer),
        cmocka_unit_test(prefix_stands_before_the_message),
        cmocka_unit_test(identifier_goes_along),
        cmocka_unit_test(a_remedy_is_given_once),
        cmocka_unit_test(errno_decides_the_code),
        cmocka_unit_test(message_belongs_to_its_thread),
        cmocka_unit_test(every_fault_has_a_line),
        cmocka_unit_test(what_was_asked_for_is_no_error),
        cmocka_unit_test(program_calls_itself_by_its_name),
        cmocka_unit_test(warning_is_one_line_with_its_identifier),
        cmocka_unit_test(warning_that_is_too_long_keeps_its_identifier),
        cmocka_unit_test(broken_assertion_ends_the_program),
        cmocka_unit_test(end_of_memory_ends_the_program),
        cmocka_unit_test(faults_are_injected_by_name_call_and_rank),
    };
    return BP_TEST_RUN(tests);
}
