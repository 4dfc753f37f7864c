/* What a sandboxed child can't do, and what its parent says of one that crashes, hangs or lies. */
#include "bp_test.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/sandbox.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef bp_err (*work_function)(void *context, int fd, void *reply);

static const char *the_file(void)
{
    static char path[PATH_MAX];

    if (path[0] == '\0')
        (void)snprintf(path, sizeof path, "%s", bp_test_write("file", "0123456789", 10));
    return path;
}

/* `number` is what the work answered. */
static bp_err run_on(int fd, work_function work, void *context, double seconds, int64_t *number,
                     unsigned *shields)
{
    bp_sandbox sandbox = {.fd = fd,
                          .path = "FILE",
                          .memory_bytes = (int64_t)256 << 20,
                          .seconds = seconds,
                          .work = work,
                          .context = context,
                          .reply_bytes = sizeof *number};
    *number = -1;
    return bp_sandbox_run(&sandbox, number, shields);
}

static bp_err run(work_function work, void *context, double seconds, int64_t *number,
                  unsigned *shields)
{
    int fd;
    bp_err err;

    bp_test_expect(bp_file_open(the_file(), &fd, NULL), BP_OK);
    err = run_on(fd, work, context, seconds, number, shields);
    (void)close(fd);
    return err;
}

/* ---- what works ---- */

static bp_err read_it(void *context, int fd, void *reply)
{
    char text[11] = "";
    int64_t value;

    (void)context;
    if (pread(fd, text, 10, 0) != 10)
        return BP_FAIL(BP_ERR_IO, "can't read");
    value = strtoll(text, NULL, 10);
    memcpy(reply, &value, sizeof value);
    return BP_OK;
}

static void work_is_done_and_answered(void **state)
{
    int64_t number;
    unsigned shields;

    (void)state;
    bp_test_expect(run(read_it, NULL, 10, &number, &shields), BP_OK);
    assert_int_equal(number, 123456789);
    printf("shields: %u\n", shields);
}

static bp_err open_again(void *context, int fd, void *reply)
{
    char name[32];
    int again;

    (void)context;
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    again = open(name, O_RDONLY);
    return again >= 0 ? read_it(NULL, again, reply) : BP_FAIL(BP_ERR_IO, "can't open again");
}

static void the_file_itself_may_be_opened_again(void **state)
{
    int64_t number;

    (void)state;
    bp_test_expect(run(open_again, NULL, 10, &number, NULL), BP_OK);
    assert_int_equal(number, 123456789);
}

static bp_err fail_it(void *context, int fd, void *reply)
{
    (void)fd;
    (void)reply;
    return BP_FAIL(*(bp_err *)context, "what it says\033: at FILE");
}

static void failures_of_the_work_come_through(void **state)
{
    bp_err codes[] = {BP_ERR_FORMAT, BP_ERR_IO, BP_ERR_SYSTEM, (bp_err)99, BP_ERR_STOPPED};
    bp_err expected[] = {BP_ERR_FORMAT, BP_ERR_IO, BP_ERR_FORMAT, BP_ERR_FORMAT, BP_ERR_FORMAT};

    (void)state;
    for (size_t k = 0; k < sizeof codes / sizeof codes[0]; k++) {
        int64_t number;
        bp_test_expect(run(fail_it, &codes[k], 10, &number, NULL), expected[k]);
        bp_test_message_has("what it says");
        assert_null(strstr(bp_err_message(), "harm"));
        assert_int_equal(number, -1);
    }
}

/* ---- children that end badly ---- */

static bp_err crash(void *context, int fd, void *reply)
{
    volatile int *nowhere = context;

    (void)fd;
    (void)reply;
    *nowhere = 1;
    return BP_OK;
}

static bp_err spin(void *context, int fd, void *reply)
{
    (void)context;
    (void)fd;
    (void)reply;
    for (volatile int64_t k = 0;; k = k + 1)
        ;
    return BP_OK;
}

static bp_err leave(void *context, int fd, void *reply)
{
    (void)fd;
    (void)reply;
    _exit(context != NULL ? 1 : 0);
}

static bp_err close_and_spin(void *context, int fd, void *reply)
{
    for (int k = 0; k < 16; k++)
        (void)close(k);
    return spin(context, fd, reply);
}

static bp_err lie(void *context, int fd, void *reply)
{
    char nonsense[64] = "no verdict";

    (void)context;
    (void)fd;
    (void)reply;
    for (int k = 0; k < 16; k++)
        if (write(k, nonsense, sizeof nonsense) > 0)
            break;
    _exit(0);
}

