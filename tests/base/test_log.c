/* The log, the clock and the signals: what a job shows of itself. */
#include "base/log.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "bp_test.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_all(int fd, char *out, size_t out_bytes)
{
    size_t used = 0;

    while (used + 1 < out_bytes) {
        ssize_t got = read(fd, out + used, out_bytes - 1 - used);
        if (got <= 0) /* a pseudo-terminal ends with EIO */
            break;
        used += (size_t)got;
    }
    out[used] = 0;
}

/* What `act` shows on a pipe (columns 0), or on a terminal of that width. */
static void show(char *out, size_t out_bytes, int columns, void (*act)(void))
{
    struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int fds[2] = {-1, -1}, status;

    (void)fflush(NULL);
    if (columns == 0)
        assert_int_equal(pipe(fds), 0);
    pid_t child = columns > 0 ? forkpty(&fds[0], NULL, NULL, &window) : fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (columns == 0 && dup2(fds[1], STDOUT_FILENO) < 0)
            _exit(1);
        act();
        (void)fflush(NULL);
        _exit(0);
    }
    if (columns == 0)
        assert_int_equal(close(fds[1]), 0);
    read_all(fds[0], out, out_bytes);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_shown(int columns, void (*act)(void), const char *expected)
{
    char text[1024];

    show(text, sizeof text, columns, act);
    assert_string_equal(text, expected);
}

static void two_steps_and_a_line(void)
{
    bp_log_progress("step %d of a long run", 1);
    bp_log_progress("step %d", 2);
    bp_log("done");
}

static void progress_is_plain_lines_on_a_pipe(void **state)
{
    expect_shown(0, two_steps_and_a_line, "step 1 of a long run\nstep 2\ndone\n");
}

static void progress_overwrites_itself_on_a_terminal(void **state)
{
    expect_shown(80, two_steps_and_a_line,
                 "\r\033[Kstep 1 of a long run\r\033[Kstep 2\r\033[Kdone\r\n");
}

static void progress_never_wraps(void **state)
{
    expect_shown(10, two_steps_and_a_line, "\r\033[Kstep 1 of\r\033[Kstep 2\r\033[Kdone\r\n");
}

static void a_step_with_fields(void)
{
    bp_log_progress("step 1/9  loss 2.5  3 s left  lr 0.1");
}

static void progress_ends_with_a_whole_field(void **state)
{
    expect_shown(37, a_step_with_fields, "\r\033[Kstep 1/9  loss 2.5  3 s left  lr 0.1");
    expect_shown(36, a_step_with_fields, "\r\033[Kstep 1/9  loss 2.5  3 s left");
    expect_shown(20, a_step_with_fields, "\r\033[Kstep 1/9  loss 2.5");
}

static void say_long_lines(void)
{
    bp_print_lines("one two three four five six seven\n\nabcdefghijklmnopqrstuvwxyz", 4);
}

static void long_lines_break_between_words_on_a_terminal_alone(void **state)
{
    expect_shown(14, say_long_lines,
                 "one two three\r\n    four five\r\n    six seven\r\n\r\n"
                 "abcdefghijklmnopqrstuvwxyz\r\n");
    expect_shown(0, say_long_lines,
                 "one two three four five six seven\n\nabcdefghijklmnopqrstuvwxyz\n");
}

static void keep_the_last_step(void)
{
    bp_log_progress("step 1");
    bp_log_keep_progress();
    bp_log_keep_progress();
    bp_log_screen_only("done");
}

static void the_last_step_may_stay(void **state)
{
    expect_shown(80, keep_the_last_step, "\r\033[Kstep 1\r\ndone\r\n");
    expect_shown(0, keep_the_last_step, "step 1\ndone\n");
}

static void warn_between_steps(void)
{
    bp_log_progress("step 1");
    BP_WARN("test.odd", "look out");
    bp_log_progress("step 2");
}

static void warning_does_not_mix_with_progress(void **state)
{
    expect_shown(80, warn_between_steps,
                 "\r\033[Kstep 1\r\033[Kbagpipe: warning: look out [test.odd]\r\n\r\033[Kstep 2");
}

static void say_control_bytes(void)
{
    bp_log("file \x1b[2J\x07\n.txt");
}

static void control_bytes_do_not_reach_the_terminal(void **state)
{
    expect_shown(0, say_control_bytes, "file ?[2J??.txt\n");
}

static void say_silently(void)
{
    bp_log_set_speaker(false);
    bp_log("not shown");
    bp_log_progress("not shown");
    BP_WARN("test.odd", "not shown");
    if (bp_log_open(bp_test_path("silent.txt")) != BP_OK)
        _exit(1);
}

static void only_the_speaker_is_heard(void **state)
{
    assert_true(bp_log_speaks());
    (void)bp_test_folder();
    expect_shown(80, say_silently, "");
    assert_false(bp_path_exists(bp_test_path("silent.txt")));
}

