/* Atomic files: written under another name, and renamed. */
#include "base/files/fs.h"

#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/hidden.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool are_hidden; /* bp_hidden_drafts */

void bp_hidden_drafts(void)
{
    are_hidden = true;
}

static int create_new(const char *name, int *fd)
{
    *fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd < 0 ? -1 : 0;
}

bp_err bp_draft_open(bp_draft *draft, const char *path)
{
    struct stat status;

    *draft = (bp_draft){.path = NULL, .temporary = NULL, .fd = -1};
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return bp_fail(BP_ERR_CREATE, "file.not_replaced",
                       "not a regular file, and so not replaced: at %s", path);
    draft->path = bp_strdup(path);
    bp_err err = BP_OK;
    if (are_hidden) {
        bp_hidden_sweep(path, BP_HIDDEN_FILE);
        err = bp_hidden_make(path, BP_HIDDEN_FILE, &draft->temporary, &draft->fd);
    } else if (bp_path_try_names(path, ".bp-", ".tmp", create_new, &draft->temporary, &draft->fd) !=
               0) {
        err = bp_fail_create("can't create", path);
    }
    if (err != BP_OK)
        bp_draft_drop(draft);
    return err;
}

/* A failure's message names the file that the user knows. */
bp_err bp_draft_write(bp_draft *draft, const void *data, size_t bytes)
{
    if (bp_write_all(draft->fd, data, bytes) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write", draft->path);
    return BP_OK;
}

void bp_draft_drop(bp_draft *draft)
{
    if (!draft->path)
        return;
    if (draft->fd >= 0)
        (void)close(draft->fd); /* whatever it says, the file goes */
    if (draft->temporary)
        (void)unlink(draft->temporary);
    bp_free(draft->temporary);
    bp_free(draft->path);
    *draft = (bp_draft){.path = NULL, .temporary = NULL, .fd = -1};
}

bp_err bp_draft_commit(bp_draft *draft)
{
    int fd = draft->fd;
    bp_err err = BP_OK;

    draft->fd = -1;
    if (!draft->lightly && fsync(fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", draft->path);
    if (close(fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't close", draft->path);
    if (err == BP_OK && !draft->lightly)
        err = bp_fence_check();
    bp_fault_point("base.place");
    if (err == BP_OK && rename(draft->temporary, draft->path) != 0) {
        int number = errno;

        err = bp_fence_check(); /* a later owner has just removed it */
        errno = number;
        if (err == BP_OK)
            err = bp_fail_create("can't put in place", draft->path);
    }
    if (err == BP_OK) {
        bp_free(draft->temporary);
        draft->temporary = NULL;
        err = draft->lightly ? BP_OK : bp_path_sync_parent(draft->path);
    }
    bp_draft_drop(draft);
    return err;
}

bp_err bp_draft_end(bp_draft *draft, bp_err err)
{
    if (err == BP_OK)
        return bp_draft_commit(draft);
    bp_draft_drop(draft);
    return err;
}

static bp_err write_file(const char *path, const void *data, size_t bytes, bool lightly)
{
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path);

    if (err != BP_OK)
        return err;
    draft.lightly = lightly;
    return bp_draft_end(&draft, bp_draft_write(&draft, data, bytes));
}

bp_err bp_file_write(const char *path, const void *data, size_t bytes)
{
    return write_file(path, data, bytes, false);
}

bp_err bp_file_write_lightly(const char *path, const void *data, size_t bytes)
{
    return write_file(path, data, bytes, true);
}
