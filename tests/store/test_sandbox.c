/* What a sandboxed child can't do, and what its parent says of one that crashes, hangs or lies. */
#include "bp_test.h"

#include "base/clock.h"
#include "base/sandbox.h"
#include "store/corpus_file.h"
#include "store/corpus_priv.h"
#include "store/h5.h"
#include "store/h5_inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
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

/* Run a work on the file; `number` is what it answered. */
static bp_err run(work_function work, void *context, double seconds, int64_t *number,
                  unsigned *shields)
{
    int fd;

    bp_test_expect(bp_file_open(the_file(), &fd, NULL), BP_OK);
    bp_sandbox sandbox = {.fd = fd,
                          .path = "FILE",
                          .memory_bytes = (int64_t)256 << 20,
                          .seconds = seconds,
                          .work = work,
                          .context = context,
                          .reply_bytes = sizeof *number};
    *number = -1;
    bp_err err = bp_sandbox_run(&sandbox, number, shields);
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

static void a_child_that_ends_badly_is_a_refusal(void **state)
{
    static const struct {
        work_function work;
        double seconds;
        const char *message;
    } rows[] = {{crash, 20, "crashes a process"},
                {spin, 0.06, "took longer than 1 s"}, /* 0.6; its processor time is 1 s */
                {spin, 1, "ran out of time or memory"},
                {leave, 20, "ends a process without a word"},
                {close_and_spin, 20, "ran out of time or memory"},
                {lie, 20, "without a word"},
                {fail_an_assertion, 20, "without a word"}};

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        int64_t number;
        bp_test_expect(run(rows[k].work, NULL, rows[k].seconds, &number, NULL), BP_ERR_FORMAT);
        if (rows[k].work != crash) /* a sanitizer makes an end with a status of it */
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

/* ---- on corpora ---- */

static const char *plain_corpus(const char *name, int extra_groups)
{
    const char *path = bp_test_path(name);
    char command[3 * PATH_MAX];

    if (system("/usr/bin/python3 -c 'import h5py' 2> /dev/null") != 0)
        bp_test_skip("there is no /usr/bin/python3 with h5py");
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c 'import h5py, numpy\n"
                   "with h5py.File(\"%s\", \"w\") as f:\n"
                   "    f[\"tokens\"] = (numpy.arange(200000) %% 100).astype(\"u2\")\n"
                   "    f[\"doc_start\"] = numpy.array([0, 200000])\n"
                   "    f.attrs[\"vocab_size\"] = 100\n"
                   "    for k in range(%d): f.create_group(\"g%%d\" %% k)'",
                   path, extra_groups);
    assert_int_equal(system(command), 0);
    return path;
}

static void too_many_links_are_refused(void **state)
{
    bp_corpus_file *file;
    const char *path = plain_corpus("links.h5", 98);

    (void)state;
    bp_h5_link_limit = 99;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("more than a million links");
    bp_h5_link_limit = 100;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_h5_link_limit = 1000000;
}

static void a_file_is_inspected_once_and_again_when_it_changed(void **state)
{
    const char *path = plain_corpus("once.h5", 20);
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_h5_link_limit = 1; /* now it would be refused */
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_clock_sleep(0.02); /* a file system's clock has ticks */
    assert_int_equal(truncate(path, bp_file_size(path) + 1), 0);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("more than a million links");
    bp_h5_link_limit = 1000000;
}

/* HDF5 gives zeros for what lies beyond a file's end. */
static void a_file_that_shrinks_while_it_is_read_is_noticed(void **state)
{
    const char *path = plain_corpus("shrinks.h5", 0);
    int32_t tokens[100];
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_test_expect(bp_corpus_file_read(file, 0, 100, tokens), BP_OK);
    assert_int_equal(truncate(path, 4096), 0);
    bp_test_expect(bp_corpus_file_read(file, 150000, 100, tokens), BP_ERR_FORMAT);
    bp_test_message_has("changed while it was read");
    bp_corpus_file_close(&file);
}

static void a_file_that_is_replaced_while_it_is_read_stays_what_it_was(void **state)
{
    const char *path = plain_corpus("replaced.h5", 0);
    int32_t tokens[100];
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    assert_int_equal(rename(bp_test_write("other", "another file", 12), path), 0);
    bp_test_expect(bp_corpus_file_read(file, 150000, 100, tokens), BP_OK);
    assert_int_equal(tokens[7], 150007 % 100);
    bp_corpus_file_close(&file);
}

/* ---- HDF5's structures with bytes that they never have: what the published faults of its parsers
 * are about (sizes and counts of all ones, nodes that point at themselves, lengths beyond the file)
 * ---- */

typedef struct lies {
    char *data;
    size_t bytes;
    int refused, opened, crashed, endless;
} lies;

static void open_with(lies *file, size_t at, const void *patch, size_t bytes)
{
    char kept[8];
    bp_corpus_file *corpus;
    bp_err err;

    if (at + bytes > file->bytes)
        return;
    memcpy(kept, file->data + at, bytes);
    memcpy(file->data + at, patch, bytes);
    err = bp_corpus_file_open(&corpus, bp_test_write("lies.h5", file->data, file->bytes));
    memcpy(file->data + at, kept, bytes);
    if (err != BP_OK && err != BP_ERR_FORMAT)
        fail_msg("bytes %zu: %d (%s)", at, (int)err, bp_err_message());
    if (err != BP_OK)
        bp_test_message_has("lies.h5");
    file->opened += err == BP_OK;
    file->refused += err != BP_OK;
    file->endless += err != BP_OK && strstr(bp_err_message(), "ran out of") != NULL;
    file->crashed += err != BP_OK && strstr(bp_err_message(), "crashes a process") != NULL;
    bp_corpus_file_close(&corpus);
}

static void patch_structure(lies *file, size_t at)
{
    const uint64_t ones = UINT64_MAX, self = at, beyond = UINT64_C(1) << 33,
                   absurd = UINT64_C(1) << 62, none = 0;
    const struct {
        size_t first;
        const void *patch;
        size_t bytes;
    } rows[] = {{4, &ones, 4},   {5, &none, 1},  {6, &ones, 2},    {8, &ones, 8},
                {8, &absurd, 8}, {16, &self, 8}, {16, &beyond, 8}, {24, &self, 8},
                {24, &ones, 8},  {32, &self, 8}, {32, &absurd, 8}};

    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        open_with(file, at + rows[k].first, rows[k].patch, rows[k].bytes);
}

static void patch_file(const char *name, lies *file)
{
    static const char *const marks[] = {"TREE", "SNOD", "HEAP", "GCOL", "OHDR",
                                        "FRHP", "FADB", "EAHD", "EAIB", "BTHD"};
    static const unsigned char values[] = {0, 3, 255};

    bp_test_expect(bp_file_read(bp_test_path(name), INT32_MAX, &file->data, &file->bytes), BP_OK);
    for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
        int found = 0;
        for (size_t at = 0; at + 4 <= file->bytes && found < 2; at++)
            if (memcmp(file->data + at, marks[m], 4) == 0 && ++found > 0)
                patch_structure(file, at);
    }
    for (size_t at = 8; at < 32;
         at++) /* the superblock: versions, sizes of addresses and lengths */
        for (size_t k = 0; k < sizeof values; k++)
            open_with(file, at, &values[k], 1);
    bp_free(file->data);
}

