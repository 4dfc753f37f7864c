/* The file system under a run folder: tried, not trusted. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "coordinator/probe.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROBE_BYTES  ((int64_t)4 << 20)
#define SLOW_SYNC    2.0 /* seconds for so few bytes */
#define POLL_SECONDS 0.01
#define FEW_INODES   1000

char *bp_probe_existing(const char *path)
{
    char *found = bp_strdup(path);

    while (found != NULL && !bp_path_exists(found)) {
        char *slash = strrchr(found, '/');

        if (slash == NULL || slash == found) {
            bp_free(found);
            return bp_strdup(slash == NULL ? "." : "/");
        }
        *slash = '\0';
    }
    return found;
}

bp_err bp_probe_ground(char **out, const char *folder)
{
    char token[BP_TOKEN_BYTES];
    bp_err err = bp_token_new(token);

    *out = NULL;
    if (err == BP_OK && !bp_path_is_dir(folder))
        err = BP_FAIL(BP_ERR_CREATE, "it is no folder: at %s; use another run.dir", folder);
    if (err != BP_OK)
        return err;
    *out = bp_sprintf("%s/.bagpipe-doctor-%s", folder, token);
    if (*out == NULL)
        return bp_fail_memory("a file name", 1, strlen(folder));
    if (mkdir(*out, 0777) != 0) {
        err = bp_fail_create("can't make", *out);
        bp_free(*out);
        *out = NULL;
    }
    return err;
}

/* ---- files ---- */

/* A step of the trial. On failure errno tells. */
typedef struct trial {
    const char *ground;
    char a[4096], b[4096];
} trial;

