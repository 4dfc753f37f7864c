/* Files and folders that are written under a temporary name, and the removal of those that killed
 * runs left. */
#include "base/files/hidden.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* BEFORE NAME BETWEEN TOKEN AFTER, in NAME's folder */
static const struct {
    const char *before, *between, *after, *verb;
    int open_flags; /* to take the lock */
} KINDS[] = {
    [BP_HIDDEN_FILE] = {".", ".", ".tmp", "can't create", O_RDWR | O_NONBLOCK},
    [BP_HIDDEN_FOLDER] = {".tmp-", "-", "", "can't create the folder", O_RDONLY | O_DIRECTORY}};

/* True when the name is locked, or the file system has no locks. False if a sweep came first: it
 * holds the lock, or has already removed the name. */
static bool take_lock(int fd)
{
    struct stat status;

    return !(flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) &&
           fstat(fd, &status) == 0 && status.st_nlink > 0;
}

static int make_file(const char *name, int *lock)
{
    *lock = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*lock < 0 || take_lock(*lock))
        return *lock < 0 ? -1 : 0;
    (void)unlink(name); /* gone already, or about to go */
    (void)close(*lock);
    errno = EEXIST;
    return -1;
}

static int make_folder(const char *name, int *lock)
{
    if (mkdir(name, 0777) != 0)
        return -1;
    *lock = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*lock < 0 ? errno != ENOENT : take_lock(*lock))
        return 0;
    if (*lock >= 0)
        (void)close(*lock);
    (void)rmdir(name); /* gone already, or about to go */
    errno = EEXIST;
    return -1;
}

bp_err bp_hidden_make(const char *path, bp_hidden_kind kind, char **hidden, int *lock)
{
    char *before =
        bp_sprintf("%s%s%s", KINDS[kind].before, bp_path_base(path), KINDS[kind].between);
    int made = bp_path_try_names(path, before, KINDS[kind].after,
                                 kind == BP_HIDDEN_FILE ? make_file : make_folder, hidden, lock);

    bp_free(before);
    return made == 0 ? BP_OK : bp_fail_create(KINDS[kind].verb, path);
}

/* Excludes files of another output, such as NAME-more. */
static bool is_hidden_of(const char *base, bp_hidden_kind kind, const char *name)
{
    const char *const parts[] = {KINDS[kind].before, base, KINDS[kind].between};
    size_t digits;

    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        if (strncmp(name, parts[k], strlen(parts[k])) != 0)
            return false;
        name += strlen(parts[k]);
    }
    digits = strspn(name, "0123456789abcdef");
    return digits == BP_TOKEN_BYTES - 1 && strcmp(name + digits, KINDS[kind].after) == 0;
}

/* Where locks are local to a host (Lustre's localflock), an output of another host looks
 * abandoned. Its run then fails with an error, and no bad file gets the name. */
static void remove_abandoned(const char *hidden, bp_hidden_kind kind)
{
    int fd = open(hidden, KINDS[kind].open_flags | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && bp_dir_remove(hidden) == BP_OK) {
        if (kind == BP_HIDDEN_FILE)
            bp_log("removed %s (%.1f MB), which a killed run left", hidden,
                   1e-6 * (double)status.st_size);
        else
            bp_log("removed %s, which a killed run left", hidden);
    }
    (void)close(fd); /* nothing was written */
}

void bp_hidden_sweep(const char *path, bp_hidden_kind kind)
{
    const char *base = bp_path_base(path);
    char *folder = bp_path_folder(path), **names = NULL;
    int64_t count = 0;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        count = 0;
    for (int64_t k = 0; k < count; k++) {
        char *hidden = bp_path_join(folder, names[k]);

        if (is_hidden_of(base, kind, names[k]))
            remove_abandoned(hidden, kind);
        bp_free(hidden);
    }
    bp_names_free(&names, count);
    bp_free(folder);
}