static void structures_that_lie_are_refused_or_harmless(void **state)
{
    char command[3 * PATH_MAX];
    lies file = {0};

    (void)state;
    (void)plain_corpus("plain.h5", 0); /* or skipped */
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c 'import h5py, numpy as np\n"
                   "for name, more in ((\"old\", {}), (\"new\", {\"libver\": \"latest\"})):\n"
                   "  with h5py.File(\"%s/\" + name + \".h5\", \"w\", **more) as f:\n"
                   "    f.create_dataset(\"tokens\", data=np.zeros(5000, \"u2\"), chunks=(100,),\n"
                   "                     maxshape=(None,), compression=\"gzip\")\n"
                   "    f.create_dataset(\"doc_start\", data=np.array([0, 5000]), chunks=(2,))\n"
                   "    f.attrs[\"vocab_size\"] = 100\n"
                   "    f.attrs[\"tokenizer_hash\"] = \"ab\" * 32\n"
                   "    for k in range(12):\n"
                   "      f[\"labels/l%%d\" %% k] = np.zeros(1, \"u1\")\n"
                   "      f[\"label_names/l%%d\" %% k] = np.array([b\"x\"])'",
                   bp_test_folder());
    assert_int_equal(system(command), 0);
    bp_corpus_sandbox_seconds = 1;
    patch_file("old.h5", &file);
    patch_file("new.h5", &file);
    printf("structures that lie: %d refused (%d crashed the sandbox, %d had no end), %d harmless\n",
           file.refused, file.crashed, file.endless, file.opened);
    assert_true(file.refused > 100);
    bp_corpus_sandbox_seconds = 5;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_done_and_answered),
        cmocka_unit_test(the_file_itself_may_be_opened_again),
        cmocka_unit_test(failures_of_the_work_come_through),
        cmocka_unit_test(a_child_that_ends_badly_is_a_refusal),
        cmocka_unit_test(signals_for_the_job_are_no_fault_of_the_file),
        cmocka_unit_test(a_child_can_do_nothing_else),
        cmocka_unit_test(memory_of_other_processes_is_out_of_reach),
        cmocka_unit_test(without_shields_the_limits_hold_and_it_is_said),
        cmocka_unit_test(too_many_links_are_refused),
        cmocka_unit_test(a_file_is_inspected_once_and_again_when_it_changed),
        cmocka_unit_test(a_file_that_shrinks_while_it_is_read_is_noticed),
        cmocka_unit_test(a_file_that_is_replaced_while_it_is_read_stays_what_it_was),
        cmocka_unit_test(structures_that_lie_are_refused_or_harmless),
    };
    return BP_TEST_RUN(tests);
}
