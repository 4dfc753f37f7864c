/* The folder of a run's checkpoints: names, leftovers, retention, the link to the best one. */
#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/cores.h"
#include "base/process/heartbeat.h"
#include "base/process/thread.h"
#include "io/checkpoint/checkpoint_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void bp_checkpoint_step_name(char out[BP_STEP_NAME], int64_t step)
{
    (void)snprintf(out, BP_STEP_NAME, "step-%012" PRId64, step);
}

bool bp_step_of_name(const char *name, int64_t *step)
{
    if (strncmp(name, "step-", 5) != 0 || strlen(name) != 17 ||
        strspn(name + 5, "0123456789") != 12)
        return false;
    *step = strtoll(name + 5, NULL, 10);
    return true;
}

/* ---- leftovers ---- */

static bool is_leftover(const char *name)
{
    return strncmp(name, ".tmp-", 5) == 0 || strncmp(name, ".del-", 5) == 0;
}

/* .tmp-REST to .del-REST: a slow writer that has lost the run must not commit what is being removed
 * here. A faster one has committed a whole one. */
static bp_err put_aside(const char *parent, const char *name)
{
    char *path = bp_path_join(parent, name),
         *aside = bp_sprintf("%s/.del-%s", parent, name + strlen(".tmp-"));
    bp_err err = BP_OK;

    if (rename(path, aside) != 0 && errno != ENOENT)
        err = bp_fail_errno(BP_ERR_IO, "can't put aside what a killed job left", path);
    bp_free(path);
    bp_free(aside);
    return err;
}

/* After a power failure, a step that a killed job renamed may have its old name again, and must not
 * be incomplete then: sync names first. */
static bp_err remove_leftovers(const char *parent, char **names, int64_t count)
{
    int64_t found = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        found += is_leftover(names[k]);
        if (strncmp(names[k], ".tmp-", 5) == 0)
            err = put_aside(parent, names[k]);
    }
    if (err == BP_OK && found > 0)
        err = bp_path_sync(parent);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (is_leftover(names[k])) {
            char *path = bp_sprintf("%s/.del-%s", parent, names[k] + strlen(".del-"));

            err = bp_dir_remove(path);
            bp_free(path);
        }
    return err;
}

bp_err bp_checkpoints_clean(const char *parent)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = BP_OK;

    if (bp_path_exists(parent)) {
        bp_dir_refresh(parent);
        err = bp_dir_list(parent, &names, &count);
    }
    /* checked after the listing, which then has no files of a later owner */
    if (err == BP_OK)
        err = bp_fence_check();
    if (err == BP_OK)
        err = remove_leftovers(parent, names, count);
    bp_names_free(&names, count);
    return err;
}

/* ---- best ---- */

bp_err bp_checkpoints_check_best(const char *parent)
{
    char *path = bp_path_join(parent, "best");
    struct stat status;
    bp_err err = BP_OK;

    if (lstat(path, &status) == 0 && !S_ISLNK(status.st_mode))
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.bad_link",
                      "no link to the best checkpoint, but something else: at %s; move it away",
                      path);
    bp_free(path);
    return err;
}

int64_t bp_checkpoints_best(const char *parent)
{
    char target[BP_STEP_NAME] = "", *path = bp_path_join(parent, "best");
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    int64_t step = -1;

    bp_free(path);
    if (bytes < 0)
        return -1;
    target[bytes] = '\0';
    return bp_step_of_name(target, &step) ? step : -1;
}

int64_t bp_checkpoints_before(const char *parent, int64_t step)
{
    char **names = NULL;
    int64_t found = 0, one, newest = -1;

    if (bp_dir_list(parent, &names, &found) != BP_OK)
        return -1;
    for (int64_t k = 0; k < found; k++)
        if (bp_step_of_name(names[k], &one) && one < step && one > newest)
            newest = one;
    bp_names_free(&names, found);
    return newest;
}

