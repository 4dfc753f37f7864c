/* Shared by the files that save a checkpoint. */
#pragma once

#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint/commit_steps.h"
#include "io/checkpoint/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a writer reports to the root about its files. */
typedef struct bp_receipt {
    int64_t shard, files; /* the number of the first file, and their count */
    int64_t pieces;
    struct bp_file_receipt {
        int64_t bytes;
        char xxh3[BP_USER_BLOCK_HASH + 7];
    } file[BP_FILES_MOST];
} bp_receipt;

/* One file being written by this rank. */
typedef struct bp_file_job {
    struct bp_async_checkpoint *pending;
    int number; /* number among the rank's files */
    struct bp_file_receipt *receipt;
    bp_plan_slice *pieces;
    int64_t count;
    double began, used;  /* wall-clock and the helper's processor time, in seconds, when it lowered
                            its priority */
    double busy_seconds; /* busy time of the helper, without its sleeps */
    pthread_t helper;
    bool helped;                        /* started, and not joined yet */
    bp_err err;                         /* its result, */
    char message[BP_ERR_MESSAGE_BYTES]; /* and its message */
} bp_file_job;

/* One checkpoint being written. */
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
    bool refused; /* a rank could not provide its data, and fails with its error */
    char *hidden; /* PARENT/.tmp-NAME-TOKEN, on all ranks */
    char *final;  /* PARENT/NAME */
    int lock;     /* descriptor that holds the lock of the hidden folder, on the root; -1: none */

    bp_file_job jobs[BP_FILES_MOST]; /* plan.files of them */

    /* ---- helper threads, one per file ---- */
    atomic_int left;      /* number of active helpers */
    atomic_int writing;   /* bp_checkpoint_poll */
    atomic_bool given_up; /* request to stop */
    atomic_bool awaited;  /* request to run without throttling */
    atomic_long moved;    /* count of progress events */
};

/* ---- checkpoint_write.c: every writer writes, closes, syncs and hashes its files ---- */

/** Write this rank's files, and serve its group's writer, synchronously. Collective over
 * plan.group. */
bp_err bp_async_checkpoint_write(bp_async_checkpoint *pending);
/** Begin to write from the snapshot, in a helper thread for each file that this rank has to write;
 * bp_async_checkpoint_wait reports failures. Local. */
void bp_async_checkpoint_start(bp_async_checkpoint *pending);
/** Wait for all helpers; returns the worst of their errors, with its message. Local. */
bp_err bp_async_checkpoint_wait(bp_async_checkpoint *pending);
