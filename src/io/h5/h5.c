/* HDF5 files: the library's state, opening, closing, and its error stack as one message. */
#include "io/h5/h5_parts.h"

#include "base/mem.h"
#include "io/h5/lzf_filter.h"
#include "io/h5/user_block.h"
#include "io/h5/zstd_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the library ---- */

static pthread_mutex_t library_lock;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* ---- the error stack: recorded at the moment of failure, since the next call clears it ---- */

typedef struct stack_summary {
    int saved_errno;    /* 0 if the stack has none */
    bool of_a_checksum; /* the innermost failure is a wrong checksum */
    char text[160];     /* its description; "" if nothing failed */
} stack_summary;

#define NOTHING_FAILED ((stack_summary){0, false, ""})

/* For this thread (a thread-safe build has one stack per thread). */
static _Thread_local stack_summary noted;
static _Thread_local bool stack_is_watched;

static herr_t summarise(unsigned n, const H5E_error2_t *error, void *context)
{
    stack_summary *summary = context;
    const char *at = error->desc ? strstr(error->desc, "errno = ") : NULL;

    if (n == 0 && error->desc)
        snprintf(summary->text, sizeof summary->text, "%s", error->desc);
    if (n == 0)
        summary->of_a_checksum = error->maj_num == H5E_STORAGE;
    /* The filters' own messages mislead: gzip's may be "invalid deflate aggression level". */
    if (!summary->of_a_checksum && error->maj_num == H5E_PLINE && error->min_num == H5E_READERROR)
        snprintf(summary->text, sizeof summary->text, "a chunk can't be decompressed");
    if (at && summary->saved_errno == 0)
        summary->saved_errno = atoi(at + strlen("errno = "));
    return 0;
}

/* HDF5 calls this when a call of ours fails. The first failure is the cause of those that follow,
 * unless one of them names an errno. */
static herr_t note_failure(hid_t stack, void *context)
{
    stack_summary summary = NOTHING_FAILED;

    (void)context;
    if (H5Ewalk2(stack, H5E_WALK_UPWARD, summarise, &summary) >= 0 &&
        (noted.text[0] == '\0' || (summary.saved_errno != 0 && noted.saved_errno == 0)))
        noted = summary;
    return 0;
}

void bp_h5_forget(void)
{
    noted = NOTHING_FAILED;
}

static void start_library(void)
{
    pthread_mutexattr_t attributes;

    BP_CHECK(pthread_mutexattr_init(&attributes) == 0);
    BP_CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0);
    BP_CHECK(pthread_mutex_init(&library_lock, &attributes) == 0);
    BP_CHECK(pthread_mutexattr_destroy(&attributes) == 0);
    BP_CHECK(setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) == 0); /* read at the first call */
    /* A file that could not be closed (disk full) makes the library's own end crash: exit status
     * 139 instead of 74. */
    BP_CHECK(H5dont_atexit() >= 0);
    BP_CHECK(H5open() >= 0);
    BP_CHECK(H5PLset_loading_state(0) >= 0);
    BP_CHECK(H5Zregister(bp_zstd_filter) >= 0);
    BP_CHECK(H5Zregister(bp_lzf_filter) >= 0);
}

void bp_h5_lock(void)
{
    BP_CHECK(pthread_once(&library_once, start_library) == 0);
    BP_CHECK(pthread_mutex_lock(&library_lock) == 0);
    if (!stack_is_watched) {
        BP_CHECK(H5Eset_auto2(H5E_DEFAULT, note_failure, NULL) >= 0);
        stack_is_watched = true;
    }
}

void bp_h5_unlock(void)
{
    BP_CHECK(pthread_mutex_unlock(&library_lock) == 0);
}

void bp_h5_release(hid_t id)
{
    if (id >= 0)
        (void)H5Idec_ref(id); /* of an object that is only read, or described: it can't fail */
}

/* ---- failures ---- */

bp_err bp_h5_sound(const bp_h5 *file)
{
    if (file->failed != BP_OK)
        bp_err_set_message(file->failure);
    return file->failed;
}