static bp_err fail_an_assertion(void *context, int fd, void *reply)
{
    (void)fd;
    (void)reply;
    BP_ASSERT(context != NULL);
    return BP_OK;
}

/* Returns the seconds of processor time of all children that have ended. */
static double processor_time_of_children(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void a_child_that_ends_badly_is_a_refusal(void **state)
{
    static const struct {
        work_function work;
        double seconds;
        const char *message;
    } rows[] = {
        {crash, 20, "crashes a process"},
        {spin, 0.06, "took longer than 1 s"}, /* 0.6; its processor time is 1 s */
        {spin, 1, NULL}, /* either: of a busy machine it may get less than a tenth of a core */
        {leave, 20, "ends a process without a word"},
        {close_and_spin, 20, "without a word"},
        {lie, 20, "without a word"},
        {fail_an_assertion, 20, "without a word"}};

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        int64_t number;
        double before = processor_time_of_children();
        bp_test_expect(run(rows[k].work, NULL, rows[k].seconds, &number, NULL), BP_ERR_FORMAT);
        if (rows[k].message == NULL)
            bp_test_message_has(processor_time_of_children() <
                                        before + 0.9 /* the limit is kept by ticks */
                                    ? "took longer than 10 s"
                                    : "more than 1 s of processor time");
        else if (rows[k].work != crash) /* a sanitizer makes an end with a status of it */
            bp_test_message_has(rows[k].message);
        bp_test_message_has("at FILE; ");
        assert_int_equal(number, -1);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left behind */
    assert_int_equal(errno, ECHILD);
}

/* ---- signals that a launcher, Slurm or a terminal sends to all processes of a job ---- */

static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

static bp_err take_a_while(void *context, int fd, void *reply)
{
    double end = bp_clock_now() + 1;

    while (bp_clock_now() < end)
        ;
    return read_it(context, fd, reply);
}

static void *signal_all(void *context)
{
    bp_clock_sleep(0.5);
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        (void)kill(0, numbers[k]);
    return context;
}

static void note(int number)
{
    (void)number;
}

static void signals_for_the_job_are_no_fault_of_the_file(void **state)
{
    pthread_t sender;
    int64_t number;

    (void)state;
    if (getpgrp() != getpid())
        assert_int_equal(setpgid(0, 0), 0); /* nobody else hears them */
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        (void)signal(numbers[k], note);
    assert_int_equal(pthread_create(&sender, NULL, signal_all, NULL), 0);
    bp_test_expect(run(take_a_while, NULL, 20, &number, NULL), BP_OK);
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_int_equal(number, 123456789);
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        (void)signal(numbers[k], SIG_DFL);
}

/* ---- what is no fault of the file ---- */

static bp_err kill_itself(void *context, int fd, void *reply)
{
    (void)context;
    (void)fd;
    (void)reply;
    (void)raise(SIGKILL); /* as the kernel does where memory ends */
    return BP_OK;
}

static void a_child_that_somebody_else_kills_is_no_harm(void **state)
{
    int64_t number;

    (void)state;
    bp_sandbox_shields = 0; /* they would keep it from that */
    bp_test_expect(run(kill_itself, NULL, 20, &number, NULL), BP_ERR_SYSTEM);
    bp_sandbox_shields = BP_SHIELD_ALL;
    bp_test_message_has("was killed");
    bp_test_message_has("give the job more memory");
}

/* In a process of its own, whose user may have no other. */
static int start_without_room(void)
{
    const struct rlimit none = {0, 0};
    int64_t number;
    int fd = open(the_file(), O_RDONLY);

    if (fd < 0 || setrlimit(RLIMIT_NPROC, &none) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return 1;
    if (run_on(fd, read_it, NULL, 20, &number, NULL) != BP_ERR_SYSTEM)
        return 2;
    return strstr(bp_err_message(), "allow more processes") != NULL ? 0 : 3;
}

static void too_many_processes_are_told(void **state)
{
    int status = -1;
    pid_t child;

    (void)state;
    (void)the_file();
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(start_without_room());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bp_err wait_for_a_byte(void *context, int fd, void *reply)
{
    char byte;
    int64_t value = 7;

    (void)context;
    if (read(fd, &byte, 1) != 1)
        return BP_FAIL(BP_ERR_IO, "can't read");
    memcpy(reply, &value, sizeof value);
    return BP_OK;
}

/* A job that is stopped whole for longer than the inspection may take, and goes on. */
static void time_in_which_the_job_is_stopped_does_not_count(void **state)
{
    int ends[2], status = -1;
    pid_t job;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    job = fork();
    assert_true(job >= 0);
    if (job == 0) { /* it has 2.5 s, and is stopped for 3 */
        int64_t number;
        (void)setpgid(0, 0);
        _exit(run_on(ends[0], wait_for_a_byte, NULL, 0.25, &number, NULL) == BP_OK && number == 7
                  ? 0
                  : 1);
    }
    (void)setpgid(job, job);
    bp_clock_sleep(0.3);
    assert_int_equal(kill(-job, SIGSTOP), 0);
    bp_clock_sleep(3);
    assert_int_equal(kill(-job, SIGCONT), 0);
    bp_clock_sleep(0.3);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(waitpid(job, &status, 0), job);
    assert_int_equal(status, 0);
}

/* The last test: what was asked for once stays. */
static void ask_at_the_third_look(void *context)
{
    if (++*(int *)context == 3)
        bp_signals_ask_stop(BP_STOP_USR1);
}

static void a_request_to_stop_is_heard_meanwhile(void **state)
{
    int looks = 0, ends[2];
    bp_beat before, after;
    int64_t number;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    bp_beat_read(&before);
    bp_signals_watch(ask_at_the_third_look, &looks);
    bp_test_expect(run_on(ends[0], wait_for_a_byte, NULL, 100, &number, NULL), BP_ERR_STOPPED);
    bp_signals_unwatch(ask_at_the_third_look, &looks);
    bp_test_message_has("stopped: while FILE was inspected; the same command goes on");
    bp_beat_read(&after);
    assert_int_equal(looks, 3);
    assert_true(after.progress >= before.progress + 3); /* for the watchdog, who sees no hang */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);   /* the child is gone */
}

/* ---- what it can't do: each tries, and says whether it could ---- */

static bool could_allocate(void *context)
{
    void *memory = mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)context;
    return memory != MAP_FAILED;
}

static bool could_open_another(void *context)
{
    (void)context;
    return open("/etc/passwd", O_RDONLY) >= 0;
}

static bool could_write_the_file(void *context)
{
    return open(context, O_WRONLY) >= 0;
}

static bool could_make_a_file(void *context)
{
    char name[PATH_MAX];

    (void)snprintf(name, sizeof name, "%s.new", (const char *)context);
    return open(name, O_RDWR | O_CREAT, 0600) >= 0;
}

static bool could_remove(void *context)
{
    return unlink(context) == 0;
}

static bool could_make_a_socket(void *context)
{
    (void)context;
    return socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_DGRAM, 0) >= 0;
}

