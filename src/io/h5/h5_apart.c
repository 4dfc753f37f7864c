/* Work on foreign files in a child process: the child's time is limited, and a pipe carries its
 * report. */
#include "io/h5/h5_apart.h"

#include "base/process/clock.h"
#include "base/process/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_SPEED 2e5 /* bytes of the file per second: each may decompress to a thousand */
#define WALL       10 /* wall-clock seconds per second of processor time: a busy machine, a slow disk */
#define REMEDY     "it is damaged or made to do harm: write it anew"

/* One write, which is atomic in a pipe (PIPE_BUF is 4096). */
typedef struct child_report {
    int32_t err;
    char message[BP_ERR_LINE_BYTES + 8];
    _Alignas(max_align_t) char result[BP_H5_APART_RESULT]; /* `work` writes any type there */
} child_report;
_Static_assert(sizeof(child_report) <= 4096, "a report is written at once");

double bp_h5_apart_seconds(double least, long long file_bytes)
{
    return least + (double)file_bytes / READ_SPEED;
}

static void give_up(int status)
{
    _exit(status);
}

static void be_child(const bp_h5_apart *job, int pipe) __attribute__((noreturn));
static void be_child(const bp_h5_apart *job, int pipe)
{
    static child_report report;
    rlim_t most = (rlim_t)ceil(job->cpu_seconds);
    const struct rlimit limit = {most, most};
    bp_err err;

    for (int number = 1; number < NSIG; number++) /* handlers are the parent's */
        (void)signal(number, SIG_DFL);
    bp_assert_set_handler(give_up,
                          0); /* a bug of ours triggered by a file counts as a refusal too */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setrlimit(RLIMIT_CPU, &limit) != 0)
        err =
            BP_FAIL(BP_ERR_SYSTEM, "process.no_limit",
                    "can't limit a process: %s: at %s; see ulimit -a", strerror(errno), job->path);
    else
        err = job->work(job->context, report.result);
    report.err = (int32_t)err;
    if (err != BP_OK)
        (void)snprintf(report.message, sizeof report.message, "%s", bp_err_message());
    _exit(write(pipe, &report, sizeof report) == (ssize_t)sizeof report ? 0 : 1);
}

/* How a child without a report ended. */
static bp_err check_status(const bp_h5_apart *job, int status)
{
    const char *path = job->path;

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return BP_FAIL(BP_ERR_FORMAT, "h5.too_slow",
                       "reading it took more than %.0f s of processor time: at %s; " REMEDY,
                       ceil(job->cpu_seconds), path);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return BP_FAIL(BP_ERR_SYSTEM, "process.killed",
                       "the process that reads it was killed, as happens when memory ends: at %s; "
                       "give it more memory",
                       path);
    if (WIFSIGNALED(status))
        return BP_FAIL(BP_ERR_FORMAT, "h5.crashes_reader",
                       "reading it crashes a process (signal %d, %s): at %s; " REMEDY,
                       WTERMSIG(status), strsignal(WTERMSIG(status)), path);
    return BP_FAIL(BP_ERR_FORMAT, "h5.crashes_reader",
                   "reading it ends a process without a message: at %s; " REMEDY, path);
}

static bp_err wait_for(pid_t child, const bp_h5_apart *job, int *status)
{
    double wall = WALL * job->cpu_seconds, end = bp_clock_now() + wall;
    bp_err err = BP_OK;

    while (waitpid(child, status, WNOHANG) == 0) {
        if (bp_signals_stop_asked())
            err = bp_fail_stopped("while %s was %s; nothing is kept", job->path, job->doing);
        else if (bp_clock_now() > end)
            err = BP_FAIL(BP_ERR_FORMAT, "h5.too_slow",
                          "reading it took longer than %.0f s: at %s; " REMEDY, wall, job->path);
        if (err != BP_OK) {
            (void)kill(child, SIGKILL);
            (void)waitpid(child, status, 0);
            return err;
        }
        bp_clock_sleep(0.01);
    }
    return BP_OK;
}

bp_err bp_h5_run_apart(const bp_h5_apart *job)
{
    child_report report;
    int pipe[2], status = 0;
    pid_t child;
    bp_err err;

    BP_ASSERT(job->result_bytes <= BP_H5_APART_RESULT);
    if (pipe2(pipe, O_CLOEXEC) != 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't make a pipe to read", job->path);
    child = fork();
    if (child == 0)
        be_child(job, pipe[1]);
    (void)close(pipe[1]);
    if (child < 0)
        err = BP_FAIL(BP_ERR_SYSTEM, "process.not_started",
                      "can't start a process to read it: %s: at %s; allow more processes "
                      "(ulimit -u) or give it more memory",
                      strerror(errno), job->path);
    else
        err = wait_for(child, job, &status);
    if (err == BP_OK && read(pipe[0], &report, sizeof report) != (ssize_t)sizeof report) {
        err = check_status(job, status);
    } else if (err == BP_OK && report.err != BP_OK) {
        report.message[sizeof report.message - 1] = '\0';
        bp_err_set_message(report.message);
        err = (bp_err)report.err;
    } else if (err == BP_OK) {
        memcpy(job->result, report.result, job->result_bytes);
    }
    (void)close(pipe[0]);
    return err;
}