static void write_log_file(void)
{
    if (bp_log_open(bp_test_path("log.txt")) != BP_OK)
        _exit(1);
    bp_log_file_only("one\ntwo");
    bp_log_progress("three");
    bp_log_file_only("four");
    BP_WARN("test.odd", "five");
    bp_log_close();
    bp_log("six");
}

static void file_gets_every_line_with_its_time(void **state)
{
    static const char *const lines[] = {"one", "two", "three", "four", "warning: five [test.odd]"};
    char shown[1024], *data;
    size_t bytes;

    (void)bp_test_folder();
    show(shown, sizeof shown, 80, write_log_file);
    assert_null(strstr(shown, "four"));
    bp_test_expect(bp_file_read(bp_test_path("log.txt"), 4096, &data, &bytes), BP_OK);
    const char *p = data;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(p[10], 'T'); /* 2026-11-20T17:03:01Z */
        assert_int_equal(p[19], 'Z');
        assert_memory_equal(p + 22, lines[i], strlen(lines[i]));
        p += 22 + strlen(lines[i]);
        assert_int_equal(*p++, '\n');
    }
    assert_int_equal(*p, 0);
    bp_free(data);
}

static void log_without_a_folder_is_an_error(void **state)
{
    bp_test_expect(bp_log_open(bp_test_path("no/log.txt")), BP_ERR_CREATE);
    bp_test_expect(bp_log_open(bp_test_folder()), BP_ERR_FORMAT);
    if (geteuid() == 0 && seteuid(65534) != 0)
        bp_test_skip("this user can't step down from root");
    bp_err err = bp_log_open("/log-of-a-test.txt");
    assert_int_equal(seteuid(getuid()), 0);
    assert_int_equal(err, BP_ERR_DENIED);
}

static void log_on_a_full_disk(void)
{
    struct rlimit small = {30, 30};

    bp_signals_init();
    if (bp_log_open(bp_test_path("full.txt")) != BP_OK || setrlimit(RLIMIT_FSIZE, &small) != 0)
        _exit(1);
    if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        _exit(1);
    for (int i = 0; i < 5; i++)
        bp_log("line %d", i);
}

static void full_disk_costs_the_log_and_not_the_run(void **state)
{
    char text[1024];

    (void)bp_test_folder();
    show(text, sizeof text, 0, log_on_a_full_disk);
    const char *warning = strstr(text, "bagpipe: warning: ");
    assert_non_null(warning);
    assert_non_null(strstr(warning, "(File too large)"));
    assert_non_null(strstr(warning, "[log.not_written]\n"));
    assert_null(strstr(warning + 20, "warning"));
    assert_non_null(strstr(text, "line 4\n"));
}

static void time_goes_on(void **state)
{
    double before = bp_clock_now();
    bp_clock_sleep(0.02);
    double passed = bp_clock_now() - before;
    assert_true(passed >= 0.02 && passed < 5);
    bp_clock_sleep(0);
    bp_clock_sleep(-1);
    assert_int_equal(strlen(bp_clock_stamp().text), 20);
    assert_int_equal(bp_clock_stamp().text[19], 'Z');
}

static void durations_are_readable(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0.0 s"},
                 {4.23, "4.2 s"},
                 {9.94, "9.9 s"},
                 {9.96, "10 s"},
                 {59.4, "59 s"},
                 {59.6, "1 min 00 s"},
                 {200, "3 min 20 s"},
                 {3599.4, "59 min 59 s"},
                 {3599.6, "1 h 00 min"},
                 {3720, "1 h 02 min"},
                 {360000, "100 h 00 min"},
                 {-1, "0.0 s"},
                 {1e300, "?"},
                 {NAN, "?"}};
    char text[32];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bp_clock_duration(text, sizeof text, cases[i].seconds);
        assert_string_equal(text, cases[i].text);
    }
}

