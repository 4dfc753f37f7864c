/* Holders of a run folder's lock, real processes and made up ones, for tests of who gets it. */
#pragma once

#include "bp_test.h"

#include "base/config/json.h"
#include "base/process/clock.h"
#include "run/lock/run_lock.h"

#include <sys/wait.h>
#include <unistd.h>

/* A folder of its own for each test. */
static inline const char *fresh(const char *name)
{
    const char *path = bp_test_path(name);

    bp_test_expect(bp_dir_make(path), BP_OK);
    return path;
}

static inline const char *owner_path(const char *run, int epoch)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/lock/owner-%06d", run, epoch);
    return path;
}

/* ---- a second process ---- */

typedef struct contender {
    pid_t pid;
    int word; /* to read: 'w' it has the lock, 'l' it was refused, 'e' something else */
} contender;

/* Waits for its start, tries, tells, and holds on until `hold` is closed. */
static inline void contend(const char *run, int start, int word, int hold)
{
    run_lock *lock = NULL;
    char byte;
    bp_err err;

    while (read(start, &byte, 1) > 0)
        ;
    err = run_lock_take(&lock, run, 0.2);
    byte = err == BP_OK ? 'w' : err == BP_ERR_BUSY ? 'l' : 'e';
    if (err != BP_OK && err != BP_ERR_BUSY)
        print_error("%s\n", bp_err_message());
    if (write(word, &byte, 1) != 1)
        _exit(9);
    while (read(hold, &byte, 1) > 0)
        ;
    _exit(0);
}

/* Contenders that begin together, when `start` is closed, and hold until `hold` is. */
static inline void start_contenders(const char *run, contender *list, int count, int *start,
                                    int *hold)
{
    int starts[2], holds[2];

    assert_int_equal(pipe(starts), 0);
    assert_int_equal(pipe(holds), 0);
    for (int k = 0; k < count; k++) {
        int words[2];

        assert_int_equal(pipe(words), 0);
        list[k].pid = fork();
        assert_true(list[k].pid >= 0);
        if (list[k].pid == 0) {
            (void)close(starts[1]);
            (void)close(holds[1]);
            contend(run, starts[0], words[1], holds[0]);
        }
        assert_int_equal(close(words[1]), 0);
        list[k].word = words[0];
    }
    assert_int_equal(close(starts[0]), 0);
    assert_int_equal(close(holds[0]), 0);
    *start = starts[1];
    *hold = holds[1];
}

static inline char hear(const contender *one)
{
    char byte = '?';

    assert_int_equal(read(one->word, &byte, 1), 1);
    assert_int_equal(close(one->word), 0);
    return byte;
}

/* A process that has the lock. */
static inline contender start_owner(const char *run, int *hold)
{
    contender one;
    int start;

    start_contenders(run, &one, 1, &start, hold);
    assert_int_equal(close(start), 0);
    assert_int_equal(hear(&one), 'w');
    return one;
}

static inline void end_owner(const contender *one, int hold)
{
    assert_int_equal(close(hold), 0);
    assert_int_equal(waitpid(one->pid, NULL, 0), one->pid);
}

/* The lock is taken without watching the one who had it: that would take a minute. */
static inline void take_soon(const char *run)
{
    run_lock *lock;
    double start = bp_clock_now();

    bp_test_expect(run_lock_take(&lock, run, 60.0), BP_OK);
    assert_true(bp_clock_now() - start < 60.0);
    assert_true(run_lock_is_own(lock));
    bp_test_expect(run_lock_release(&lock), BP_OK);
}

/* ---- owners made up ---- */

/* An owner file that says what `edit` leaves of this process. */
static inline void write_owner(const char *run, int epoch, void (*edit)(run_owner *owner))
{
    run_owner owner;
    char folder[PATH_MAX];
    json_t *value;

    run_owner_self(&owner);
    owner.epoch = epoch;
    edit(&owner);
    value = run_owner_json(&owner);
    (void)snprintf(folder, sizeof folder, "%s/lock", run);
    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_json_save(owner_path(run, epoch), value), BP_OK);
    json_decref(value);
}

static inline void began_at_another_time(run_owner *owner)
{
    owner->start_ticks -= 1;
}

static inline void as_it_is(run_owner *owner)
{
    (void)owner;
}
