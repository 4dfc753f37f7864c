/* What a start finds in a run folder, for test_torn_writes.py: paths of run folders come on
 * standard input, one a line; the answer to each is a line. Takes the lock, clears leftovers away,
 * looks for the newest checkpoint and cuts the journals back, as a job does: "step NAME", "none",
 * or "error[CODE]: ...". */
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/mesh.h"
#include "run/lock/run_lock.h"
#include "run/run_journal.h"

#include <stdio.h>
#include <string.h>

#define WATCH_SECONDS 0.5

static bp_err open_journal(const char *run, const char *name, bool cut, int64_t step)
{
    run_journal journal;
    bp_err err = run_journal_open(&journal, run, name);

    if (err == BP_OK && cut)
        err = run_journal_cut(&journal, step, 1);
    run_journal_close(&journal);
    return err;
}

/* With the lock held. */
static bp_err look(const char *run, const char *checkpoints, int64_t *step)
{
    bp_checkpoint *newest = NULL;
    bp_err err = bp_dir_make(checkpoints);

    *step = -1;
    if (err == BP_OK)
        err = bp_checkpoints_clean(checkpoints);
    if (err == BP_OK)
        err = bp_checkpoint_newest(MPI_COMM_SELF, checkpoints, &newest);
    if (err == BP_OK && newest != NULL)
        err = bp_json_get_int(bp_checkpoint_state(newest), "step", step, checkpoints);
    bp_checkpoint_close(&newest);
    if (err == BP_OK)
        err = open_journal(run, "metrics.jsonl", true, *step < 0 ? 0 : *step);
    return err == BP_OK ? open_journal(run, "events.jsonl", false, 0) : err;
}

static void answer(const char *run)
{
    char *checkpoints = bp_path_join(run, "checkpoints");
    run_lock *lock = NULL;
    int64_t step = -1;
    bp_err err = run_lock_take(&lock, run, WATCH_SECONDS);

    if (err == BP_OK)
        err = look(run, checkpoints, &step);
    if (err != BP_OK)
        printf("error[%d]: %s\n", (int)err, bp_err_message());
    else if (step < 0)
        printf("none\n");
    else
        printf("step step-%012lld\n", (long long)step);
    (void)run_lock_release(&lock);
    bp_free(checkpoints);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char run[4096];

    bp_signals_init();
    if (bp_mpi_start(&argc, &argv) != BP_OK)
        return 1;
    while (fgets(run, sizeof run, stdin) != NULL) {
        run[strcspn(run, "\n")] = '\0';
        answer(run);
    }
    bp_mpi_finish();
    return 0;
}
