/* A stream over standard output that keeps the reason of its first failure: stdio keeps only that
 * there was one (ferror), and errno is another call's by the time that somebody asks. */
#include "base/process/standard_output.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static int failure; /* errno of the first write that failed; 0: none */

static ssize_t write_all(void *context, const char *data, size_t bytes)
{
    size_t done = 0;

    (void)context;
    while (done < bytes) {
        ssize_t wrote = write(STDOUT_FILENO, data + done, bytes - done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            failure = failure ? failure : errno;
            return 0; /* the stream's sign of an error */
        }
        done += (size_t)wrote;
    }
    return (ssize_t)bytes;
}

void bp_stdout_init(void)
{
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_all});

    if (!stream)
        return; /* no memory: the stream of stdio stays */
    (void)setvbuf(stream, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = stream;
}

bp_err bp_stdout_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return BP_OK;
    errno = failure ? failure : errno ? errno : EIO;
    return errno == EPIPE ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't write", "standard output");
}
