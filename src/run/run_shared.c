/* Does every rank see the run folder that rank 0 has made? A folder on a node-local disk may also
 * exist on each node, perhaps with files of an earlier run; so ranks look for a file that only this
 * start has made. Called by run/probe/probe_folder.c and run_folder.c. */
#include "run/run_shared.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "mesh/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SEEN_SECONDS 10.0 /* a host may show a folder as it was some seconds ago (NFS) */
#define SEEN_PAUSE   0.1

static char *mark_path(const char *folder, const char *token)
{
    return bp_sprintf("%s/.bp-%s.tmp", folder, token); /* litter, if this job is killed */
}

bp_err run_shared_mark(const char *folder, char token[BP_TOKEN_BYTES])
{
    char *path;
    int fd;

    bp_token_new(token);
    path = mark_path(folder, token);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bp_free(path);
    if (fd < 0)
        return BP_FAIL(BP_ERR_IO, "run.not_writable", "no file can be made: in %s (%s)", folder,
                       strerror(errno));
    (void)close(fd);
    return BP_OK;
}

bp_err run_shared_check(MPI_Comm world, const char *folder, const char *token)
{
    char *path = mark_path(folder, token), host[256];
    double end = bp_clock_now() + SEEN_SECONDS;
    bp_err err = BP_OK;

    while (!bp_path_exists(path) && bp_clock_now() < end) {
        bp_dir_refresh(folder);
        bp_clock_sleep(SEEN_PAUSE);
    }
    if (!bp_path_exists(path)) {
        bp_host_name(host, sizeof host);
        err = BP_FAIL(BP_ERR_IO, "run.not_shared",
                      "the nodes do not share the run folder: %s does not see what rank 0 has made "
                      "in %s; set run.dir to a file system that all nodes see",
                      host, folder);
    }
    err = bp_agree(world, err);
    if (bp_comm_is_root(world))
        (void)unlink(path);
    bp_free(path);
    return err;
}
