/* Temporary files of corpora, and what is left of killed runs. */
#include "corpus_temporary.h"

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

static const char SUFFIX[] = ".tmp";

/* ".BASE.TOKEN.tmp", and nothing of another output, such as BASE.more. */
static bool is_temporary_of(const char *base, const char *name)
{
    size_t base_bytes = strlen(base), token_bytes;
    const char *token = name + 1 + base_bytes + 1;

    if (name[0] != '.' || strncmp(name + 1, base, base_bytes) != 0 || name[1 + base_bytes] != '.')
        return false;
    token_bytes = strspn(token, "0123456789abcdef");
    return token_bytes > 0 && strcmp(token + token_bytes, SUFFIX) == 0;
}

/* Where locks are of one host alone (Lustre's localflock), a file that another host writes looks
 * abandoned. Its run fails at the rename then: loudly, and with nothing wrong under the name. */
static void remove_abandoned(const char *temporary)
{
    int fd = open(temporary, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;

    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        unlink(temporary) == 0)
        bp_log("removed %s (%.1f MB), which a killed run left", temporary,
               1e-6 * (double)status.st_size);
    (void)close(fd); /* nothing was written */
}

static char *folder_of(const char *path)
{
    int bytes = (int)(bp_path_base(path) - path);

    return bytes > 0 ? bp_sprintf("%.*s", bytes, path) : bp_strdup(".");
}

void bp_corpus_temporary_sweep(const char *path)
{
    char *folder = folder_of(path);
    char **names = NULL;
    int64_t count = 0;

    if (folder == NULL || bp_dir_list(folder, &names, &count) != BP_OK)
        count = 0;
    for (int64_t k = 0; k < count; k++) {
        char *temporary =
            is_temporary_of(bp_path_base(path), names[k]) ? bp_path_join(folder, names[k]) : NULL;
        if (temporary != NULL)
            remove_abandoned(temporary);
        bp_free(temporary);
    }
    bp_names_free(&names, count);
    bp_free(folder);
}

/* 0: created and locked (or without a lock where there are none); -1: errno says why; EEXIST: try
 * another name. A sweep may come between the creation and the lock: it holds the lock then, or has
 * removed the name already. */
static int create_locked(const char *temporary)
{
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    struct stat status;
    bool is_swept;

    if (fd < 0)
        return -1;
    is_swept = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_swept && fstat(fd, &status) == 0 && status.st_nlink > 0)
        return fd;
    (void)unlink(temporary); /* gone already, or about to go */
    (void)close(fd);
    errno = EEXIST;
    return -1;
}

bp_err bp_corpus_temporary_create(const char *path, char **temporary, int *fd)
{
    const char *base = bp_path_base(path);
    char token[BP_TOKEN_BYTES];

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        bp_err err = bp_token_new(token);
        int number;

        *fd = -1;
        *temporary = err != BP_OK ? NULL
                                  : bp_sprintf("%.*s.%s.%s%s", (int)(base - path), path, base,
                                               token, SUFFIX);
        if (err != BP_OK)
            return err;
        *fd = create_locked(*temporary);
        if (*fd >= 0)
            return BP_OK;
        number = errno;
        bp_free(*temporary);
        *temporary = NULL;
        errno = number;
        if (number != EEXIST)
            break;
    }
    return bp_fail_create("can't create", path);
}
