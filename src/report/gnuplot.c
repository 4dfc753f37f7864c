/* gnuplot as a child of this process: its script and its picture are files in memory, so that
 * nobody waits for a pipe. posix_spawn copies no page of this process, which may be an MPI rank. */
#include "report/report_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_SECONDS 0.005
#define WORDS_BYTES  400 /* of the last that it says */

extern char **environ;

double bp_gnuplot_seconds = 20;

enum { SCRIPT, PICTURE, WORDS, FILES }; /* its standard input, output and error */

static bp_err system_failed(const char *what, int number)
{
    return BP_FAIL(BP_ERR_SYSTEM, "gnuplot can't be run: %s: %s", what, strerror(number));
}

static bp_err open_files(int fds[FILES], const char *folder, const char *script)
{
    bp_buffer cd = {0};
    bool written = true;

    for (int k = 0; k < FILES; k++) {
        fds[k] = memfd_create("gnuplot", MFD_CLOEXEC);
        if (fds[k] < 0)
            return system_failed("memfd_create", errno);
    }
    if (folder) {
        bp_buffer_printf(&cd, "cd ");
        report_put_quoted(&cd, folder);
        bp_buffer_printf(&cd, "\n");
        written = bp_write_all(fds[SCRIPT], cd.data, cd.bytes) == 0;
    }
    bp_buffer_clear(&cd);
    if (!written || bp_write_all(fds[SCRIPT], script, strlen(script)) != 0 ||
        lseek(fds[SCRIPT], 0, SEEK_SET) != 0)
        return system_failed("its script", errno);
    return BP_OK;
}

static int spawn(pid_t *child, const int fds[FILES])
{
    /* -d: without the user's settings */
    char *const arguments[] = {(char *)"gnuplot", (char *)"-d", (char *)"-", NULL};
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);

    if (failed != 0)
        return failed;
    for (int k = 0; k < FILES && failed == 0; k++)
        failed = posix_spawn_file_actions_adddup2(&actions, fds[k], k);
    if (failed == 0)
        failed = posix_spawnp(child, "gnuplot", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Its status as waitpid gives it; -1: it was killed since it took too long. */
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

/* Its last line that is not empty and no mere pointer to a place ("    ^"). */
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

static bp_err judge(int status, int words)
{
    char text[WORDS_BYTES];

    if (status == -1)
        return BP_FAIL(BP_ERR_SYSTEM, "gnuplot did not end within %g s and was killed",
                       bp_gnuplot_seconds);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return BP_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) /* where posix_spawn can't tell */
        return BP_FAIL(BP_ERR_INPUT, "there is no gnuplot: in PATH; install it");
    last_words(text, words);
    return BP_FAIL(BP_ERR_FORMAT, "gnuplot failed (%s %d): %s",
                   WIFEXITED(status) ? "exit status" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                   text[0] ? text : "it does not say why");
}

static bp_err read_picture(char **picture, size_t *bytes, int fd)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return system_failed("its picture", errno);
    *picture = bp_alloc("report.picture", status.st_size + 1, 1);
    *bytes = (size_t)status.st_size;
    if (bp_pread_all(fd, *picture, *bytes, 0) != 0) {
        bp_free(*picture);
        *picture = NULL;
        return system_failed("its picture", errno);
    }
    return BP_OK;
}

bp_err bp_gnuplot(char **picture, size_t *bytes, const char *folder, const char *script)
{
    int fds[FILES] = {-1, -1, -1}, failed;
    pid_t child;
    bp_err err = open_files(fds, folder, script);

    *picture = NULL;
    *bytes = 0;
    if (err == BP_OK) {
        failed = spawn(&child, fds);
        err = failed == 0        ? judge(await(child), fds[WORDS])
              : failed == ENOENT ? BP_FAIL(BP_ERR_INPUT, "there is no gnuplot: in PATH; install it")
                                 : system_failed("posix_spawn", failed);
    }
    if (err == BP_OK)
        err = read_picture(picture, bytes, fds[PICTURE]);
    for (int k = 0; k < FILES; k++)
        if (fds[k] >= 0)
            (void)close(fds[k]);
    return err;
}
