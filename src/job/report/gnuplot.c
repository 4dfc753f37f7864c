/* gnuplot as a child of this process: its script and its picture are files in memory, so that no
 * process waits for a pipe. posix_spawn copies no page of this process, which may be an MPI rank.
 * Called by report.c, training.c and uncertainty/results/plots.c. */
#include "job/report/report_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_SECONDS 0.005
#define WORDS_BYTES  400 /* of its last output */

extern char **environ;

double bp_gnuplot_seconds = 20;

enum { SCRIPT, PICTURE, WORDS, FILES }; /* its standard input, output and error */

static bp_err system_failed(const char *what, int number)
{
    return BP_FAIL(BP_ERR_SYSTEM, "gnuplot.not_started", "gnuplot can't be run: %s: %s", what,
                   strerror(number));
}

void report_put_quoted(bp_buffer *out, const char *text)
{
    bp_buffer_printf(out, "'");
    for (const char *c = text; *c; c++) {
        if (*c == '\'') /* a doubled one within quotes is read wrongly at their begin */
            bp_buffer_printf(out, "'.\"'\".'");
        else
            bp_buffer_printf(out, "%c", (unsigned char)*c < ' ' ? ' ' : *c);
    }
    bp_buffer_printf(out, "'");
}

static bp_err open_files(int fds[FILES], const char *folder, const char *script)
{
    bp_buffer text = {0};
    bool written;

    for (int k = 0; k < FILES; k++) {
        fds[k] = memfd_create("gnuplot", MFD_CLOEXEC);
        if (fds[k] < 0)
            return system_failed("memfd_create", errno);
    }
    if (folder) {
        bp_buffer_printf(&text, "cd ");
        report_put_quoted(&text, folder);
        bp_buffer_printf(&text, "\n");
    }
    bp_buffer_printf(&text, "%s", script);
    written = bp_pwrite_all(fds[SCRIPT], text.data, text.bytes, 0) == 0; /* and read from there */
    bp_buffer_clear(&text);
    return written ? BP_OK : system_failed("its script", errno);
}

static int spawn(pid_t *child, const int fds[FILES])
{
    /* -d: without the user's settings */
    char *const arguments[] = {(char *)"gnuplot", (char *)"-d", (char *)"-", NULL};
    posix_spawn_file_actions_t actions;
    int failed;

    BP_CHECK(posix_spawn_file_actions_init(&actions) == 0);
    for (int k = 0; k < FILES; k++)
        BP_CHECK(posix_spawn_file_actions_adddup2(&actions, fds[k], k) == 0);
    failed = posix_spawnp(child, "gnuplot", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Its status from waitpid; -1 if it was killed because it took too long. */
static int await(pid_t child)
{
    double end = bp_clock_now() + bp_gnuplot_seconds;
    bool late = false;
    int status = 0;
    pid_t got;

    while ((got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (!late && bp_clock_now() > end) {
            late = true;
            (void)kill(child, SIGKILL);
        }
        bp_clock_sleep(POLL_SECONDS);
    }
    return late ? -1 : status;
}

/* Its last line that is neither empty nor only a position marker ("    ^"). */
static void last_words(char out[WORDS_BYTES], int fd)
{
    struct stat status = {0};
    char *end;
    ssize_t bytes;

    (void)fstat(fd, &status);
    bytes = pread(fd, out, WORDS_BYTES - 1,
                  status.st_size > WORDS_BYTES - 1 ? status.st_size - (WORDS_BYTES - 1) : 0);
    out[bytes > 0 ? bytes : 0] = '\0';
    for (end = out + strlen(out); end > out && strchr(" ^\n", end[-1]); end--)
        end[-1] = '\0';
    end = strrchr(out, '\n');
    end = end ? end + 1 : out;
    end += strspn(end, " ");
    memmove(out, end, strlen(end) + 1);
}

static bp_err check_end(int status, int words)
{
    char text[WORDS_BYTES];

    if (status == -1)
        return BP_FAIL(BP_ERR_SYSTEM, "gnuplot.too_slow",
                       "gnuplot did not end within %g s and was killed", bp_gnuplot_seconds);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return BP_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) /* where posix_spawn can't report it */
        return BP_FAIL(BP_ERR_INPUT, "gnuplot.missing", "there is no gnuplot: in PATH; install it");
    last_words(text, words);
    return BP_FAIL(BP_ERR_FORMAT, "gnuplot.failed", "gnuplot failed (%s %d): %s",
                   WIFEXITED(status) ? "exit status" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                   text[0] ? text : "it does not say why");
}

bp_err bp_gnuplot(char **picture, size_t *bytes, const char *folder, const char *script)
{
    int fds[FILES] = {-1, -1, -1}, failed;
    struct stat status;
    pid_t child;
    bp_err err = open_files(fds, folder, script);

    *picture = NULL;
    *bytes = 0;
    if (err == BP_OK) {
        failed = spawn(&child, fds);
        err = failed == 0        ? check_end(await(child), fds[WORDS])
              : failed == ENOENT ? BP_FAIL(BP_ERR_INPUT, "gnuplot.missing",
                                           "there is no gnuplot: in PATH; install it")
                                 : system_failed("posix_spawn", failed);
    }
    if (err == BP_OK) {
        BP_CHECK(fstat(fds[PICTURE], &status) == 0);
        *bytes = (size_t)status.st_size;
        *picture = bp_alloc("report.picture", status.st_size + 1, 1);
        if (bp_pread_all(fds[PICTURE], *picture, *bytes, 0) != 0) {
            err = system_failed("its picture", errno);
            bp_free(*picture);
            *picture = NULL;
        }
    }
    for (int k = 0; k < FILES; k++)
        if (fds[k] >= 0)
            (void)close(fds[k]);
    return err;
}
