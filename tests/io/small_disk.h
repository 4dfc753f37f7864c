/* A full disk for tests: a child process with a tmpfs of its own (root), or with a limit on the
 * size of files. */
#pragma once

#include "bp_test.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum small_disk_kind { SMALL_DISK_TMPFS, SMALL_DISK_LIMIT } small_disk_kind;

/* In the child: a folder with space for `bytes`, or the end with 99 where that can't be had. */
static inline void small_disk_enter(small_disk_kind kind, const char *folder, long bytes)
{
    struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    char options[64];

    if (kind == SMALL_DISK_LIMIT) {
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(99);
        return;
    }
    snprintf(options, sizeof options, "size=%ld", bytes);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, "") != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, options) != 0)
        _exit(99);
}

/** Call `work(path)` in a child whose disk holds `bytes`, with `path` = `folder`/name; skips the
 * test where that can't be had. Returns its bp_err; 98 if a file is left in the folder afterwards
 * although it failed. */
static inline bp_err on_small_disk(small_disk_kind kind, long bytes,
                                   bp_err (*work)(const char *path))
{
    const char *folder = bp_test_path(kind == SMALL_DISK_TMPFS ? "tmpfs" : "limited");
    int status;
    pid_t child;

    bp_test_expect(bp_dir_make(folder), BP_OK);
    fflush(stdout);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char path[PATH_MAX], **names = NULL;
        int64_t count = 0;
        small_disk_enter(kind, folder, bytes);
        snprintf(path, sizeof path, "%s/file.h5", folder);
        bp_err err = work(path);
        if (bp_dir_list(folder, &names, &count) != BP_OK || (err != BP_OK && count != 0))
            _exit(98);
        _exit((int)err);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 99)
        bp_test_skip("no file system of one's own (needs root and mount)");
    return (bp_err)WEXITSTATUS(status);
}
