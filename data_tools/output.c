/* Outputs that must not be inputs, and standard input. */
#include "output.h"

#include "mesh/mesh.h"
#include "text/documents/text_source.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bp_err bp_output_is_not(const char *out, const char *input)
{
    struct stat written, read;

    if (!out || !input || stat(out, &written) != 0 ||
        (strcmp(input, BP_TEXT_STDIN) == 0 ? fstat(STDIN_FILENO, &read) : stat(input, &read)) !=
            0 ||
        !S_ISREG(written.st_mode) || written.st_dev != read.st_dev || written.st_ino != read.st_ino)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "command.same_output",
                   "the output is the same file as the input %s: at --out %s; name another file",
                   input, out);
}

bp_err bp_stdin_check(char *const *files, int count)
{
    int found = 0, ranks = bp_comm_size(MPI_COMM_WORLD);

    for (int k = 0; k < count; k++)
        found += strcmp(files[k], BP_TEXT_STDIN) == 0;
    if (found > 1)
        return BP_FAIL(BP_ERR_USAGE, "command.stdin_twice",
                       "standard input is named %d times: at the command line; give '-' once",
                       found);
    if (found == 1 && ranks > 1)
        return BP_FAIL(BP_ERR_USAGE, "command.stdin_of_ranks",
                       "standard input reaches one rank, and there are %d: at '-'; start it "
                       "without mpirun, or write the text to a file that all ranks can read",
                       ranks);
    return BP_OK;
}
