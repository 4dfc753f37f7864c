/* Tests of the file system of a run folder. Called by jobs/doctor.c. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "run/probe/probe.h"
#include "run/run_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROBE_BYTES ((int64_t)4 << 20)
#define SLOW_SYNC   2.0 /* seconds for so few bytes */
#define FEW_INODES  1000

char *bp_probe_existing(const char *path)
{
    char *found = bp_strdup(path);

    while (!bp_path_exists(found)) {
        char *slash = strrchr(found, '/');

        if (!slash || slash == found) {
            bp_free(found);
            return bp_strdup(!slash ? "." : "/");
        }
        *slash = '\0';
    }
    return found;
}

bp_err bp_probe_ground(char **out, const char *folder)
{
    char token[BP_TOKEN_BYTES];
    bp_err err = BP_OK;

    bp_token_new(token);
    *out = NULL;
    if (!bp_path_is_dir(folder))
        err = BP_FAIL(BP_ERR_CREATE, "run.not_a_folder",
                      "it is not a folder: at %s; use another run.dir", folder);
    if (err != BP_OK)
        return err;
    *out = bp_sprintf("%s/.bagpipe-doctor-%s", folder, token);
    if (mkdir(*out, 0777) != 0) {
        err = bp_fail_create("can't make", *out);
        bp_free(*out);
        *out = NULL;
    }
    return err;
}

/* ---- files ---- */

