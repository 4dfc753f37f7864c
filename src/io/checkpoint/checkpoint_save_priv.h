/* What the files that save a checkpoint share. */
#ifndef BP_IO_CHECKPOINT_CHECKPOINT_SAVE_PRIV_H
#define BP_IO_CHECKPOINT_CHECKPOINT_SAVE_PRIV_H

#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint/commit_steps.h"
#include "io/checkpoint/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a writer reports to the root about its files. */
typedef struct bp_receipt {
    int64_t shard, files; /* the number of the first, and how many */
    int64_t pieces;
    struct bp_file_receipt {
        int64_t bytes;
        char xxh3[BP_USER_BLOCK_HASH + 7];
    } file[BP_FILES_MOST];
} bp_receipt;

/* One file on its way to disk, of this rank. */
typedef struct bp_file_job {
    struct bp_async_checkpoint *pending;
    int number; /* among the rank's */
    struct bp_file_receipt *receipt;
    bp_plan_slice *pieces;
    int64_t count;
    double began, used;  /* by the clock, and by the helper's, when it stepped aside */
    double busy_seconds; /* of the helper, without its sleeps */
    pthread_t helper;
    bool helped;                        /* it was started, and is still to be joined */
    bp_err err;                         /* how it ended, */
    char message[BP_ERR_MESSAGE_BYTES]; /* and why */
} bp_file_job;

/* One checkpoint on its way to disk. */
struct bp_async_checkpoint {
    MPI_Comm comm;
    bool root;
    bp_checkpoint_commit commit; /* its names are copies */
    char *parent, *name;
    json_t *state;
    const bp_slice
        *slices; /* borrowed until the plan is made, or, without a snapshot, to the end */
    int64_t count;
    bp_commit steps;
    bp_plan plan;
    bp_receipt mine;
    bool refused; /* a rank could not give its data, and fails with what it knows */
    char *hidden; /* PARENT/.tmp-NAME-TOKEN, on all ranks */
    char *final;  /* PARENT/NAME */
    int lock;     /* of the hidden folder, on the root; -1: none */

    bp_file_job jobs[BP_FILES_MOST]; /* plan.files of them */

    /* ---- of the helper threads, one a file ---- */
    atomic_int left;      /* how many are at work */
    atomic_int writing;   /* bp_checkpoint_poll */
    atomic_bool given_up; /* they are to stop */
    atomic_bool awaited;  /* they are to keep no pace any more */
    atomic_long moved;    /* how often one has moved on */
};

/* ---- checkpoint_write.c: every writer its files, closed, to disk, hashed ---- */

/** Write this rank's files, and serve its group's writer, all at once. Collective over plan.group.
 */
bp_err bp_async_checkpoint_write(bp_async_checkpoint *pending);
/** Begin to write from the snapshot, in a helper thread for each file that this rank has to write;
 * what fails is found by bp_async_checkpoint_wait. Local. */
void bp_async_checkpoint_start(bp_async_checkpoint *pending);
/** All helpers have ended; the worst of their errors, with its message. Local. */
bp_err bp_async_checkpoint_wait(bp_async_checkpoint *pending);

#endif
