/* The folder that a checkpoint or an export is written to before it has its name, and what killed
 * runs left of such. */
#include "io/checkpoint/hidden_folder.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPTS 16

static const char PREFIX[] = ".tmp-";

/* 0: made and locked, or without a lock where there are none; -1: errno says why; EEXIST: try
 * another name. A sweep may come between the making and the lock, and has removed it by then. */
static int make_locked(const char *hidden, int *lock)
{
    struct stat status;

    if (mkdir(hidden, 0777) != 0)
        return -1;
    *lock = open(hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*lock < 0 && errno != ENOENT)
        return 0;
    if (*lock >= 0 && !(flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) &&
        fstat(*lock, &status) == 0 && status.st_nlink > 0)
        return 0;
    if (*lock >= 0)
        (void)close(*lock);
    *lock = -1;
    (void)rmdir(hidden); /* gone already, or about to go */
    errno = EEXIST;
    return -1;
}

bp_err bp_hidden_make(const char *path, char **hidden, int *lock)
{
    const char *base = bp_path_base(path);
    char token[BP_TOKEN_BYTES];

    *lock = -1;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        bp_err err = bp_token_new(token);
        int number;

        *hidden = err != BP_OK
                      ? NULL
                      : bp_sprintf("%.*s%s%s-%s", (int)(base - path), path, PREFIX, base, token);
        if (err != BP_OK)
            return err;
        if (make_locked(*hidden, lock) == 0)
            return BP_OK;
        number = errno;
        bp_free(*hidden);
        *hidden = NULL;
        errno = number;
        if (number != EEXIST)
            break;
    }
    return bp_fail_create("can't create the folder", path);
}

/* ".tmp-BASE-TOKEN", and nothing of another output, such as BASE-more. */
static bool is_hidden_of(const char *base, const char *name)
{
    size_t prefix_bytes = sizeof PREFIX - 1, base_bytes = strlen(base);
    const char *token = name + prefix_bytes + base_bytes + 1;

    return strncmp(name, PREFIX, prefix_bytes) == 0 &&
           strncmp(name + prefix_bytes, base, base_bytes) == 0 && token[-1] == '-' &&
           strlen(token) == BP_TOKEN_BYTES - 1 &&
           strspn(token, "0123456789abcdef") == BP_TOKEN_BYTES - 1;
}

/* Where locks are of one host alone (Lustre's localflock), a folder that another host writes looks
 * abandoned. Its run fails then: loudly, and with nothing wrong under the name. */
static void remove_abandoned(const char *hidden)
{
    int fd = open(hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && bp_dir_remove(hidden) == BP_OK)
        bp_log("removed %s, which a killed run left", hidden);
    (void)close(fd);
}

void bp_hidden_sweep(const char *path)
{
    const char *base = bp_path_base(path);
    char *folder = base > path ? bp_sprintf("%.*s", (int)(base - path), path) : bp_strdup(".");
    char **names = NULL;
    int64_t count = 0;

    if (folder == NULL || bp_dir_list(folder, &names, &count) != BP_OK)
        count = 0;
    for (int64_t k = 0; k < count; k++) {
        char *hidden = is_hidden_of(base, names[k]) ? bp_path_join(folder, names[k]) : NULL;

        if (hidden != NULL)
            remove_abandoned(hidden);
        bp_free(hidden);
    }
    bp_names_free(&names, count);
    bp_free(folder);
}