bp_err bp_h5_fail(bp_h5 *file, const char *verb, const char *name)
{
    const stack_summary summary = noted;
    char what[200];
    bp_err err;

    bp_h5_forget();
    snprintf(what, sizeof what, "%s%s%s", verb, name ? " " : "", name ? name : "");
    errno = summary.saved_errno;
    if (summary.saved_errno == ENOENT && file->writing)
        err = bp_fail_create(what, file->path); /* an output's folder, not a missing input */
    else if (summary.saved_errno != 0)
        err = bp_fail_errno(BP_ERR_IO, what, file->path);
    else
        err = bp_err_advise(
            BP_FAIL(file->writing ? BP_ERR_IO : BP_ERR_FORMAT, "h5.failed", "%s: HDF5: %s: at %s",
                    what, summary.text[0] != '\0' ? summary.text : "no reason given", file->path),
            BP_H5_REMEDY);
    if (file->writing && file->failed == BP_OK) { /* later reports of HDF5 are meaningless */
        file->failed = err;
        file->failure = bp_strdup(bp_err_message());
    }
    return err;
}

/* ---- files ---- */

static void free_file(bp_h5 **file)
{
    bp_free((*file)->path);
    bp_free((*file)->real_path);
    bp_free((*file)->failure);
    bp_free(*file);
    *file = NULL;
}

/* Written files reserve space for the user block, and are bound to format 1.8; foreign files may
 * have any. Closing a file also closes its open objects. */
static hid_t open_id(const char *path, bool writing)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    hid_t id = H5I_INVALID_HID;

    if (H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0) {
        if (!writing)
            id = H5Fopen(path, H5F_ACC_RDONLY, access);
        else if (H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
                 H5Pset_userblock(creation, BP_USER_BLOCK_BYTES) >= 0 &&
                 H5Pset_obj_track_times(creation, 0) >= 0)
            id = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    }
    bp_h5_release(creation);
    bp_h5_release(access);
    return id;
}

static bp_err open_as(bp_h5 **out, const char *real_path, const char *path, bool writing)
{
    bp_h5 *file = bp_alloc("io.h5", 1, sizeof *file);
    bp_err err = BP_OK;

    file->writing = writing;
    file->path = bp_strdup(path);
    file->real_path = bp_strdup(real_path);
    bp_h5_lock();
    bp_h5_forget();
    file->id = open_id(real_path, writing);
    if (file->id < 0)
        err = bp_h5_fail(file, writing ? "can't create" : "can't open", NULL);
    bp_h5_unlock();
    if (err != BP_OK)
        free_file(&file);
    *out = file;
    return err;
}

bp_err bp_h5_create(bp_h5 **out, const char *path)
{
    return open_as(out, path, path, true);
}

bp_err bp_h5_create_as(bp_h5 **out, const char *real_path, const char *path)
{
    return open_as(out, real_path, path, true);
}

bp_err bp_h5_open(bp_h5 **out, const char *path)
{
    return open_as(out, path, path, false);
}

bp_err bp_h5_open_kind(bp_h5 **out, const char *path, const char *kind, int version)
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path);

    *out = NULL;
    if (err == BP_OK)
        err = bp_user_block_expect(&block, kind, version, path);
    return err == BP_OK ? bp_h5_open(out, path) : err;
}

bp_err bp_h5_open_fd(bp_h5 **out, int fd, const char *path)
{
    char real_path[48];

    snprintf(real_path, sizeof real_path, "/proc/self/fd/%d", fd);
    return open_as(out, bp_path_exists(real_path) ? real_path : path, path, false);
}

bp_err bp_h5_close(bp_h5 **file_at)
{
    bp_h5 *file = *file_at;
    bp_err err;

    if (!file)
        return BP_OK;
    bp_h5_lock();
    if (H5Fclose(file->id) < 0)
        (void)bp_h5_fail(file, "can't close", NULL);
    bp_h5_forget();
    bp_h5_unlock();
    err = bp_h5_sound(file);
    if (err == BP_OK && file->writing) {
        int fd = open(file->real_path, O_RDONLY | O_CLOEXEC);

        if (fd < 0 || fsync(fd) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't sync", file->path);
        if (fd >= 0)
            (void)close(fd); /* fsync reports any failure */
    }
    free_file(file_at);
    return err;
}

void bp_h5_drop(bp_h5 **file)
{
    if (!*file)
        return;
    bp_h5_lock();
    (void)H5Fclose((*file)->id); /* discarded: failure to close does not matter */
    bp_h5_forget();
    bp_h5_unlock();
    free_file(file);
}

const char *bp_h5_path(const bp_h5 *file)
{
    return file->path;
}
