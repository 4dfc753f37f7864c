/* bagpipe requeue: asked by slurm/launch.sh when a job's ranks have ended. */
#include "requeue.h"

#include "base/config/run_options.h"
#include "base/mem.h"
#include "run/restart.h"
#include "train/ensemble/ensemble.h"

#include <stdio.h>
#include <string.h>

bp_err bp_requeue(const char *job, const bp_config *config, int status, int64_t most,
                  const char *cause, bool *again)
{
    const char *run_dir = bp_run_keys_of(config)->dir;
    bool ensemble = strcmp(job, "ensemble") == 0;
    char *folder = ensemble ? bp_ensemble_folder(config) : bp_strdup(run_dir), why[1024];
    bp_restart_case what = {
        .folder = folder, .halt = run_dir, .status = status, .most = most, .cause = cause};
    bp_err err = folder ? bp_restart_decide(&what, again, why, sizeof why)
                        : bp_fail_memory("a file name", 1, strlen(run_dir));

    if (err == BP_OK)
        printf("%s: %s\n", *again ? "yes" : "no", why);
    bp_free(folder);
    return err;
}