static bool could_fork(void *context)
{
    pid_t child = fork();

    (void)context;
    if (child == 0)
        _exit(0);
    return child > 0;
}

static bool could_execute(void *context)
{
    char *arguments[] = {"/bin/true", NULL};

    (void)context;
    (void)execv("/bin/true", arguments);
    return false; /* one that could is gone without a word, and so fails the test */
}

static bool could_trace_or_kill(void *context)
{
    (void)context;
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0 || kill(getppid(), 0) == 0;
}

static bool could_make_code(void *context)
{
    (void)context;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0) != MAP_FAILED;
}

/* The job's descriptors: one was left open on purpose. */
static bool could_reach_a_descriptor(void *context)
{
    return fcntl(*(int *)context, F_GETFD) >= 0 || write(*(int *)context, "x", 1) == 1;
}

typedef struct attempt {
    bool (*could)(void *context);
    void *context;
} attempt;

static bp_err try_it(void *context, int fd, void *reply)
{
    const attempt *what = context;
    int64_t could = what->could(what->context) ? 1 : 0;

    (void)fd;
    memcpy(reply, &could, sizeof could);
    return BP_OK;
}

static void a_child_can_do_nothing_else(void **state)
{
    int other = fcntl(STDERR_FILENO, F_DUPFD, 100); /* no number that the child uses */
    char path[PATH_MAX];
    unsigned shields;
    const struct {
        attempt attempt;
        unsigned by; /* the shields of which one must hold; 0: the limits do it */
        const char *name;
    } rows[] = {{{could_allocate, NULL}, 0, "allocate"},
                {{could_reach_a_descriptor, &other}, 0, "use a descriptor"},
                {{could_open_another, NULL}, BP_SHIELD_LANDLOCK, "open another file"},
                {{could_write_the_file, path}, BP_SHIELD_ALL, "open for writing"},
                {{could_make_a_file, path}, BP_SHIELD_ALL, "make a file"},
                {{could_remove, path}, BP_SHIELD_ALL, "remove a file"},
                {{could_make_a_socket, NULL}, BP_SHIELD_SECCOMP, "make a socket"},
                {{could_fork, NULL}, BP_SHIELD_SECCOMP, "fork"},
                {{could_execute, NULL}, BP_SHIELD_ALL, "execute"},
                {{could_trace_or_kill, NULL}, BP_SHIELD_SECCOMP, "trace its parent"},
                {{could_make_code, NULL}, BP_SHIELD_SECCOMP, "make code"}};

    (void)state;
    (void)snprintf(path, sizeof path, "%s", the_file());
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        attempt what = rows[k].attempt;
        int64_t could;
        bp_test_expect(run(try_it, &what, 20, &could, &shields), BP_OK);
        if (rows[k].by != 0 && (shields & rows[k].by) == 0)
            printf("not held by this kernel: %s\n", rows[k].name);
        else if (could != 0)
            fail_msg("it could %s", rows[k].name);
    }
    assert_true(bp_path_exists(path));
    (void)close(other);
}

