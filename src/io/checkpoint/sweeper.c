#include "io/checkpoint/sweeper.h"

#include "base/beat.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/fs.h"

#include <signal.h>
#include <stdio.h>

static bp_err remove_all(const bp_sweeper *sweeper)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < sweeper->count && err == BP_OK; k++)
        err = bp_fault("ckpt.prune_unlink")
                  ? bp_fail_errno(BP_ERR_IO, "can't remove", sweeper->paths[k])
                  : bp_dir_remove(sweeper->paths[k]);
    return err;
}

static void *sweep(void *argument)
{
    bp_sweeper *sweeper = argument;

    bp_beat_beside();
    bp_cores_step_aside();
    sweeper->err = remove_all(sweeper);
    if (sweeper->err != BP_OK)
        (void)snprintf(sweeper->message, sizeof sweeper->message, "%s", bp_err_message());
    return NULL;
}

/* Signals are the main thread's: the sweeper starts with all of them blocked. */
bp_err bp_sweeper_start(bp_sweeper *sweeper, char ***paths, int64_t *count)
{
    bp_err before = bp_sweeper_wait(sweeper);
    sigset_t all, own;

    sweeper->paths = *paths;
    sweeper->count = *count;
    *paths = NULL;
    *count = 0;
    if (sweeper->count > 0) {
        BP_CHECK(sigfillset(&all) == 0 && pthread_sigmask(SIG_SETMASK, &all, &own) == 0);
        sweeper->runs = pthread_create(&sweeper->thread, NULL, sweep, sweeper) == 0;
        BP_CHECK(pthread_sigmask(SIG_SETMASK, &own, NULL) == 0);
    }
    return before;
}

bp_err bp_sweeper_wait(bp_sweeper *sweeper)
{
    bp_err err;

    if (sweeper->runs)
        BP_CHECK(pthread_join(sweeper->thread, NULL) == 0);
    else
        sweeper->err = remove_all(sweeper); /* no thread could be had, or there is nothing */
    if (sweeper->runs && sweeper->err != BP_OK)
        bp_err_set_message(sweeper->message);
    err = sweeper->err;
    bp_names_free(&sweeper->paths, sweeper->count);
    sweeper->count = 0;
    sweeper->runs = false;
    sweeper->err = BP_OK;
    return err;
}
