/* The lock of a run folder: RUN/lock/owner-NNNNNN, numbered from 1. The highest number is the
 * owner, and says whether it let go. What is done next, run_lock_record.c decides; here it is done,
 * on files.
 *
 * To take the lock is to create the next number, which link(2) does for one process alone, on NFS
 * and Lustre too; so nobody ever removes a lock that another has just taken. The highest file stays
 * when its owner leaves, so that numbers only grow; and as a challenger may be slow, who has
 * created a number looks whether it is the highest. An owner whose number is no longer the highest
 * has lost the run: it looks before every commit, before every line of a journal, and its thread at
 * every heartbeat. heartbeat-NNNNNN is a counter that this thread raises, for those who can't ask
 * the owner's host. */
#include "run/lock/run_lock_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "run/lock/run_lock_record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WATCH_SECONDS   60.0
#define BEATS_PER_WATCH 6
#define OWNER_LIMIT     65536

struct run_lock {
    char *folder; /* RUN/lock */
    run_owner self;
    lock_record lock_record;
    double heartbeat_seconds;
    atomic_bool lost; /* certainly: no doubt of a disk that can't be read */
    pthread_t beater;
    bool heartbeats;
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
        err = BP_FAIL(BP_ERR_FORMAT,
                      "the lock of the run folder is damaged, it has a number that no job takes: "
                      "in %s; " REMOVE_LOCK,
                      folder);
    bp_names_free(&names, count);
    return err;
}

/* ---- beating ---- */

/* Written in place, so that a full disk does not stop it, and closed, so that other hosts see it.
 */