static void signals_ask_to_stop(void **state)
{
    static const int numbers[] = {SIGUSR1, SIGINT, SIGTERM};
    static const bp_stop reasons[] = {BP_STOP_USR1, BP_STOP_INT, BP_STOP_TERM};

    for (int i = 0; i < 3; i++) {
        int status;
        (void)fflush(NULL);
        pid_t child = fork(); /* the flags can't be taken back */
        assert_true(child >= 0);
        if (child == 0) {
            bp_signals_init();
            (void)unsetenv("OMPI_COMM_WORLD_SIZE");
            bool before = bp_signals_stop_asked() || bp_signals_terminating();
            (void)raise(numbers[i]);
            (void)raise(SIGPIPE);
            (void)raise(SIGXFSZ);
            bool after = bp_signals_stop_asked() && !bp_signals_terminating() &&
                         bp_signals_stop_reason() == reasons[i];
            (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1); /* as under mpirun */
            after = after && bp_signals_terminating() == (numbers[i] == SIGTERM);
            bp_signals_ask_stop(BP_STOP_HALT); /* the first reason stands */
            after = after && bp_signals_stop_reason() == reasons[i];
            _exit(!before && after ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

#if defined(__x86_64__)
/* Sends itself a signal while the stack pointer has hardly any space below it, as code that oneDNN
 * makes has it at times. */
static void raise_without_stack(int number)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long call = SYS_tgkill;

    if (pages == MAP_FAILED || mprotect(pages, 4096, PROT_NONE) != 0)
        _exit(2);
    __asm__ volatile("mov %%rsp, %%r12\n\tmov %1, %%rsp\n\tsyscall\n\tmov %%r12, %%rsp"
                     : "+a"(call)
                     : "b"(pages + 4096 + 256), "D"((long)getpid()), "S"((long)gettid()),
                       "d"((long)number)
                     : "r11", "r12", "rcx", "memory");
}

static void handlers_have_a_stack_of_their_own(void **state)
{
    int status;

    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bp_signals_init();
        raise_without_stack(SIGUSR1);
        _exit(bp_signals_stop_asked() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

static void asked_of_another_rank(void *context)
{
    int *calls = context;

    (*calls)++;
    (void)bp_signals_stop_asked(); /* does not come back here */
    if (*calls == 2)
        bp_signals_ask_stop(BP_STOP_RANK);
}

static void a_watch_hears_others_before_each_answer(void **state)
{
    int status;

    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int calls = 0;
        bp_signals_watch(asked_of_another_rank, &calls);
        bool first = bp_signals_stop_asked(), second = bp_signals_stop_asked();
        bp_signals_unwatch(asked_of_another_rank, &calls);
        bool third = bp_signals_stop_asked();
        _exit(!first && second && third && calls == 2 && !bp_signals_terminating() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const char *job_log, *member_log;

static void a_job_within_a_job(void)
{
    (void)dup2(STDOUT_FILENO, STDERR_FILENO);
    (void)bp_log_open(job_log);
    bp_log("the job begins");
    bp_log_set_member("m03", true);
    (void)bp_log_use(BP_LOG_MEMBER);
    (void)bp_log_open(member_log);
    bp_log("step 1");
    bp_log_progress("step 2");
    BP_WARN("test.odd", "windows repeat");
    bp_log_channel before = bp_log_use(BP_LOG_JOB);
    bp_log("one is at step 2");
    (void)bp_log_use(before);
    bp_log_close();
    bp_log_set_member("m04", false); /* another rank speaks for it */
    bp_log("step 1 of another");
    BP_WARN("test.odd", "heard by another rank");
    (void)bp_log_use(BP_LOG_JOB);
    BP_WARN("test.even", "the job's own");
    bp_log("the job ends");
}

static void read_file(char *out, size_t out_bytes, const char *path)
{
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    read_all(fd, out, out_bytes);
    assert_int_equal(close(fd), 0);
}

static void a_member_has_its_own_lines_and_its_name_before_warnings(void **state)
{
    char shown[4096], text[4096], paths[2][256];

    (void)snprintf(paths[0], sizeof paths[0], "%s", bp_test_path("job.txt"));
    (void)snprintf(paths[1], sizeof paths[1], "%s", bp_test_path("member.txt"));
    job_log = paths[0];
    member_log = paths[1];
    show(shown, sizeof shown, 0, a_job_within_a_job);
    assert_string_equal(shown, "the job begins\nbagpipe: warning: m03: windows repeat [test.odd]\n"
                               "one is at step 2\nbagpipe: warning: the job's own [test.even]\n"
                               "the job ends\n");
    read_file(text, sizeof text, member_log);
    assert_non_null(strstr(text, "  step 1\n"));
    assert_non_null(strstr(text, "  step 2\n"));
    assert_non_null(strstr(text, "  warning: windows repeat [test.odd]\n"));
    assert_null(strstr(text, "job"));
    assert_null(strstr(text, "another"));
    read_file(text, sizeof text, job_log);
    assert_non_null(strstr(text, "  one is at step 2\n"));
    assert_non_null(strstr(text, "  the job ends\n"));
    assert_null(strstr(text, "windows repeat"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_plain_lines_on_a_pipe),
        cmocka_unit_test(progress_overwrites_itself_on_a_terminal),
        cmocka_unit_test(progress_never_wraps),
        cmocka_unit_test(progress_ends_with_a_whole_field),
        cmocka_unit_test(long_lines_break_between_words_on_a_terminal_alone),
        cmocka_unit_test(the_last_step_may_stay),
        cmocka_unit_test(warning_does_not_mix_with_progress),
        cmocka_unit_test(control_bytes_do_not_reach_the_terminal),
        cmocka_unit_test(only_the_speaker_is_heard),
        cmocka_unit_test(file_gets_every_line_with_its_time),
        cmocka_unit_test(log_without_a_folder_is_an_error),
        cmocka_unit_test(full_disk_costs_the_log_and_not_the_run),
        cmocka_unit_test(time_goes_on),
        cmocka_unit_test(durations_are_readable),
        cmocka_unit_test(signals_ask_to_stop),
#if defined(__x86_64__)
        cmocka_unit_test(handlers_have_a_stack_of_their_own),
#endif
        cmocka_unit_test(a_watch_hears_others_before_each_answer),
        cmocka_unit_test(a_member_has_its_own_lines_and_its_name_before_warnings),
    };
    return BP_TEST_RUN(tests);
}
