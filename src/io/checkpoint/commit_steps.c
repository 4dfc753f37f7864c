/* The order of a commit's operations: given the result of one, the next one. checkpoint_save.c
 * executes them. */
#include "io/checkpoint/commit_steps.h"

#include "base/err.h"

void bp_commit_begin(bp_commit *commit)
{
    *commit = (bp_commit){.step = BP_COMMIT_PLAN};
}

void bp_commit_expect(bp_commit *commit, int64_t writers)
{
    commit->writers = writers;
}

void bp_commit_report(bp_commit *commit)
{
    commit->reports++;
}

bool bp_commit_is_reported(const bp_commit *commit)
{
    return commit->reports == commit->writers;
}

bool bp_commit_is_over(const bp_commit *commit)
{
    return commit->step == BP_COMMIT_DONE || commit->step == BP_COMMIT_ABANDONED;
}

void bp_commit_next(bp_commit *commit, bool ok)
{
    static const struct {
        bp_commit_step done, failed;
    } AFTER[] = {[BP_COMMIT_PLAN] = {BP_COMMIT_MAKE, BP_COMMIT_ABANDONED},
                 [BP_COMMIT_MAKE] = {BP_COMMIT_SYNC_MADE, BP_COMMIT_ABANDONED},
                 [BP_COMMIT_SYNC_MADE] = {BP_COMMIT_WRITE, BP_COMMIT_REMOVE},
                 [BP_COMMIT_WRITE] = {BP_COMMIT_REPORTS, BP_COMMIT_REMOVE},
                 [BP_COMMIT_REPORTS] = {BP_COMMIT_RECHECK, BP_COMMIT_REMOVE},
                 [BP_COMMIT_RECHECK] = {BP_COMMIT_LIST, BP_COMMIT_REMOVE},
                 [BP_COMMIT_LIST] = {BP_COMMIT_OWNER, BP_COMMIT_REMOVE},
                 [BP_COMMIT_OWNER] = {BP_COMMIT_PLACE, BP_COMMIT_REMOVE},
                 [BP_COMMIT_PLACE] = {BP_COMMIT_SYNC_PLACED, BP_COMMIT_REMOVE},
                 [BP_COMMIT_SYNC_PLACED] = {BP_COMMIT_DONE, BP_COMMIT_ABANDONED},
                 [BP_COMMIT_REMOVE] = {BP_COMMIT_ABANDONED, BP_COMMIT_ABANDONED}};

    BP_ASSERT(!bp_commit_is_over(commit));
    if (commit->step == BP_COMMIT_REPORTS && !bp_commit_is_reported(commit))
        ok = false;
    commit->step = ok ? AFTER[commit->step].done : AFTER[commit->step].failed;
}
