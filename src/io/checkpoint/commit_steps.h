/* The decisions of a checkpoint's commit: the next operation, given the result of the previous
 * one. No files, messages or clocks: checkpoint_save.c executes the operations, over MPI and on
 * disks; a simulator executes them with failures of both.
 *
 *     plan, make, sync made, write, reports, recheck, list, fence, place, sync placed: done
 *
 * A checkpoint that fails before it is placed is removed and abandoned. One that was placed, but
 * may not be on disk, stays, unannounced: it is complete, and a job that started meanwhile may
 * already use it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_commit_step {
    BP_COMMIT_PLAN,      /* assign slices to writers */
    BP_COMMIT_MAKE,      /* the hidden folder */
    BP_COMMIT_SYNC_MADE, /* sync its name */
    BP_COMMIT_WRITE,     /* every writer writes, closes, syncs and hashes its file */
    BP_COMMIT_REPORTS,   /* every writer's size and hash, to the root: bp_commit_report() each */
    BP_COMMIT_RECHECK,   /* the root sees every file as it was reported */
    BP_COMMIT_LIST,  /* write and sync the manifest and its hash, and the hidden folder's names */
    BP_COMMIT_OWNER, /* is the run still ours? */
    BP_COMMIT_PLACE, /* rename, never over another */
    BP_COMMIT_SYNC_PLACED, /* sync the new name */
    BP_COMMIT_REMOVE,      /* remove the hidden folder and its contents, if there is one */
    BP_COMMIT_DONE,        /* it may be announced */
    BP_COMMIT_ABANDONED
} bp_commit_step;

typedef struct bp_commit {
    bp_commit_step step; /* the current operation */
    int64_t writers, reports;
} bp_commit;

void bp_commit_begin(bp_commit *commit);
/** The number of reports required before anything is placed (known after the plan). */
void bp_commit_expect(bp_commit *commit, int64_t writers);
/** A writer reports that its file is whole and on disk. */
void bp_commit_report(bp_commit *commit);
/** All have reported. */
bool bp_commit_is_reported(const bp_commit *commit);
/** The step succeeded, or failed. */
void bp_commit_next(bp_commit *commit, bool ok);
bool bp_commit_is_over(const bp_commit *commit);