/* On failure errno is set. */
static bool write_and_sync(const char *path)
{
    char *data = bp_alloc("probe", PROBE_BYTES, 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool fine = fd >= 0 && bp_write_all(fd, data, (size_t)PROBE_BYTES) == 0 && fsync(fd) == 0;
    int number = errno;

    if (fd >= 0)
        (void)close(fd);
    bp_free(data);
    errno = number;
    return fine;
}

static bp_err add_trial(json_t *rows, const char *check, bool fine, double seconds)
{
    if (!fine) {
        int number = errno;

        bp_probe_add(rows, BP_PROBE_FAIL, check,
                     "free some space or ask for access there, or use another run.dir", "%s",
                     strerror(number));
        errno = number;
        return bp_fail_create(check, "the run folder");
    }
    if (seconds > SLOW_SYNC)
        bp_probe_add(rows, BP_PROBE_WARN, check,
                     "look who else writes there: a commit waits for it", "took %.1f s", seconds);
    else
        bp_probe_add(rows, BP_PROBE_OK, check, NULL, "%.1f ms", 1e3 * seconds);
    return BP_OK;
}

bp_err bp_probe_files(json_t *rows, const char *ground)
{
    const bp_path a = bp_path_in(ground, "a");
    double began = bp_clock_now();
    bp_err err;

    err = add_trial(rows, "write, fsync", write_and_sync(a.text), bp_clock_now() - began);
    if (err == BP_OK)
        err = add_trial(rows, "rename", rename(a.text, bp_path_in(ground, "b").text) == 0, 0);
    if (err == BP_OK && symlink("b", bp_path_in(ground, "link").text) != 0)
        bp_probe_add(rows, BP_PROBE_WARN, "symbolic link",
                     "nothing, but checkpoints/best can't be made", "%s", strerror(errno));
    return err;
}

/* ---- the disk ---- */

static const struct kind {
    unsigned int magic;
    const char *name, *warning, *remedy;
} KINDS[] = {
    {0xef53, "ext4", NULL, NULL},
    {0x58465342, "xfs", NULL, NULL},
    {0x9123683e, "btrfs", NULL, NULL},
    {0x2fc12fc1, "zfs", NULL, NULL},
    {0x0bd00bd0, "lustre", NULL, NULL},
    {0x47504653, "gpfs", NULL, NULL},
    {0x19830326, "beegfs", NULL, NULL},
    {0x00c36400, "ceph", NULL, NULL},
    {0x6969, "nfs",
     "whether the server exports it 'async' can't be seen from here: then a commit may not outlive "
     "the server's crash",
     "ask for an export with 'sync', or use a parallel file system"},
    {0xff534d42, "cifs", "names and locks are not those of a POSIX file system",
     "use another run.dir"},
    {0xfe534d42, "smb2", "names and locks are not those of a POSIX file system",
     "use another run.dir"},
    {0x01021994, "tmpfs", "it is memory: gone when the host is, and seen only by one host",
     "use a run.dir on a disk that all hosts see"},
    {0x858458f6, "ramfs", "it is memory: gone when the host is, and seen only by one host",
     "use a run.dir on a disk that all hosts see"},
    {0x794c7630, "overlay", "a container's own layer is gone with the container",
     "use a run.dir on a mounted volume"},
    {0x65735546, "fuse", "what fsync and rename promise depends on the file system beneath it",
     "use a file system that the kernel knows, or ask who runs it"},
};

static void check_kind(json_t *rows, const char *folder)
{
    struct statfs disk;
    size_t k = 0;

    if (statfs(folder, &disk) != 0)
        return;
    while (k < sizeof KINDS / sizeof KINDS[0] && KINDS[k].magic != (unsigned int)disk.f_type)
        k++;
    if (k == sizeof KINDS / sizeof KINDS[0])
        bp_probe_add(rows, BP_PROBE_NOTE, "file system", NULL, "of a kind unknown here (0x%x)",
                     (unsigned int)disk.f_type);
    else if (!KINDS[k].warning)
        bp_probe_add(rows, BP_PROBE_OK, "file system", NULL, "%s", KINDS[k].name);
    else
        bp_probe_add(rows, BP_PROBE_WARN, "file system", KINDS[k].remedy, "%s: %s", KINDS[k].name,
                     KINDS[k].warning);
}

static bp_err check_space(json_t *rows, const struct statvfs *disk, int64_t checkpoint_bytes,
                          int64_t keep)
{
    double free_bytes = (double)disk->f_bavail * (double)disk->f_frsize;
    double one = (double)checkpoint_bytes, need = one * (double)(keep + 1);
    static const char remedy[] =
        "free some space, or use a smaller checkpoint.keep or another run.dir";

    if (checkpoint_bytes <= 0) {
        bp_probe_add(rows, BP_PROBE_OK, "space", NULL, "%s free", bp_size_text(free_bytes).text);
    } else if (free_bytes < one) {
        bp_probe_add(rows, BP_PROBE_FAIL, "space", remedy, "%s free, but a checkpoint takes %s",
                     bp_size_text(free_bytes).text, bp_size_text(one).text);
        return BP_FAIL(BP_ERR_IO, "run.no_space",
                       "there is no space for a checkpoint of %s, %s are free: %s",
                       bp_size_text(one).text, bp_size_text(free_bytes).text, remedy);
    } else if (free_bytes < need) {
        bp_probe_add(rows, BP_PROBE_WARN, "space", remedy,
                     "%s free, but %lld checkpoints of %s take %s", bp_size_text(free_bytes).text,
                     (long long)keep + 1, bp_size_text(one).text, bp_size_text(need).text);
    } else {
        bp_probe_add(rows, BP_PROBE_OK, "space", NULL,
                     "%s free, space for %.0f checkpoints of %s (%lld are kept)",
                     bp_size_text(free_bytes).text, free_bytes / one, bp_size_text(one).text,
                     (long long)keep);
    }
    return BP_OK;
}

bp_err bp_probe_disk(json_t *rows, const char *folder, int64_t checkpoint_bytes, int64_t keep)
{
    struct statvfs disk;

    check_kind(rows, folder);
    if (statvfs(folder, &disk) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", folder);
    if (disk.f_files > 0 && disk.f_favail < FEW_INODES)
        bp_probe_add(rows, BP_PROBE_WARN, "inodes", "remove files there, or use another run.dir",
                     "%lld files can still be made", (long long)disk.f_favail);
    return check_space(rows, &disk, checkpoint_bytes, keep);
}

/* ---- seen from other hosts ---- */

bp_err bp_probe_shared(MPI_Comm comm, const char *ground)
{
    char token[BP_TOKEN_BYTES] = "";
    bp_err err = bp_agree(comm, bp_comm_is_root(comm) ? run_shared_mark(ground, token) : BP_OK);

    if (err != BP_OK)
        return err;
    bp_bcast_bytes(token, sizeof token, 0, comm);
    return run_shared_check(comm, ground, token);
}
