/* The lock of a run folder: RUN/lock/owner-NNNNNN, numbered from 1. The highest number is the
 * owner, and its file says whether the lock was released. run_lock_record.c decides what to do
 * next; this file does it.
 *
 * To take the lock is to create the next number, which link(2) allows to only one process, also on
 * NFS and Lustre. So no process removes a lock that another has just taken. The highest file stays
 * when its owner exits, so that numbers only grow. A slow challenger may create a lower number, so
 * it then checks that its number is the highest. An owner whose number is no longer the highest has
 * lost the run: it checks before every commit and every line of a journal, and its thread checks at
 * every heartbeat. beat-NNNNNN is a counter that this thread increments, for processes that can't
 * query the owner's host. */
#include "run/lock/run_lock.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/thread.h"
#include "run/lock/run_lock_record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCH_SECONDS        60.0
#define HEARTBEATS_PER_WATCH 6
#define OWNER_LIMIT          65536
#define RESERVED_BYTES       65536

struct run_lock {
    char *folder; /* RUN/lock */
    run_owner self;
    lock_record lock_record;
    double heartbeat_seconds;
    atomic_bool lost; /* for certain, not because the disk can't be read */
    pthread_t heartbeat_thread;
    pthread_mutex_t mutex; /* protects the members below */
    pthread_cond_t wake;
    bool ends;
};

static char *member_path(const char *folder, const char *kind, int64_t epoch)
{
    return bp_sprintf("%s/%s-%06lld", folder, kind, (long long)epoch);
}

/* Bytes of the run folder's path in lock->folder. */
static int run_dir_bytes(const run_lock *lock)
{
    return (int)(bp_path_base(lock->folder) - lock->folder - 1);
}

#define REMOVE_LOCK "when no job runs in it, remove the folder 'lock'"

static bp_err highest_epoch(const char *folder, int64_t *epoch)
{
    char **names;
    int64_t count;
    bp_err err = bp_dir_list(folder, &names, &count);

    *epoch = 0;
    for (int64_t k = 0; k < count; k++)
        if (lock_record_number_of(names[k]) > *epoch)
            *epoch = lock_record_number_of(names[k]);
    if (*epoch > LOCK_RECORD_NUMBER_MAX)
        err = BP_FAIL(BP_ERR_FORMAT, "lock.damaged",
                      "the lock of the run folder is damaged, it has a number that no job takes: "
                      "in %s; " REMOVE_LOCK,
                      folder);
    bp_names_free(&names, count);
    return err;
}

/* ---- heartbeat ---- */

/* Written in place, so that a full disk does not stop it, and closed, so that other hosts see it.
 */
