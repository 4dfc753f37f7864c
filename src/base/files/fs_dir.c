/* Folders: listed, made, removed, brought to disk. */
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/sort.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bp_err make_one(const char *path)
{
    if (mkdir(path, 0777) == 0) {
        bp_err err = bp_path_sync_parent(path);

        return err == BP_ERR_DENIED ? BP_OK : err; /* writable, but not to be opened: -wx */
    }
    if (errno == EEXIST && bp_path_is_dir(path))
        return BP_OK;
    if (errno == EEXIST)
        return bp_fail(BP_ERR_CREATE, "file.in_the_way",
                       "a file is where a folder is needed: at %s; move it away", path);
    return bp_fail_create("can't make the folder", path);
}

bp_err bp_dir_make(const char *path)
{
    char *part = bp_strdup(path);
    bp_err err = BP_OK;

    if (bp_path_is_dir(path)) {
        bp_free(part);
        return BP_OK;
    }
    for (char *p = part + 1; err == BP_OK && part[0] != 0 && *p != 0; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (!bp_path_is_dir(part))
            err = make_one(part);
        *p = '/';
    }
    if (err == BP_OK)
        err = make_one(path);
    bp_free(part);
    return err;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

bp_err bp_dir_remove(const char *path)
{
    struct stat status;

    if (lstat(path, &status) != 0 && errno == ENOENT)
        return BP_OK;
    /* FTW_PHYS: a symbolic link is removed, never followed. */
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return bp_fail_errno(BP_ERR_IO, "can't remove", path);
    return BP_OK;
}

/* A change of its times goes to the server and invalidates the client's cache of the folder,
 * without a new name or space. */
void bp_dir_refresh(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* another user's folder stays as cached */
}

bp_err bp_dir_list(const char *path, char ***names, int64_t *count)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int64_t capacity = 0;
    bp_err err = BP_OK;

    *names = NULL;
    *count = 0;
    if (!dir)
        return bp_fail_errno(BP_ERR_INPUT, "can't list", path);
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        *names = bp_grow("base.names", *names, &capacity, *count + 1, sizeof(**names));
        (*names)[(*count)++] = bp_strdup(entry->d_name);
    }
    if (errno != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't list", path);
    (void)closedir(dir); /* only read from */
    if (err != BP_OK) {
        bp_names_free(names, *count);
        *count = 0;
    } else if (*count > 0) {
        qsort(*names, (size_t)*count, sizeof(**names), bp_by_text);
    }
    return err;
}

void bp_names_free(char ***names, int64_t count)
{
    for (int64_t i = 0; *names && i < count; i++)
        bp_free((*names)[i]);
    bp_free(*names);
    *names = NULL;
}

void bp_dir_sweep(const char *path)
{
    char **names;
    int64_t count, litter = 0;

    bp_dir_refresh(path);
    if (bp_dir_list(path, &names, &count) != BP_OK)
        return;
    for (int64_t k = 0; k < count; k++)
        litter += bp_is_temporary_name(names[k]);
    /* checked after the listing: drafts of a later owner are not in it */
    bool ours = litter > 0 && bp_fence_check() == BP_OK;
    for (int64_t k = 0; ours && k < count; k++)
        if (bp_is_temporary_name(names[k]))
            (void)unlink(bp_path_in(path, names[k]).text);
    bp_names_free(&names, count);
}

/* Fallback for file systems without a no-replace rename: check first. The committer holds the
 * run's lock, and rename does not replace a folder that has files in it. */
bp_err bp_rename_new(const char *from, const char *to)
{
    struct stat status;

    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return BP_OK;
    if (errno == EINVAL || errno == ENOSYS) {
        if (lstat(to, &status) == 0)
            errno = EEXIST;
        else if (rename(from, to) == 0)
            return BP_OK;
    }
    return errno == EEXIST || errno == ENOTEMPTY
               ? bp_fail_create("can't put a folder in place", to)
               : bp_fail_errno(BP_ERR_IO, "can't put a folder in place", to);
}
