/* Removes old checkpoints beside the training: renamed at once, removed by a thread. */
#include "io/checkpoint/remover.h"

#include "base/cores.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>

static bp_err remove_all(const bp_remover *remover)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < remover->count && err == BP_OK; k++)
        err = bp_fault("ckpt.prune_unlink")
                  ? bp_fail_errno(BP_ERR_IO, "can't remove", remover->paths[k])
                  : bp_dir_remove(remover->paths[k]);
    return err;
}

static void *sweep(void *argument)
{
    bp_remover *remover = argument;

    bp_heartbeat_beside();
    bp_cores_step_aside();
    remover->err = remove_all(remover);
    if (remover->err != BP_OK)
        (void)snprintf(remover->message, sizeof remover->message, "%s", bp_err_message());
    return NULL;
}

bp_err bp_remover_start(bp_remover *remover, char ***paths, int64_t *count)
{
    bp_err before = bp_remover_wait(remover);

    remover->paths = *paths;
    remover->count = *count;
    *paths = NULL;
    *count = 0;
    if (remover->count > 0)
        remover->runs = bp_thread_start(&remover->thread, "remover", sweep, remover) == BP_OK;
    if (before != BP_OK)
        bp_err_set_message(remover->message);
    return before;
}

bp_err bp_remover_wait(bp_remover *remover)
{
    bp_err err;

    if (remover->runs)
        BP_CHECK(pthread_join(remover->thread, NULL) == 0);
    else
        remover->err = remove_all(remover); /* no thread could be had, or there is nothing */
    if (remover->runs && remover->err != BP_OK)
        bp_err_set_message(remover->message);
    err = remover->err;
    bp_names_free(&remover->paths, remover->count);
    remover->count = 0;
    remover->runs = false;
    remover->err = BP_OK;
    return err;
}
