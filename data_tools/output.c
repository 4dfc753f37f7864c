/* Outputs that must not be inputs. */
#include "output.h"

#include <stddef.h>
#include <sys/stat.h>

bp_err bp_output_is_not(const char *out, const char *input)
{
    struct stat written, read;

    if (input == NULL || stat(out, &written) != 0 || stat(input, &read) != 0 ||
        !S_ISREG(written.st_mode) || written.st_dev != read.st_dev || written.st_ino != read.st_ino)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE,
                   "the output is the same file as the input %s: at --out %s; name another file",
                   input, out);
}
