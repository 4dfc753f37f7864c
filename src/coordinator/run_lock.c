/* The lock of a run folder: RUN/lock/owner-NNNNNN, numbered from 1. The highest number is the
 * owner, and says whether it let go.
 *
 * To take the lock is to create the next number, which link(2) does for one process alone, on NFS
 * and Lustre too; so nobody ever removes a lock that another has just taken. The highest file stays
 * when its owner leaves, so that numbers only grow; and as a challenger may be slow, who has
 * created a number looks whether it is the highest. An owner whose number is no longer the highest
 * has lost the run: it looks before every commit, and its thread at every beat. beat-NNNNNN is a
 * counter that this thread raises, for those who can't ask the owner's host. */
#include "coordinator/run_lock_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCH_SECONDS   60.0
#define BEATS_PER_WATCH 6
#define ATTEMPTS        100
#define HOLDER_LIMIT    65536

struct run_lock {
    char *folder; /* RUN/lock */
    run_holder self;
    double beat_seconds;
    atomic_bool lost; /* certainly: no doubt of a disk that can't be read */
    pthread_t beater;
    bool beats;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t wake;
    bool ends;
};

static char *member_path(const char *folder, const char *kind, int64_t epoch)
{
    return bp_sprintf("%s/%s-%06lld", folder, kind, (long long)epoch);
}

static bp_err no_memory(const char *folder)
{
    return bp_fail_memory("a file name", 1, strlen(folder));
}

/* The number of "owner-NNNNNN"; 0: another name. */
static int64_t epoch_of(const char *name)
{
    char *end;
    int64_t epoch;

    if (strncmp(name, "owner-", 6) != 0 || strspn(name + 6, "0123456789") < 6)
        return 0;
    epoch = strtoll(name + 6, &end, 10);
    return *end == '\0' ? epoch : 0;
}

static bp_err highest_epoch(const char *folder, int64_t *epoch)
{
    char **names;
    int64_t count;
    bp_err err = bp_dir_list(folder, &names, &count);

    *epoch = 0;
    for (int64_t k = 0; k < count; k++)
        if (epoch_of(names[k]) > *epoch)
            *epoch = epoch_of(names[k]);
    bp_names_free(&names, count);
    return err;
}

/* ---- beating ---- */

/* Written in place, so that a full disk does not stop it, and closed, so that other hosts see it.
 */
static void beat(const char *path, int64_t count)
{
    char text[24];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int bytes = snprintf(text, sizeof text, "%020lld\n", (long long)count);

    if (fd < 0)
        return;
    if (pwrite(fd, text, (size_t)bytes, 0) == bytes)
        (void)fsync(fd); /* a beat that fails is followed by another */
    (void)close(fd);
}

static void add_seconds(struct timespec *time, double seconds)
{
    int64_t nanoseconds = time->tv_nsec + (int64_t)(seconds * 1e9);

    time->tv_sec += (time_t)(nanoseconds / 1000000000);
    time->tv_nsec = (long)(nanoseconds % 1000000000);
}

