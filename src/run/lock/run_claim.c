/* Files beside a lock: the number that a job goes for, and the room that it keeps for its end. */
#include "run/lock/run_lock_priv.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a number ---- */

/* Create `path` with the content of `from` if nobody else does: BP_OK and *won, or BP_OK and not.
 * An answer that NFS lost and asked for again says EEXIST though the link was made: the count of
 * links knows. Who takes a number sweeps away the drafts for it: one that vanished has lost. */
static bp_err link_new(const char *from, const char *path, bool *won)
{
    struct stat status;

    *won = link(from, path) == 0;
    if (!*won && errno == EEXIST)
        *won = stat(from, &status) == 0 && status.st_nlink == 2;
    if (*won || errno == EEXIST || errno == ENOENT)
        return BP_OK;
    if (errno == EPERM || errno == ENOSYS ||
        errno == EOPNOTSUPP) { /* a file system without hard links */
        *won = renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
        if (*won || errno == EEXIST || errno == ENOENT)
            return BP_OK;
    }
    return bp_fail_create("can't take the lock", path);
}

/* By its own name from the start, so that an owner that sweeps knows whether it is litter. */
static bp_err write_draft(const char *path, const run_owner *self)
{
    json_t *value = run_owner_json(self);
    char *text = bp_json_text(value);
    int fd = -1;
    bp_err err = bp_plain_open(path, O_WRONLY | O_CREAT | O_TRUNC, &fd);
    if (err == BP_OK && bp_write_all(fd, text, strlen(text)) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    if (err == BP_OK && fsync(fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", path);
    if (fd >= 0 && close(fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't close", path);
    json_decref(value);
    bp_free(text);
    return err;
}

bp_err run_claim(const char *folder, const run_owner *self, bool *won)
{
    long long number = (long long)self->epoch;
    char *path = bp_sprintf("%s/owner-%06lld", folder, number);
    char *draft = bp_sprintf("%s/claim-%06lld-%s", folder, number, self->token);
    bp_err err = BP_OK;

    *won = false;
    err = write_draft(draft, self);
    if (err == BP_OK)
        err = link_new(draft, path, won);
    if (draft != NULL)
        (void)unlink(draft); /* gone already where it was renamed */
    if (err == BP_OK && *won)
        err = bp_path_sync(folder);
    bp_free(draft);
    bp_free(path);
    return err;
}

/* ---- room for the end ---- */

#define ROOM_BYTES 65536

/* Bytes that no file system can make smaller. */
bp_err run_room_keep(const char *folder)
{
    uint64_t noise[1024], state = 1;
    char *path = bp_path_join(folder, "room");
    int fd = -1;
    bp_err err = bp_plain_open(path, O_WRONLY | O_CREAT | O_TRUNC, &fd);

    for (int64_t at = 0; err == BP_OK && at < ROOM_BYTES; at += (int64_t)sizeof noise) {
        for (size_t k = 0; k < sizeof noise / sizeof noise[0]; k++)
            noise[k] = state =
                state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (bp_pwrite_all(fd, noise, sizeof noise, at) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    }
    if (err == BP_OK && fsync(fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", path);
    if (fd >= 0)
        (void)close(fd);
    bp_free(path);
    return err;
}

void run_room_give(const char *folder)
{
    char *path = bp_path_join(folder, "room");

    if (path != NULL)
        (void)unlink(path);
    bp_free(path);
}
