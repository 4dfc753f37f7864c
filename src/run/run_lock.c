/* The lock of a run folder: RUN/lock/owner-NNNNNN, numbered from 1. The highest number is the
 * owner, and says whether it let go. What is done next, lease.c decides; here it is done, on files.
 *
 * To take the lock is to create the next number, which link(2) does for one process alone, on NFS
 * and Lustre too; so nobody ever removes a lock that another has just taken. The highest file stays
 * when its owner leaves, so that numbers only grow; and as a challenger may be slow, who has
 * created a number looks whether it is the highest. An owner whose number is no longer the highest
 * has lost the run: it looks before every commit, before every line of a journal, and its thread at
 * every beat. beat-NNNNNN is a counter that this thread raises, for those who can't ask the owner's
 * host. */
#include "run/run_lock_priv.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/lease_priv.h"

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
#define HOLDER_LIMIT    65536

struct run_lock {
    char *folder; /* RUN/lock */
    run_holder self;
    lease lease;
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

#define REMOVE_LOCK "when no job runs in it, remove the folder 'lock'"

static bp_err highest_epoch(const char *folder, int64_t *epoch)
{
    char **names;
    int64_t count;
    bp_err err = bp_dir_list(folder, &names, &count);

    *epoch = 0;
    for (int64_t k = 0; k < count; k++)
        if (lease_number_of(names[k]) > *epoch)
            *epoch = lease_number_of(names[k]);
    if (*epoch > LEASE_NUMBER_MAX)
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
static bp_err beat(const char *path, int64_t count)
{
    char text[24];
    int fd, bytes = snprintf(text, sizeof text, "%020lld\n", (long long)count);
    bp_err err = bp_plain_open(path, O_WRONLY | O_CREAT, &fd);

    if (err != BP_OK)
        return err;
    if (bp_pwrite_all(fd, text, (size_t)bytes, 0) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    else
        (void)fsync(fd); /* a beat that fails is followed by another */
    (void)close(fd);
    return err;
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
    bool warned = false;

    bp_cores_widen();
    (void)pthread_mutex_lock(&lock->mutex);
    for (int64_t count = 1; path != NULL && !lock->ends; count++) {
        struct timespec until;

        (void)pthread_mutex_unlock(&lock->mutex);
        if (run_lock_is_ours(lock) && beat(path, count) != BP_OK && !warned) {
            bp_warn("hosts that can't ask this one will take the run folder over, as the lock does "
                    "not beat: %s",
                    bp_err_message());
            warned = true;
        }
        BP_CHECK(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
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

    BP_CHECK(pthread_mutex_init(&lock->mutex, NULL) == 0);
    BP_CHECK(pthread_condattr_init(&attributes) == 0);
    BP_CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    BP_CHECK(pthread_cond_init(&lock->wake, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    (void)sigfillset(&all); /* signals are the main thread's */
    BP_CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(&lock->beater, NULL, beat_on, lock);
    BP_CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
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
    BP_CHECK(pthread_join(lock->beater, NULL) == 0);
    lock->beats = false;
}

/* ---- the holder there is ---- */

static bp_err read_holder(const char *folder, int64_t epoch, run_holder *out)
{
    char *path = member_path(folder, "owner", epoch);
    json_t *value = NULL;
    bp_err err = path == NULL ? no_memory(folder) : bp_json_load_plain(&value, path, HOLDER_LIMIT);

    if (err == BP_OK)
        err = run_holder_parse(out, value, path);
    if (err == BP_ERR_FORMAT)
        err =
            bp_err_advise(bp_err_prefix(err, "the lock of the run folder is damaged"), REMOVE_LOCK);
    json_decref(value);
    bp_free(path);
    return err;
}

static void read_beat(const char *folder, int64_t epoch, char out[LEASE_BEAT_BYTES])
{
    char *path = member_path(folder, "beat", epoch), *text = NULL;
    size_t bytes;

    out[0] = '\0';
    if (path != NULL && bp_plain_read(path, LEASE_BEAT_BYTES - 1, &text, &bytes) == BP_OK)
        (void)snprintf(out, LEASE_BEAT_BYTES, "%s", text);
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

/* One look at the counter of a holder that can't be asked, by this machine's clock alone. */
static void watch(run_lock *lock, const run_holder *holder)
{
    lease *self = &lock->lease;
    char beat[LEASE_BEAT_BYTES], who[512];
    int64_t highest;
    double now;

    if (self->watching) {
        bp_clock_sleep(self->watch_seconds < 1.0 ? self->watch_seconds / 10 : 1.0);
    } else {
        run_holder_text(who, sizeof who, holder);
        bp_warn("the run folder is locked by %s, which can't be asked from here: at %s; watching "
                "it for %.0f s",
                who, lock->folder, self->watch_seconds);
    }
    now = bp_clock_now();
    read_beat(lock->folder, self->holder, beat);
    if (highest_epoch(lock->folder, &highest) != BP_OK)
        highest = 0;
    lease_watched(self, now, beat, highest);
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

static bp_err make_number(run_lock *lock)
{
    bool won = false;
    bp_err err;

    lock->self.epoch = lock->lease.number;
    err = run_claim(lock->folder, &lock->self, &won);
    if (err == BP_OK)
        lease_linked(&lock->lease, won);
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
    bool confirms = lock->lease.step == LEASE_CONFIRM;
    int64_t highest;
    bp_err err;

    if (confirms)
        bp_dir_refresh(lock->folder);
    err = highest_epoch(lock->folder, &highest);
    if (err == BP_OK)
        lease_listed(&lock->lease, highest);
    else if (confirms)
        remove_number(lock);
    return err;
}

static bp_err judge(run_lock *lock, run_holder *holder)
{
    static const lease_answer ANSWERS[] = {
        [HOLDER_ALIVE] = LEASE_ALIVE, [HOLDER_DEAD] = LEASE_DEAD, [HOLDER_UNKNOWN] = LEASE_UNKNOWN};
    bp_err err = read_holder(lock->folder, lock->lease.holder, holder);

    if (err == BP_OK)
        lease_judged(&lock->lease, ANSWERS[run_holder_judge(holder, &lock->self)]);
    if (err == BP_ERR_INPUT) { /* its follower has just removed it */
        lease_judged(&lock->lease, LEASE_GONE);
        err = BP_OK;
    }
    return err;
}

static bp_err contend(run_lock *lock)
{
    run_holder holder = {.epoch = 0};
    bp_err err = BP_OK;

    while (err == BP_OK && !lease_is_over(&lock->lease)) {
        switch (lock->lease.step) {
        case LEASE_LIST:
        case LEASE_CONFIRM:
            err = list_numbers(lock);
            break;
        case LEASE_ASK:
            err = judge(lock, &holder);
            break;
        case LEASE_WATCH:
            watch(lock, &holder);
            break;
        case LEASE_LINK:
            err = make_number(lock);
            break;
        default:
            remove_number(lock);
            lease_yielded(&lock->lease);
        }
    }
    if (err == BP_OK && lock->lease.step == LEASE_HELD)
        err = refuse(lock->folder, &holder);
    if (err == BP_OK && lock->lease.step == LEASE_CROWDED)
        err = BP_FAIL(BP_ERR_BUSY,
                      "other jobs take the lock of the run folder again and again: at %s",
                      lock->folder);
    return err;
}

/* ---- what others left ---- */

static bool is_lock_litter(const run_lock *lock, const char *name)
{
    return lease_is_litter(name, lock->self.epoch);
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
    ours = run_lock_is_ours(lock);
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
    lock->beat_seconds = watch_seconds / BEATS_PER_WATCH;
    lock->folder = bp_path_join(run_dir, "lock");
    if (lock->folder == NULL)
        err = no_memory(run_dir);
    run_holder_self(&lock->self);
    if (err == BP_OK)
        err = bp_dir_make(lock->folder);
    lease_begin(&lock->lease, watch_seconds);
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

static lease_sight sight_of(bp_err err)
{
    return err == BP_OK ? LEASE_SEEN : err == BP_ERR_INPUT ? LEASE_MISSING : LEASE_UNREADABLE;
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
    run_holder holder;
    int64_t highest = 0;
    lease_sight listing, file = LEASE_UNREADABLE;
    lease_claim claim;
    bp_err err;

    if (run_lock_is_lost(lock))
        return say_lost(lock);
    bp_dir_refresh(lock->folder);
    err = highest_epoch(lock->folder, &highest);
    listing = sight_of(err);
    if (listing == LEASE_SEEN && highest == lock->self.epoch) {
        err = read_holder(lock->folder, highest, &holder);
        file = sight_of(err);
    }
    if (file == LEASE_SEEN && strcmp(holder.token, lock->self.token) != 0)
        file = LEASE_ANOTHERS;
    claim = lease_still_ours(lock->self.epoch, listing, highest, file);
    if (claim == LEASE_LOST) {
        atomic_store(&lock->lost, true);
        err = say_lost(lock);
    }
    return err;
}

bool run_lock_is_ours(run_lock *lock)
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
    if (run_lock_is_ours(lock))
        run_room_give(lock->folder);
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