static bp_err write_heartbeat(const char *path, int64_t count)
{
    char text[24];
    int fd, bytes = snprintf(text, sizeof text, "%020lld\n", (long long)count);
    bp_err err = bp_plain_open(path, O_WRONLY | O_CREAT, &fd);

    if (err != BP_OK)
        return err;
    if (bp_pwrite_all(fd, text, (size_t)bytes, 0) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    else
        (void)fsync(fd); /* if it fails, another heartbeat follows */
    (void)close(fd);
    return err;
}

static void *heartbeat_loop(void *argument)
{
    run_lock *lock = argument;
    char *path = member_path(lock->folder, "beat", lock->self.epoch);
    bool warned = false;

    (void)pthread_mutex_lock(&lock->mutex);
    for (int64_t count = 1; !lock->ends; count++) {
        double end;

        (void)pthread_mutex_unlock(&lock->mutex);
        if (run_lock_is_own(lock) && write_heartbeat(path, count) != BP_OK && !warned) {
            bp_warn_failure(
                "hosts that can't ask this one will take the run folder over, as the lock does "
                "not beat: %s",
                bp_err_text());
            warned = true;
        }
        end = bp_clock_now() + lock->heartbeat_seconds;
        (void)pthread_mutex_lock(&lock->mutex);
        while (!lock->ends && bp_cond_wait_until(&lock->wake, &lock->mutex, end))
            ;
    }
    (void)pthread_mutex_unlock(&lock->mutex);
    bp_free(path);
    return NULL;
}

/* ---- the current owner ---- */

static bp_err read_owner(const char *folder, int64_t epoch, run_owner *out)
{
    char *path = member_path(folder, "owner", epoch);
    json_t *value = NULL;
    bp_err err = bp_json_load_plain(&value, path, OWNER_LIMIT);

    if (err == BP_OK)
        err = run_owner_parse(out, value, path);
    if (err == BP_ERR_FORMAT)
        err =
            bp_err_advise(bp_err_prefix(err, "the lock of the run folder is damaged"), REMOVE_LOCK);
    json_decref(value);
    bp_free(path);
    return err;
}

static void read_heartbeat(const char *folder, int64_t epoch, char out[LOCK_RECORD_HEARTBEAT_BYTES])
{
    char *path = member_path(folder, "beat", epoch), *text = NULL;
    size_t bytes;

    out[0] = '\0';
    if (bp_plain_read(path, LOCK_RECORD_HEARTBEAT_BYTES - 1, &text, &bytes) == BP_OK)
        (void)snprintf(out, LOCK_RECORD_HEARTBEAT_BYTES, "%s", text);
    bp_free(text);
    bp_free(path);
}

bp_err run_lock_read(const char *run_dir, run_owner *out, char **heartbeat)
{
    const bp_path folder = bp_path_in(run_dir, "lock");
    int64_t epoch = 0;
    bp_err err = highest_epoch(folder.text, &epoch);

    *heartbeat = NULL;
    if (err == BP_OK && epoch == 0)
        err = BP_FAIL(BP_ERR_INPUT, "lock.none", "nobody has ever held the run folder: at %s",
                      run_dir);
    if (err == BP_OK)
        err = read_owner(folder.text, epoch, out);
    if (err == BP_OK)
        *heartbeat = member_path(folder.text, "beat", epoch);
    return err;
}

/* Reads the counter of an unreachable owner once, timed by this machine's clock. */
static void watch(run_lock *lock, const run_owner *owner)
{
    lock_record *self = &lock->lock_record;
    char heartbeat[LOCK_RECORD_HEARTBEAT_BYTES], who[512];
    int64_t highest;
    double now;

    if (self->watching) {
        bp_clock_sleep(self->watch_seconds < 1.0 ? self->watch_seconds / 10 : 1.0);
    } else {
        run_owner_text(who, sizeof who, owner);
        BP_WARN("lock.owner_unreachable",
                "the run folder is locked by %s, which can't be asked from here: at %s; watching "
                "it for %.0f s",
                who, lock->folder, self->watch_seconds);
    }
    now = bp_clock_now();
    read_heartbeat(lock->folder, self->owner, heartbeat);
    if (highest_epoch(lock->folder, &highest) != BP_OK)
        highest = 0;
    lock_record_watched(self, now, heartbeat, highest);
}

/* ---- taking ---- */

/* Create `path` with the content of `from` unless another process does: returns BP_OK, and *won
 * whether this one did. After a lost answer NFS retries and returns EEXIST although the link was
 * made: the link count decides. The process that takes a number removes the drafts for it: a draft
 * that vanished has lost. */
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

/* Its name has the number from the start, so that an owner that sweeps can tell whether it is
 * stale. */
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

/* Create the number self->epoch for `self`; *won is false if another process did. */
static bp_err claim(const char *folder, const run_owner *self, bool *won)
{
    long long number = (long long)self->epoch;
    char *path = bp_sprintf("%s/owner-%06lld", folder, number);
    char *draft = bp_sprintf("%s/claim-%06lld-%s", folder, number, self->token);
    bp_err err = write_draft(draft, self);

    *won = false;
    if (err == BP_OK)
        err = link_new(draft, path, won);
    (void)unlink(draft); /* gone already where it was renamed */
    if (err == BP_OK && *won)
        err = bp_path_sync(folder);
    bp_free(draft);
    bp_free(path);
    return err;
}

static void remove_number(const run_lock *lock)
{
    char *path = member_path(lock->folder, "owner", lock->self.epoch);

    (void)unlink(path); /* a number below others is without effect */
    bp_free(path);
}

/* Finds the highest number; to confirm ours, it is read from the server. Having just changed the
 * folder is not enough: this process may have slept since, and another process here may have listed
 * the folder. */
static bp_err list_numbers(run_lock *lock)
{
    bool confirms = lock->lock_record.step == LOCK_RECORD_CONFIRM;
    int64_t highest;
    bp_err err;

    if (confirms)
        bp_dir_refresh(lock->folder);
    err = highest_epoch(lock->folder, &highest);
    if (err == BP_OK)
        lock_record_listed(&lock->lock_record, highest);
    else if (confirms)
        remove_number(lock);
    return err;
}

static bp_err check_owner(run_lock *lock, run_owner *owner)
{
    static const lock_record_answer ANSWERS[] = {[OWNER_ALIVE] = LOCK_RECORD_ALIVE,
                                                 [OWNER_DEAD] = LOCK_RECORD_DEAD,
                                                 [OWNER_UNKNOWN] = LOCK_RECORD_UNKNOWN};
    bp_err err = read_owner(lock->folder, lock->lock_record.owner, owner);

    if (err == BP_OK)
        lock_record_answered(&lock->lock_record, ANSWERS[run_owner_check(owner, &lock->self)]);
    if (err == BP_ERR_INPUT) { /* its follower has just removed it */
        lock_record_answered(&lock->lock_record, LOCK_RECORD_GONE);
        err = BP_OK;
    }
    return err;
}

static bp_err contend(run_lock *lock)
{
    lock_record *record = &lock->lock_record;
    run_owner owner = {.epoch = 0};
    bool won;
    char who[512];
    bp_err err = BP_OK;

    while (err == BP_OK && !lock_record_is_over(record)) {
        switch (record->step) {
        case LOCK_RECORD_LIST:
        case LOCK_RECORD_CONFIRM:
            err = list_numbers(lock);
            break;
        case LOCK_RECORD_ASK:
            err = check_owner(lock, &owner);
            break;
        case LOCK_RECORD_WATCH:
            watch(lock, &owner);
            break;
        case LOCK_RECORD_LINK:
            lock->self.epoch = record->number;
            err = claim(lock->folder, &lock->self, &won);
            if (err == BP_OK)
                lock_record_linked(record, won);
            break;
        default:
            remove_number(lock);
            lock_record_yielded(record);
        }
    }
    if (err == BP_OK && record->step == LOCK_RECORD_HELD) {
        run_owner_text(who, sizeof who, &owner);
        err = BP_FAIL(BP_ERR_BUSY, "lock.held",
                      "the run folder is held by another running job (%s): at %.*s; wait for it, "
                      "or use another run.dir",
                      who, run_dir_bytes(lock), lock->folder);
    }
    if (err == BP_OK && record->step == LOCK_RECORD_CROWDED)
        err = BP_FAIL(BP_ERR_BUSY, "lock.contended",
                      "other jobs take the lock of the run folder again and again: at %s",
                      lock->folder);
    return err;
}

/* ---- space reserved for the exit state ---- */

/* 64 KiB of the disk, for what is written when the job ends: bytes that no file system can make
 * smaller. */
static bp_err reserve_space(const char *folder)
{
    uint64_t noise[1024], state = 1;
    const bp_path path = bp_path_in(folder, "room");
    int fd = -1;
    bp_err err = bp_plain_open(path.text, O_WRONLY | O_CREAT | O_TRUNC, &fd);

    for (int64_t at = 0; err == BP_OK && at < RESERVED_BYTES; at += (int64_t)sizeof noise) {
        for (size_t k = 0; k < sizeof noise / sizeof noise[0]; k++)
            noise[k] = state =
                state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (bp_pwrite_all(fd, noise, sizeof noise, at) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't write", path.text);
    }
    if (err == BP_OK && fsync(fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", path.text);
    if (fd >= 0)
        (void)close(fd);
    return err;
}

void run_lock_free_space(const run_lock *lock)
{
    (void)unlink(bp_path_in(lock->folder, "room").text);
}

/* ---- files left by others ---- */

/* Lists the names, then checks that the run is still ours, then removes them: files of a successor
 * are never among them, however long this process sleeps in between. `number`: of the lock whose
 * folder it is; 0 for the run folder. */
static void sweep(run_lock *lock, const char *folder, int64_t number)
{
    char **names = NULL;
    int64_t count = 0;
    bool ours;

    (void)bp_dir_list(folder, &names, &count);
    ours = count > 0 && run_lock_is_own(lock);
    for (int64_t k = 0; ours && k < count; k++) {
        if (number > 0 ? lock_record_is_litter(names[k], number) : bp_is_temporary_name(names[k]))
            (void)unlink(bp_path_in(folder, names[k]).text); /* at worst it stays */
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
    bp_err err;

    if (watch_seconds <= 0)
        watch_seconds = WATCH_SECONDS;
    lock->heartbeat_seconds = watch_seconds / HEARTBEATS_PER_WATCH;
    lock->folder = bp_path_join(run_dir, "lock");
    run_owner_self(&lock->self);
    err = bp_dir_make(lock->folder);
    lock_record_begin(&lock->lock_record, watch_seconds);
    if (err == BP_OK)
        err = contend(lock);
    if (err == BP_OK) {
        sweep(lock, lock->folder, lock->self.epoch);
        sweep(lock, run_dir, 0);
        err = bp_fault("lock.acquired")
                  ? bp_fail_errno(BP_ERR_IO, "can't keep the lock", lock->folder)
                  : reserve_space(lock->folder);
    }
    if (err == BP_OK) {
        BP_CHECK(pthread_mutex_init(&lock->mutex, NULL) == 0);
        bp_cond_init(&lock->wake);
        err = bp_thread_start(&lock->heartbeat_thread, "run lock", heartbeat_loop, lock);
    }
    if (err != BP_OK)
        lock_free(&lock);
    *out = lock;
    return err;
}

static lock_record_sight sight_of(bp_err err)
{
    return err == BP_OK          ? LOCK_RECORD_SEEN
           : err == BP_ERR_INPUT ? LOCK_RECORD_MISSING
                                 : LOCK_RECORD_UNREADABLE;
}

/* Reports why the lock is lost for good: another job, or a folder that its user moved away. */
static bp_err say_lost(const run_lock *lock)
{
    char *run_dir = bp_sprintf("%.*s", run_dir_bytes(lock), lock->folder);
    int64_t highest = 0;
    bp_err err;

    if (!bp_path_is_dir(run_dir))
        err = BP_FAIL(BP_ERR_IO, "run.folder_gone",
                      "the run folder was removed or renamed while its job ran: at %s; put it "
                      "back, and the same command goes on",
                      run_dir);
    else if (highest_epoch(lock->folder, &highest) != BP_OK || highest < lock->self.epoch)
        err = BP_FAIL(BP_ERR_BUSY, "lock.removed",
                      "the lock of the run folder was removed while its job ran, so that another "
                      "may begin: at %s; the same command goes on when none runs",
                      lock->folder);
    else
        err = BP_FAIL(BP_ERR_BUSY, "lock.lost",
                      "another job took the run over: at %s; let that one go on, or stop it "
                      "first",
                      run_dir);
    bp_free(run_dir);
    return err;
}

bp_err run_lock_check(run_lock *lock)
{
    run_owner owner;
    int64_t highest = 0;
    lock_record_sight listing, file = LOCK_RECORD_UNREADABLE;
    bp_err err;

    if (run_lock_is_lost(lock))
        return say_lost(lock);
    bp_dir_refresh(lock->folder);
    err = highest_epoch(lock->folder, &highest);
    listing = sight_of(err);
    if (listing == LOCK_RECORD_SEEN && highest == lock->self.epoch) {
        err = read_owner(lock->folder, highest, &owner);
        file = sight_of(err);
    }
    if (file == LOCK_RECORD_SEEN && strcmp(owner.token, lock->self.token) != 0)
        file = LOCK_RECORD_ANOTHERS;
    if (lock_record_is_own(lock->self.epoch, listing, highest, file) == LOCK_RECORD_LOST) {
        atomic_store(&lock->lost, true);
        err = say_lost(lock);
    }
    return err;
}

bool run_lock_is_own(run_lock *lock)
{
    return run_lock_check(lock) == BP_OK;
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

    if (!lock)
        return BP_OK;
    (void)pthread_mutex_lock(&lock->mutex);
    lock->ends = true;
    (void)pthread_cond_signal(&lock->wake);
    (void)pthread_mutex_unlock(&lock->mutex);
    BP_CHECK(pthread_join(lock->heartbeat_thread, NULL) == 0);
    if (run_lock_is_own(lock))
        run_lock_free_space(lock);
    lock->self.released = true;
    path = member_path(lock->folder, "owner", lock->self.epoch);
    value = run_owner_json(&lock->self);
    if (run_lock_is_own(lock))
        err = bp_json_save(path, value);
    if (err != BP_OK && !run_lock_is_own(lock))
        err = BP_OK; /* it is another job's by now */
    json_decref(value);
    bp_free(path);
    lock_free(out);
    return err;
}