static bp_err heartbeat(const char *path, int64_t count)
{
    char text[24];
    int fd, bytes = snprintf(text, sizeof text, "%020lld\n", (long long)count);
    bp_err err = bp_plain_open(path, O_WRONLY | O_CREAT, &fd);

    if (err != BP_OK)
        return err;
    if (bp_pwrite_all(fd, text, (size_t)bytes, 0) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    else
        (void)fsync(fd); /* a heartbeat that fails is followed by another */
    (void)close(fd);
    return err;
}

static void *heartbeat_on(void *argument)
{
    run_lock *lock = argument;
    char *path = member_path(lock->folder, "beat", lock->self.epoch);
    bool warned = false;

    (void)pthread_mutex_lock(&lock->mutex);
    for (int64_t count = 1; path != NULL && !lock->ends; count++) {
        double end;

        (void)pthread_mutex_unlock(&lock->mutex);
        if (run_lock_is_own(lock) && heartbeat(path, count) != BP_OK && !warned) {
            bp_warn("hosts that can't ask this one will take the run folder over, as the lock does "
                    "not beat: %s",
                    bp_err_message());
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

static bp_err start_beating(run_lock *lock)
{
    bp_err err;

    BP_CHECK(pthread_mutex_init(&lock->mutex, NULL) == 0);
    bp_cond_init(&lock->wake);
    err = bp_thread_start(&lock->beater, "run lock", heartbeat_on, lock);
    lock->heartbeats = err == BP_OK;
    return err;
}

static void stop_beating(run_lock *lock)
{
    if (!lock->heartbeats)
        return;
    (void)pthread_mutex_lock(&lock->mutex);
    lock->ends = true;
    (void)pthread_cond_signal(&lock->wake);
    (void)pthread_mutex_unlock(&lock->mutex);
    BP_CHECK(pthread_join(lock->beater, NULL) == 0);
    lock->heartbeats = false;
}

/* ---- the owner there is ---- */

static bp_err read_owner(const char *folder, int64_t epoch, run_owner *out)
{
    char *path = member_path(folder, "owner", epoch);
    json_t *value = NULL;
    bp_err err = path == NULL ? no_memory(folder) : bp_json_load_plain(&value, path, OWNER_LIMIT);

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
    if (path != NULL &&
        bp_plain_read(path, LOCK_RECORD_HEARTBEAT_BYTES - 1, &text, &bytes) == BP_OK)
        (void)snprintf(out, LOCK_RECORD_HEARTBEAT_BYTES, "%s", text);
    bp_free(text);
    bp_free(path);
}

bp_err run_lock_look(const char *run_dir, run_owner *out, char **heartbeat)
{
    char *folder = bp_path_join(run_dir, "lock");
    int64_t epoch = 0;
    bp_err err = folder == NULL ? no_memory(run_dir) : highest_epoch(folder, &epoch);

    *heartbeat = NULL;
    if (err == BP_OK && epoch == 0)
        err = BP_FAIL(BP_ERR_INPUT, "nobody has ever held the run folder: at %s", run_dir);
    if (err == BP_OK)
        err = read_owner(folder, epoch, out);
    if (err == BP_OK && (*heartbeat = member_path(folder, "beat", epoch)) == NULL)
        err = no_memory(run_dir);
    bp_free(folder);
    return err;
}

/* One look at the counter of a owner that can't be asked, by this machine's clock alone. */
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
        bp_warn("the run folder is locked by %s, which can't be asked from here: at %s; watching "
                "it for %.0f s",
                who, lock->folder, self->watch_seconds);
    }
    now = bp_clock_now();
    read_heartbeat(lock->folder, self->owner, heartbeat);
    if (highest_epoch(lock->folder, &highest) != BP_OK)
        highest = 0;
    lock_record_watched(self, now, heartbeat, highest);
}

static bp_err refuse(const char *folder, const run_owner *owner)
{
    char who[512];

    run_owner_text(who, sizeof who, owner);
    return BP_FAIL(
        BP_ERR_BUSY,
        "the run folder is held by another running job (%s): at %.*s; wait for it, or use another "
        "run.dir",
        who, (int)(bp_path_base(folder) - folder - 1), folder);
}

/* ---- taking ---- */

static bp_err make_number(run_lock *lock)
{
    bool won = false;
    bp_err err;

    lock->self.epoch = lock->lock_record.number;
    err = run_claim(lock->folder, &lock->self, &won);
    if (err == BP_OK)
        lock_record_linked(&lock->lock_record, won);
    return err;
}

static void remove_number(const run_lock *lock)
{
    char *path = member_path(lock->folder, "owner", lock->self.epoch);

    if (path != NULL)
        (void)unlink(path); /* a number that others are beyond counts for nobody */
    bp_free(path);
}

/* The highest number; when it is asked for to confirm ours, from the server. That this process has
 * just changed the folder is not enough: it may have slept since, and another one here have listed.
 */
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

static bp_err judge(run_lock *lock, run_owner *owner)
{
    static const lock_record_answer ANSWERS[] = {[OWNER_ALIVE] = LOCK_RECORD_ALIVE,
                                                 [OWNER_DEAD] = LOCK_RECORD_DEAD,
                                                 [OWNER_UNKNOWN] = LOCK_RECORD_UNKNOWN};
    bp_err err = read_owner(lock->folder, lock->lock_record.owner, owner);

    if (err == BP_OK)
        lock_record_judged(&lock->lock_record, ANSWERS[run_owner_judge(owner, &lock->self)]);
    if (err == BP_ERR_INPUT) { /* its follower has just removed it */
        lock_record_judged(&lock->lock_record, LOCK_RECORD_GONE);
        err = BP_OK;
    }
    return err;
}

static bp_err contend(run_lock *lock)
{
    run_owner owner = {.epoch = 0};
    bp_err err = BP_OK;

    while (err == BP_OK && !lock_record_is_over(&lock->lock_record)) {
        switch (lock->lock_record.step) {
        case LOCK_RECORD_LIST:
        case LOCK_RECORD_CONFIRM:
            err = list_numbers(lock);
            break;
        case LOCK_RECORD_ASK:
            err = judge(lock, &owner);
            break;
        case LOCK_RECORD_WATCH:
            watch(lock, &owner);
            break;
        case LOCK_RECORD_LINK:
            err = make_number(lock);
            break;
        default:
            remove_number(lock);
            lock_record_yielded(&lock->lock_record);
        }
    }
    if (err == BP_OK && lock->lock_record.step == LOCK_RECORD_HELD)
        err = refuse(lock->folder, &owner);
    if (err == BP_OK && lock->lock_record.step == LOCK_RECORD_CROWDED)
        err = BP_FAIL(BP_ERR_BUSY,
                      "other jobs take the lock of the run folder again and again: at %s",
                      lock->folder);
    return err;
}

/* ---- what others left ---- */

static bool is_lock_litter(const run_lock *lock, const char *name)
{
    return lock_record_is_litter(name, lock->self.epoch);
}

static bool is_cut_write(const run_lock *lock, const char *name)
{
    (void)lock;
    return bp_is_temporary_name(name);
}

/* First the names, then whether the run is still ours, then away with them: what a follower has
 * made is none of them, however long this process sleeps in between. */
static void sweep(run_lock *lock, const char *folder,
                  bool (*is_litter)(const run_lock *lock, const char *name))
{
    char **names;
    int64_t count;
    bool ours;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        return;
    ours = run_lock_is_own(lock);
    for (int64_t k = 0; ours && k < count; k++) {
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
    bp_err err = BP_OK;

    *out = NULL;
    if (watch_seconds <= 0)
        watch_seconds = WATCH_SECONDS;
    lock->heartbeat_seconds = watch_seconds / BEATS_PER_WATCH;
    lock->folder = bp_path_join(run_dir, "lock");
    run_owner_self(&lock->self);
    err = bp_dir_make(lock->folder);
    lock_record_begin(&lock->lock_record, watch_seconds);
    if (err == BP_OK)
        err = contend(lock);
    if (err == BP_OK) {
        sweep(lock, lock->folder, is_lock_litter);
        sweep(lock, run_dir, is_cut_write);
        err = bp_fault("lock.acquired")
                  ? bp_fail_errno(BP_ERR_IO, "can't keep the lock", lock->folder)
                  : run_room_keep(lock->folder);
        if (err == BP_OK)
            err = start_beating(lock);
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

/* Lost for good: why? A folder that its user has moved away is no other job. */
static bp_err say_lost(const run_lock *lock)
{
    int run_bytes = (int)(bp_path_base(lock->folder) - lock->folder - 1);
    char *run_dir = bp_sprintf("%.*s", run_bytes, lock->folder);
    bool there = run_dir == NULL || bp_path_is_dir(run_dir);
    int64_t highest = 0;
    bp_err err = BP_ERR_BUSY;

    if (!there)
        err = BP_FAIL(BP_ERR_IO,
                      "the run folder was removed or renamed while its job ran: at %s; put it "
                      "back, and the same command goes on",
                      run_dir);
    else if (highest_epoch(lock->folder, &highest) != BP_OK || highest < lock->self.epoch)
        err = BP_FAIL(BP_ERR_BUSY,
                      "the lock of the run folder was removed while its job ran, so that another "
                      "may begin: at %s; the same command goes on when none runs",
                      lock->folder);
    else
        err = BP_FAIL(BP_ERR_BUSY,
                      "another job took the run over: at %.*s; let that one go on, or stop it "
                      "first",
                      run_bytes, lock->folder);
    bp_free(run_dir);
    return err;
}

bp_err run_lock_check(run_lock *lock)
{
    run_owner owner;
    int64_t highest = 0;
    lock_record_sight listing, file = LOCK_RECORD_UNREADABLE;
    lock_record_claim claim;
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
    claim = lock_record_is_own(lock->self.epoch, listing, highest, file);
    if (claim == LOCK_RECORD_LOST) {
        atomic_store(&lock->lost, true);
        err = say_lost(lock);
    }
    return err;
}

bool run_lock_is_own(run_lock *lock)
{
    return run_lock_check(lock) == BP_OK;
}

void run_lock_give_room(const run_lock *lock)
{
    run_room_give(lock->folder);
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
    if (run_lock_is_own(lock))
        run_room_give(lock->folder);
    lock->self.released = true;
    path = member_path(lock->folder, "owner", lock->self.epoch);
    value = run_owner_json(&lock->self);
    if (path == NULL || value == NULL)
        err = no_memory(lock->folder);
    else if (run_lock_is_own(lock))
        err = bp_json_save(path, value);
    json_decref(value);
    bp_free(path);
    lock_free(out);
    return err;
}