static bp_err scribble(void *context, int fd, void *reply)
{
    (void)fd;
    (void)reply;
    *(volatile int *)context = 2; /* memory that ranks of a node share is not there any more */
    return BP_OK;
}

static void memory_of_other_processes_is_out_of_reach(void **state)
{
    int *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int64_t number;

    (void)state;
    assert_true(shared != MAP_FAILED);
    *shared = 1;
    bp_test_expect(run(scribble, shared, 20, &number, NULL), BP_ERR_FORMAT);
    assert_int_equal(*shared, 1);
    (void)munmap(shared, sizeof *shared);
}

static bool could_make_writable(void *context)
{
    if (mprotect(context, 4096, PROT_READ | PROT_WRITE) != 0)
        return false;
    *(volatile char *)context = 'X';
    return true;
}

/* A map that is only read from, of a file that is open for writing, too. Its name is long, and has
 * what looks like another map where 511 bytes of its line in /proc/self/maps end. */
static void shared_maps_that_could_be_made_writable_are_gone(void **state)
{
    char name[PATH_MAX], data[4096] = "as it was";
    attempt what = {could_make_writable, NULL};
    size_t length = (size_t)snprintf(name, sizeof name, "%s", bp_test_folder());
    int64_t could;
    int fd;

    (void)state;
    for (size_t at = length; length < 511 - 73; length++) {
        bool is_end = (length - at) % 100 == 0; /* of a folder's name */
        name[length] = '\0';
        if (is_end)
            (void)mkdir(name, 0700); /* the first is there */
        name[length] = is_end ? '/' : 'a';
    }
    (void)snprintf(name + length, sizeof name - length, "1-2 rw-s");
    bp_test_expect(bp_file_write(name, data, sizeof data), BP_OK);
    fd = open(name, O_RDWR);
    assert_true(fd >= 0);
    what.context = mmap(NULL, sizeof data, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(what.context != MAP_FAILED);
    (void)close(fd);
    bp_test_expect(run(try_it, &what, 20, &could, NULL), BP_OK);
    assert_int_equal(could, 0);
    assert_string_equal(what.context, "as it was");
    (void)munmap(what.context, sizeof data);
}

/* Kernels without Landlock or seccomp: limits and the walk still hold, and it is said. */
static void without_shields_the_limits_hold_and_it_is_said(void **state)
{
    attempt what = {could_allocate, NULL};
    int64_t could;
    unsigned shields;

    (void)state;
    bp_sandbox_shields = 0;
    bp_test_expect(run(try_it, &what, 20, &could, &shields), BP_OK);
    assert_int_equal(could, 0);
    assert_int_equal(shields, 0);
    assert_string_equal(bp_sandbox_missing(), "Landlock and seccomp");
    bp_test_expect(run(spin, NULL, 0.1, &could, &shields), BP_ERR_FORMAT);
    bp_sandbox_shields = BP_SHIELD_ALL;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_done_and_answered),
        cmocka_unit_test(the_file_itself_may_be_opened_again),
        cmocka_unit_test(failures_of_the_work_come_through),
        cmocka_unit_test(a_child_that_ends_badly_is_a_refusal),
        cmocka_unit_test(signals_for_the_job_are_no_fault_of_the_file),
        cmocka_unit_test(a_child_that_somebody_else_kills_is_no_harm),
        cmocka_unit_test(too_many_processes_are_told),
        cmocka_unit_test(time_in_which_the_job_is_stopped_does_not_count),
        cmocka_unit_test(a_child_can_do_nothing_else),
        cmocka_unit_test(memory_of_other_processes_is_out_of_reach),
        cmocka_unit_test(shared_maps_that_could_be_made_writable_are_gone),
        cmocka_unit_test(without_shields_the_limits_hold_and_it_is_said),
        cmocka_unit_test(a_request_to_stop_is_heard_meanwhile),
    };
    return BP_TEST_RUN(tests);
}
