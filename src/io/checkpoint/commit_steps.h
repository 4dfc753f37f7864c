/* The commit of a checkpoint, only its decisions: which operation comes next, given how the one
 * before it went. No file, no message and no clock: checkpoint_save.c does the operations, over MPI
 * and on disks; a simulator does them where both break.
 *
 *     plan, make, sync made, write, reports, recheck, list, fence, place, sync placed: done
 *
 * A checkpoint that fails before it is placed is removed and abandoned. One that was placed, but
 * may not be on disk, stays, and is not announced: it is whole, and a job that started meanwhile
 * may already go on from it.
 */
#ifndef BP_IO_CHECKPOINT_COMMIT_STEPS_H
#define BP_IO_CHECKPOINT_COMMIT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_commit_step {
    BP_COMMIT_PLAN,        /* who writes what */
    BP_COMMIT_MAKE,        /* the hidden folder */
    BP_COMMIT_SYNC_MADE,   /* its name, to disk */
    BP_COMMIT_WRITE,       /* every writer: its file written, closed, to disk, hashed */
    BP_COMMIT_REPORTS,     /* every writer's size and hash, to the root: bp_commit_report() each */
    BP_COMMIT_RECHECK,     /* the root sees every file as it was reported */
    BP_COMMIT_LIST,        /* the manifest and its hash, to disk, and the hidden folder's names */
    BP_COMMIT_OWNER,       /* is the run still ours? */
    BP_COMMIT_PLACE,       /* rename, never over another */
    BP_COMMIT_SYNC_PLACED, /* the new name, to disk */
    BP_COMMIT_REMOVE,      /* the hidden folder and all in it; none is fine */
    BP_COMMIT_DONE,        /* it may be announced */
    BP_COMMIT_ABANDONED
} bp_commit_step;

typedef struct bp_commit {
    bp_commit_step step; /* what is to be done now */
    int64_t writers, reports;
} bp_commit;

void bp_commit_begin(bp_commit *commit);
/** The number of reports that must come before anything is placed (known after the plan). */
void bp_commit_expect(bp_commit *commit, int64_t writers);
/** A writer reports that its file is whole and on disk. */
void bp_commit_report(bp_commit *commit);
/** All have reported. */
bool bp_commit_is_reported(const bp_commit *commit);
/** The step was done, or it failed. */
void bp_commit_next(bp_commit *commit, bool ok);
bool bp_commit_is_over(const bp_commit *commit);

#endif
