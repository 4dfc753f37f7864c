/* Whether this job still owns its run folder: asked before each line of a journal and each file. */
#include "run/run_folder.h"

#include "run/run_priv.h"

#include "base/log.h"
#include "base/process/clock.h"

#define LOOKS        3
#define LOOK_SECONDS 0.5

/* A line of a fenced-off owner would mix with its successor's lines, and a cut would remove the
 * successor's. A temporary read error says nothing about the owner. */
bp_err bp_run_check_owner(void *context)
{
    const bp_run *run = context;
    bp_err err = BP_OK;

    for (int look = 0; run && run->lock && look < LOOKS; look++) {
        err = run_lock_check(run->lock);
        if (run_lock_is_lost(run->lock))
            bp_log_close(); /* log.txt may be another job's, also where the folder was moved to */
        if (err == BP_OK || err == BP_ERR_FORMAT || run_lock_is_lost(run->lock))
            return err;
        bp_clock_sleep(LOOK_SECONDS);
    }
    return err;
}

bp_err run_poll_owner(void *context)
{
    const bp_run *run = context;
    bp_err err = run_lock_check(run->lock);

    if (run_lock_is_lost(run->lock))
        bp_log_close();
    return err == BP_ERR_FORMAT || run_lock_is_lost(run->lock) ? err : BP_OK;
}

bool bp_run_still_owner(void *run)
{
    return ((const bp_run *)run)->lock && bp_run_check_owner(run) == BP_OK;
}