bp_err bp_checkpoints_link_best(const char *parent, int64_t step)
{
    char name[BP_STEP_NAME], token[BP_TOKEN_BYTES];
    char *folder, *hidden, *link = bp_path_join(parent, "best");
    bp_err err = BP_OK;

    bp_token_new(token);
    bp_checkpoint_step_name(name, step);
    folder = bp_path_join(parent, name);
    hidden = bp_sprintf("%s/.tmp-best-%s", parent, token);
    if (!bp_path_is_dir(folder))
        err = BP_FAIL(BP_ERR_INPUT, "checkpoint.none",
                      "there is no checkpoint to call the best: at %s", folder);
    if (err == BP_OK)
        err = bp_checkpoints_check_best(parent);
    if (err == BP_OK && symlink(name, hidden) != 0)
        err = bp_fail_create("can't create the link", hidden);
    bool linked = err == BP_OK;
    if (err == BP_OK)
        err = bp_fence_check();
    if (err == BP_OK && (bp_fault("ckpt.best") || rename(hidden, link) != 0))
        err = bp_fail_errno(BP_ERR_IO, "can't put the link in place", link);
    if (linked && err != BP_OK)
        (void)unlink(hidden);
    bp_free(folder);
    bp_free(link);
    bp_free(hidden);
    return err == BP_OK ? bp_path_sync(parent) : err;
}

/* ---- retention ---- */

/* aside[*count]: the names under which old steps will be removed. */
static bp_err put_old_aside(const char *parent, int64_t keep, char **names, int64_t found,
                            char **aside, int64_t *count)
{
    int64_t step, kept = 0, best = bp_checkpoints_best(parent);
    char token[BP_TOKEN_BYTES], *from;
    bp_err err = BP_OK;

    for (int64_t k = found - 1; k >= 0 && err == BP_OK; k--) { /* names sort as their steps do */
        if (!bp_step_of_name(names[k], &step) || step == best)
            continue;
        if (kept < (keep > 1 ? keep : 1)) {
            kept++;
            continue;
        }
        bp_token_new(token);
        from = bp_path_join(parent, names[k]);
        aside[*count] = bp_sprintf("%s/.del-%s-%s", parent, names[k], token);
        err = bp_fault("ckpt.prune_rename")
                  ? bp_fail_errno(BP_ERR_IO, "can't put a folder aside", from)
                  : bp_rename_new(from, aside[*count]);
        bp_free(from);
        if (err == BP_OK)
            (*count)++;
        else
            bp_free(aside[*count]);
    }
    return err;
}

bp_err bp_checkpoints_prune(const char *parent, int64_t keep, bp_remover *remover)
{
    bp_remover own = {.runs = false};
    char **names = NULL, **aside;
    int64_t found = 0, count = 0;
    bp_err err = bp_dir_list(parent, &names, &found);

    if (err != BP_OK)
        return err;
    aside = bp_alloc("checkpoints.aside", found, sizeof *aside);
    err = put_old_aside(parent, keep, names, found, aside, &count);
    bp_names_free(&names, found);
    if (err == BP_OK && count > 0)
        err = bp_path_sync(
            parent); /* a crash in the middle must not leave half a checkpoint under its name */
    if (err == BP_OK)
        err = bp_remover_start(remover ? remover : &own, &aside, &count);
    bp_names_free(&aside, count);
    if (!remover && own.paths)
        err = bp_remover_wait(&own);
    return err;
}

/* ---- removing during training, by a thread ---- */

static bp_err remove_all(const bp_remover *remover)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < remover->count && err == BP_OK; k++)
        err = bp_fault("ckpt.prune_unlink")
                  ? bp_fail_errno(BP_ERR_IO, "can't remove", remover->paths[k])
                  : bp_dir_remove(remover->paths[k]);
    return err;
}

static void *sweep(void *argument)
{
    bp_remover *remover = argument;

    bp_heartbeat_beside();
    bp_cores_step_aside();
    remover->err = remove_all(remover);
    if (remover->err != BP_OK)
        (void)snprintf(remover->message, sizeof remover->message, "%s", bp_err_message());
    return NULL;
}

bp_err bp_remover_start(bp_remover *remover, char ***paths, int64_t *count)
{
    bp_err before = bp_remover_wait(remover);

    remover->paths = *paths;
    remover->count = *count;
    *paths = NULL;
    *count = 0;
    if (remover->count > 0)
        remover->runs = bp_thread_start(&remover->thread, "remover", sweep, remover) == BP_OK;
    if (before != BP_OK)
        bp_err_set_message(remover->message);
    return before;
}

bp_err bp_remover_wait(bp_remover *remover)
{
    bp_err err;

    if (remover->runs)
        BP_CHECK(pthread_join(remover->thread, NULL) == 0);
    else
        remover->err =
            remove_all(remover); /* no thread could be created, or there is nothing to remove */
    if (remover->runs && remover->err != BP_OK)
        bp_err_set_message(remover->message);
    err = remover->err;
    bp_names_free(&remover->paths, remover->count);
    remover->count = 0;
    remover->runs = false;
    remover->err = BP_OK;
    return err;
}