static void *beat_on(void *argument)
{
    run_lock *lock = argument;
    char *path = member_path(lock->folder, "beat", lock->self.epoch);

    (void)pthread_mutex_lock(&lock->mutex);
    for (int64_t count = 1; path != NULL && !lock->ends; count++) {
        struct timespec until;

        (void)pthread_mutex_unlock(&lock->mutex);
        if (run_lock_is_ours(lock))
            beat(path, count);
        BP_ASSERT(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
        add_seconds(&until, lock->beat_seconds);
        (void)pthread_mutex_lock(&lock->mutex);
        while (!lock->ends &&
               pthread_cond_timedwait(&lock->wake, &lock->mutex, &until) != ETIMEDOUT)
            ;
    }
    (void)pthread_mutex_unlock(&lock->mutex);
    bp_free(path);
    return NULL;
}

static bp_err start_beating(run_lock *lock)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    int status;

    BP_ASSERT(pthread_mutex_init(&lock->mutex, NULL) == 0);
    BP_ASSERT(pthread_condattr_init(&attributes) == 0);
    BP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    BP_ASSERT(pthread_cond_init(&lock->wake, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    (void)sigfillset(&all); /* signals are the main thread's */
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(&lock->beater, NULL, beat_on, lock);
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    lock->beats = status == 0;
    return lock->beats ? BP_OK
                       : BP_FAIL(BP_ERR_SYSTEM, "no thread can be started: %s", strerror(status));
}

static void stop_beating(run_lock *lock)
{
    if (!lock->beats)
        return;
    (void)pthread_mutex_lock(&lock->mutex);
    lock->ends = true;
    (void)pthread_cond_signal(&lock->wake);
    (void)pthread_mutex_unlock(&lock->mutex);
    BP_ASSERT(pthread_join(lock->beater, NULL) == 0);
    lock->beats = false;
}

/* ---- the holder there is ---- */

static bp_err read_holder(const char *folder, int64_t epoch, run_holder *out)
{
    char *path = member_path(folder, "owner", epoch);
    json_t *value = NULL;
    bp_err err = path == NULL ? no_memory(folder) : bp_json_load(&value, path, HOLDER_LIMIT);

    if (err == BP_OK)
        err = run_holder_parse(out, value, path);
    if (err == BP_ERR_FORMAT)
        err = bp_err_prefix(err, "the lock of the run folder is damaged (when no job runs in it, "
                                 "remove the folder 'lock')");
    json_decref(value);
    bp_free(path);
    return err;
}

static void read_beat(const char *folder, int64_t epoch, char out[32])
{
    char *path = member_path(folder, "beat", epoch), *text = NULL;
    size_t bytes;

    out[0] = '\0';
    if (path != NULL && bp_file_read(path, 31, &text, &bytes) == BP_OK)
        (void)snprintf(out, 32, "%s", text);
    bp_free(text);
    bp_free(path);
}

bp_err run_lock_look(const char *run_dir, run_holder *out, char **beat)
{
    char *folder = bp_path_join(run_dir, "lock");
    int64_t epoch = 0;
    bp_err err = folder == NULL ? no_memory(run_dir) : highest_epoch(folder, &epoch);

    *beat = NULL;
    if (err == BP_OK && epoch == 0)
        err = BP_FAIL(BP_ERR_INPUT, "nobody has ever held the run folder: at %s", run_dir);
    if (err == BP_OK)
        err = read_holder(folder, epoch, out);
    if (err == BP_OK && (*beat = member_path(folder, "beat", epoch)) == NULL)
        err = no_memory(run_dir);
    bp_free(folder);
    return err;
}

/* Does the counter of a holder that can't be asked move? By this machine's monotonic clock alone.
 */
static run_verdict watch(const char *folder, const run_holder *holder, double seconds)
{
    char first[32], now[32], who[512];
    double end = bp_clock_now() + seconds;

    run_holder_text(who, sizeof who, holder);
    bp_warn("the run folder is locked by %s, which can't be asked from here: at %s; watching it "
            "for %.0f s",
            who, folder, seconds);
    read_beat(folder, holder->epoch, first);
    while (bp_clock_now() < end) {
        int64_t epoch;

        bp_clock_sleep(seconds < 1.0 ? seconds / 10 : 1.0);
        read_beat(folder, holder->epoch, now);
        if (strcmp(first, now) != 0)
            return HOLDER_ALIVE;
        if (highest_epoch(folder, &epoch) == BP_OK && epoch != holder->epoch)
            return HOLDER_UNKNOWN; /* another took it meanwhile: look again */
    }
    return HOLDER_DEAD;
}

static bp_err refuse(const char *folder, const run_holder *holder)
{
    char who[512];

    run_holder_text(who, sizeof who, holder);
    return BP_FAIL(
        BP_ERR_BUSY,
        "the run folder is held by another running job (%s): at %.*s; wait for it, or use another "
        "run.dir",
        who, (int)(bp_path_base(folder) - folder - 1), folder);
}

/* ---- taking ---- */

/* Create `path` with the content of `from` if nobody else does: BP_OK and *won, or BP_OK and not.
 * An answer that NFS lost and asked for again says EEXIST though the link was made: the count of
 * links knows. */
static bp_err link_new(const char *from, const char *path, bool *won)
{
    struct stat status;

    *won = link(from, path) == 0;
    if (!*won && errno == EEXIST)
        *won = stat(from, &status) == 0 && status.st_nlink == 2;
    if (*won || errno == EEXIST)
        return BP_OK;
    if (errno == EPERM || errno == ENOSYS ||
        errno == EOPNOTSUPP) { /* a file system without hard links */
        *won = renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
        if (*won || errno == EEXIST)
            return BP_OK;
    }
    return bp_fail_create("can't take the lock", path);
}

/* A challenger may have slept between looking and linking while others took later numbers and
 * removed this one: a number is won if it is the highest after all. The listing is fresh on NFS
 * too, since this process has just changed the folder. */
static bp_err keep_highest(run_lock *lock, const char *path, bool *won)
{
    int64_t highest;
    bp_err err = highest_epoch(lock->folder, &highest);

    *won = err == BP_OK && highest == lock->self.epoch;
    if (!*won)
        (void)unlink(path); /* a number that others are beyond counts for nobody */
    return err;
}

/* Who takes the lock sweeps the drafts of all others away: one that vanished has lost. */
static bool others_were_first(const run_lock *lock, int64_t epoch)
{
    int64_t highest;

    return highest_epoch(lock->folder, &highest) == BP_OK && highest >= epoch;
}

static bp_err claim(run_lock *lock, int64_t epoch, bool *won)
{
    char *draft, *path = member_path(lock->folder, "owner", epoch);
    json_t *value;
    bp_err err = BP_OK;

    lock->self.epoch = epoch;
    value = run_holder_json(&lock->self);
    draft = bp_sprintf("%s/claim-%s", lock->folder, lock->self.token);
    if (draft == NULL || path == NULL || value == NULL)
        err = no_memory(lock->folder);
    if (err == BP_OK)
        err = bp_json_save(draft, value);
    if (err == BP_OK)
        err = link_new(draft, path, won);
    if (draft != NULL)
        (void)unlink(draft); /* gone already where it was renamed */
    if (err == BP_ERR_CREATE && others_were_first(lock, epoch))
        err = BP_OK;
    if (err == BP_OK && *won)
        err = bp_path_sync(lock->folder);
    if (err == BP_OK && *won)
        err = keep_highest(lock, path, won);
    json_decref(value);
    bp_free(draft);
    bp_free(path);
    return err;
}

/* One attempt: *won, or another attempt is worth while, or an error. */
static bp_err try_once(run_lock *lock, double seconds, bool *won)
{
    run_holder holder;
    run_verdict verdict = HOLDER_DEAD;
    int64_t epoch;
    bp_err err = highest_epoch(lock->folder, &epoch);

    *won = false;
    if (err == BP_OK && epoch > 0) {
        err = read_holder(lock->folder, epoch, &holder);
        if (err == BP_ERR_INPUT)
            return BP_OK; /* its follower has just removed it */
        if (err == BP_OK)
            verdict = run_holder_judge(&holder, &lock->self);
        if (err == BP_OK && verdict == HOLDER_UNKNOWN)
            verdict = watch(lock->folder, &holder, seconds);
        if (err == BP_OK && verdict == HOLDER_ALIVE)
            err = refuse(lock->folder, &holder);
    }
    if (err != BP_OK || verdict == HOLDER_UNKNOWN)
        return err;
    return claim(lock, epoch + 1, won);
}

/* What former owners left, but for the last one's: a challenger that still looks at it is to find
 * the number after it taken. */
static bool is_former(const run_lock *lock, const char *name)
{
    const char *number = strchr(name, '-');
    int64_t epoch = number == NULL ? 0 : strtoll(number + 1, NULL, 10);

    return (strncmp(name, "owner-", 6) == 0 || strncmp(name, "beat-", 5) == 0) && epoch > 0 &&
           epoch < lock->self.epoch - 1;
}

/* Drafts of challengers that were killed, or will be refused. */
static bool is_draft(const run_lock *lock, const char *name)
{
    (void)lock;
    return strncmp(name, "claim-", 6) == 0 || bp_is_temporary_name(name);
}

static bool is_cut_write(const run_lock *lock, const char *name)
{
    (void)lock;
    return bp_is_temporary_name(name);
}

static void sweep(const run_lock *lock, const char *folder,
                  bool (*is_litter)(const run_lock *lock, const char *name))
{
    char **names;
    int64_t count;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        return;
    for (int64_t k = 0; k < count; k++) {
        char *path = is_litter(lock, names[k]) ? bp_path_join(folder, names[k]) : NULL;

        if (path != NULL)
            (void)unlink(path); /* it stays litter at worst */
        bp_free(path);
    }
    bp_names_free(&names, count);
}

static void lock_free(run_lock **lock)
{
    bp_free((*lock)->folder);
    bp_free(*lock);
    *lock = NULL;
}

bp_err run_lock_take(run_lock **out, const char *run_dir, double watch_seconds)
{
    run_lock *lock = bp_alloc("run.lock", 1, sizeof *lock);
    bool won = false;
    bp_err err = BP_OK;

    *out = NULL;
    if (lock == NULL)
        return bp_fail_memory("a lock", 1, sizeof *lock);
    if (watch_seconds <= 0)
        watch_seconds = WATCH_SECONDS;
    lock->beat_seconds = watch_seconds / BEATS_PER_WATCH;
    lock->folder = bp_path_join(run_dir, "lock");
    if (lock->folder == NULL)
        err = no_memory(run_dir);
    run_holder_self(&lock->self);
    if (err == BP_OK)
        err = bp_dir_make(lock->folder);
    for (int k = 0; k < ATTEMPTS && err == BP_OK && !won; k++)
        err = try_once(lock, watch_seconds, &won);
    if (err == BP_OK && !won)
        err = BP_FAIL(BP_ERR_BUSY,
                      "other jobs take the lock of the run folder again and again: at %s",
                      lock->folder);
    if (err == BP_OK) {
        sweep(lock, lock->folder, is_former);
        sweep(lock, lock->folder, is_draft);
        sweep(lock, run_dir, is_cut_write);
        err = bp_fault("lock.acquired")
                  ? bp_fail_errno(BP_ERR_IO, "can't keep the lock", lock->folder)
                  : start_beating(lock);
    }
    if (err != BP_OK)
        lock_free(&lock);
    *out = lock;
    return err;
}

/* What can't be read for a moment is not lost by that, but is not known to be ours either. */
bool run_lock_is_ours(run_lock *lock)
{
    run_holder holder;
    int64_t epoch = 0;
    bool ours = false;
    bp_err err;

    if (run_lock_is_lost(lock))
        return false;
    err = highest_epoch(lock->folder, &epoch);
    if (err == BP_OK && epoch == lock->self.epoch) {
        err = read_holder(lock->folder, epoch, &holder);
        ours = err == BP_OK && strcmp(holder.token, lock->self.token) == 0;
    }
    if (!ours && (err == BP_OK || err == BP_ERR_INPUT))
        atomic_store(&lock->lost, true);
    return ours;
}

bool run_lock_is_lost(const run_lock *lock)
{
    return atomic_load(&lock->lost);
}

bp_err run_lock_release(run_lock **out)
{
    run_lock *lock = *out;
    char *path;
    json_t *value;
    bp_err err = BP_OK;

    if (lock == NULL)
        return BP_OK;
    stop_beating(lock);
    lock->self.released = true;
    path = member_path(lock->folder, "owner", lock->self.epoch);
    value = run_holder_json(&lock->self);
    if (path == NULL || value == NULL)
        err = no_memory(lock->folder);
    else if (run_lock_is_ours(lock))
        err = bp_json_save(path, value);
    json_decref(value);
    bp_free(path);
    lock_free(out);
    return err;
}