static int write_file(trial *t)
{
    char *data = bp_alloc("probe", PROBE_BYTES, 1);
    int fd = data == NULL ? -1 : open(t->a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int failed = fd < 0 || bp_write_all(fd, data, (size_t)PROBE_BYTES) != 0 || fsync(fd) != 0;
    int number = errno;

    if (fd >= 0 && close(fd) != 0 && !failed) {
        failed = 1;
        number = errno;
    }
    bp_free(data);
    errno = number;
    return failed;
}

static int sync_folder(trial *t)
{
    int fd = open(t->ground, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed, number;

    if (fd < 0)
        return 1;
    failed = fsync(fd);
    number = errno;
    (void)close(fd);
    errno = number;
    return failed;
}

static int rename_file(trial *t)
{
    return rename(t->a, t->b) != 0 || sync_folder(t) != 0;
}

static int symbolic_link(trial *t)
{
    char name[4200];

    (void)snprintf(name, sizeof name, "%s-symbolic", t->b);
    return symlink("b", name);
}

static const struct step {
    const char *check, *remedy;
    bp_probe_level level; /* of a failure */
    int (*run)(trial *t);
} STEPS[] = {
    {"write, fsync", "make room or ask for access there, or use another run.dir", BP_PROBE_FAIL,
     write_file},
    {"rename", "use a run.dir on another file system", BP_PROBE_FAIL, rename_file},
    {"symbolic link", "nothing, but checkpoints/best can't be made", BP_PROBE_WARN, symbolic_link},
};

bp_err bp_probe_files(json_t *rows, const char *ground)
{
    trial t = {.ground = ground};
    bp_err err = BP_OK;

    (void)snprintf(t.a, sizeof t.a, "%s/a", ground);
    (void)snprintf(t.b, sizeof t.b, "%s/b", ground);
    for (size_t k = 0; k < sizeof STEPS / sizeof STEPS[0] && err == BP_OK; k++) {
        const struct step *step = &STEPS[k];
        double began = bp_clock_now(), seconds;
        int failed = step->run(&t), number = errno;

        seconds = bp_clock_now() - began;
        if (failed && step->level == BP_PROBE_FAIL) {
            errno = number;
            err = bp_fail_create(step->check, ground);
        }
        if (failed)
            bp_probe_add(rows, step->level, step->check, step->remedy, "%s", strerror(number));
        else if (seconds > SLOW_SYNC)
            bp_probe_add(rows, BP_PROBE_WARN, step->check,
                         "look who else writes there: a commit waits for it", "took %.1f s",
                         seconds);
        else
            bp_probe_add(rows, BP_PROBE_OK, step->check, NULL,
                         k == 0 ? "%.1f ms, %.0f MB/s" : "%.1f ms", 1e3 * seconds,
                         (double)PROBE_BYTES / 1e6 / seconds);
    }
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
    {0x01021994, "tmpfs", "it is memory: gone when the host is, and seen by one host alone",
     "use a run.dir on a disk that all hosts see"},
    {0x858458f6, "ramfs", "it is memory: gone when the host is, and seen by one host alone",
     "use a run.dir on a disk that all hosts see"},
    {0x794c7630, "overlay", "a container's own layer is gone with the container",
     "use a run.dir on a mounted volume"},
    {0x65735546, "fuse", "what fsync and rename promise depends on what stands behind it",
     "use a file system that the kernel knows, or ask who runs it"},
};

static void judge_kind(json_t *rows, const char *folder)
{
    struct statfs disk;

    if (statfs(folder, &disk) != 0)
        return;
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++) {
        const struct kind *kind = &KINDS[k];

        if (kind->magic != (unsigned int)disk.f_type)
            continue;
        bp_probe_add(rows, kind->warning == NULL ? BP_PROBE_OK : BP_PROBE_WARN, "file system",
                     kind->remedy, "%s%s%s", kind->name, kind->warning == NULL ? "" : ": ",
                     kind->warning == NULL ? "" : kind->warning);
        return;
    }
    bp_probe_add(rows, BP_PROBE_NOTE, "file system", NULL, "of a kind unknown here (0x%x)",
                 (unsigned int)disk.f_type);
}

static void judge_access(json_t *rows, const char *folder)
{
    struct stat status;

    if (stat(folder, &status) != 0)
        return;
    if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
        bp_probe_add(rows, BP_PROBE_WARN, "access", "chmod o-w it",
                     "anybody may write to and remove what is in it: %s", folder);
    else if ((status.st_mode & S_IWGRP) != 0)
        bp_probe_add(rows, BP_PROBE_NOTE, "access", NULL, "its group may write too: %s", folder);
    else
        bp_probe_add(rows, BP_PROBE_OK, "access", NULL, "mode %04o: %s",
                     (unsigned int)status.st_mode & 07777, folder);
}

/* "1.5 GiB" */
typedef struct size_text {
    char text[32];
} size_text;

static size_text size_of(double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_text out;
    int unit = 0;

    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    (void)snprintf(out.text, sizeof out.text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes,
                   units[unit]);
    return out;
}

static bp_err judge_space(json_t *rows, const struct statvfs *disk, int64_t checkpoint_bytes,
                          int64_t keep)
{
    double room = (double)disk->f_bavail * (double)disk->f_frsize;
    double one = (double)checkpoint_bytes, need = one * (double)(keep + 1);
    static const char remedy[] = "make room, or use a smaller checkpoint.keep or another run.dir";

    if (checkpoint_bytes <= 0) {
        bp_probe_add(rows, BP_PROBE_OK, "space", NULL, "%s free", size_of(room).text);
    } else if (room < one) {
        bp_probe_add(rows, BP_PROBE_FAIL, "space", remedy, "%s free, but a checkpoint takes %s",
                     size_of(room).text, size_of(one).text);
        return BP_FAIL(BP_ERR_IO, "there is no room for a checkpoint of %s, %s are free: %s",
                       size_of(one).text, size_of(room).text, remedy);
    } else if (room < need) {
        bp_probe_add(rows, BP_PROBE_WARN, "space", remedy,
                     "%s free, but %lld checkpoints of %s take %s", size_of(room).text,
                     (long long)keep + 1, size_of(one).text, size_of(need).text);
    } else {
        bp_probe_add(rows, BP_PROBE_OK, "space", NULL,
                     "%s free, room for %.0f checkpoints of %s (%lld are kept)", size_of(room).text,
                     room / one, size_of(one).text, (long long)keep);
    }
    return BP_OK;
}

bp_err bp_probe_disk(json_t *rows, const char *folder, int64_t checkpoint_bytes, int64_t keep)
{
    struct statvfs disk;

    judge_kind(rows, folder);
    judge_access(rows, folder);
    if (statvfs(folder, &disk) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", folder);
    if (disk.f_files > 0 && disk.f_favail < FEW_INODES)
        bp_probe_add(rows, BP_PROBE_WARN, "inodes", "remove files there, or use another run.dir",
                     "%lld files can still be made", (long long)disk.f_favail);
    return judge_space(rows, &disk, checkpoint_bytes, keep);
}

/* ---- seen from other hosts ---- */

static bp_err put_mark(const char *ground, const char *name, int rank)
{
    char *path = bp_sprintf("%s/%s-%d", ground, name, rank);
    bp_err err =
        path == NULL ? bp_fail_memory("a file name", 1, 1) : bp_file_write(path, "here\n", 5);

    bp_free(path);
    return err;
}

/* Seconds until the file is there and whole; negative: it did not come. */
static double await_mark(const char *ground, const char *name, int rank, double wait_seconds)
{
    char *path = bp_sprintf("%s/%s-%d", ground, name, rank), *text = NULL;
    double began = bp_clock_now(), took = -1;
    size_t bytes;

    while (path != NULL && took < 0 && bp_clock_now() - began < wait_seconds) {
        if (bp_file_read(path, 64, &text, &bytes) == BP_OK && bytes == 5)
            took = bp_clock_now() - began;
        bp_free(text);
        text = NULL;
        if (took < 0)
            bp_clock_sleep(POLL_SECONDS);
    }
    bp_free(path);
    return took;
}

static bp_err not_seen(const char *from, const char *ground, double wait_seconds)
{
    return BP_FAIL(BP_ERR_IO,
                   "a file written on %s was not seen elsewhere within %.0f s: at %s; use a "
                   "run.dir that all hosts share",
                   from, wait_seconds, ground);
}

bp_err bp_probe_visible(MPI_Comm comm, const char *ground, bool witness, double wait_seconds,
                        double seconds[2])
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t back = 0;
    bp_err err = bp_agree(comm, rank == 0 ? put_mark(ground, "there", 0) : BP_OK);

    seconds[0] = seconds[1] = 0;
    if (err != BP_OK)
        return err;
    if (witness && (seconds[0] = await_mark(ground, "there", 0, wait_seconds)) < 0)
        err = not_seen("the first host", ground, wait_seconds);
    err = bp_agree(comm, err);
    if (err == BP_OK)
        err = bp_agree(comm, witness ? put_mark(ground, "back", rank) : BP_OK);
    for (int r = 1; r < size && err == BP_OK; r++) {
        int64_t is_one = bp_all_max_int(witness && r == rank, comm);

        if (rank == 0 && is_one) {
            double took = await_mark(ground, "back", r, wait_seconds);

            seconds[1] = took > seconds[1] ? took : seconds[1];
            err = took < 0 ? not_seen("another host", ground, wait_seconds) : BP_OK;
        }
        err = bp_agree(comm, err);
    }
    back = bp_all_max_int((int64_t)(1e6 * seconds[0]), comm);
    seconds[0] = 1e-6 * (double)back;
    seconds[1] = 1e-6 * (double)bp_all_max_int((int64_t)(1e6 * seconds[1]), comm);
    return err;
}
