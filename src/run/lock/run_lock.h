/* One owner a run folder. Local, on the coordinator. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define RUN_TOKEN_BYTES 33 /* 32 hexadecimal digits and the end */

/* Who holds, or held, a run folder. Unknown strings are "". */
typedef struct run_owner {
    int64_t epoch;
    char token[RUN_TOKEN_BYTES];
    char host[256];
    int64_t pid;
    int64_t start_ticks;   /* when the process began, in ticks since the machine's boot */
    char boot_id[64];      /* of the running kernel */
    int64_t pid_namespace; /* in which process numbers are valid */
    char slurm_job[64], slurm_cluster[128];
    int64_t slurm_restart;
    bool released;
} run_owner;

typedef enum run_owner_state { OWNER_ALIVE, OWNER_DEAD, OWNER_UNKNOWN } run_owner_state;

/* run_owner.c */
void run_owner_self(run_owner *out);
json_t *run_owner_json(const run_owner *owner);
bp_err run_owner_parse(run_owner *out, const json_t *value, const char *path);
/* Returns only certain answers, otherwise OWNER_UNKNOWN. */
run_owner_state run_owner_check(const run_owner *owner, const run_owner *self);
/* "host n1, process 17, Slurm job 4" */
void run_owner_text(char *out, size_t out_bytes, const run_owner *owner);

/* Runs a command; `out` gets what it prints (both streams), up to out_bytes - 1. Returns false if
 * it can't be run or takes too long. */
bool run_command(char *const argv[], char *out, size_t out_bytes, int *status, double seconds);
/* The state of a job in squeue, within `seconds`. UNKNOWN: squeue is missing or did not answer, or
 * `job` is not a number; GONE: squeue does not list the job. */
typedef struct run_queue_state {
    char state[32], reason[96]; /* "PENDING", "Resources" */
} run_queue_state;
typedef enum run_queue { RUN_QUEUE_UNKNOWN, RUN_QUEUE_GONE, RUN_QUEUE_LISTED } run_queue;
run_queue run_slurm_ask(run_queue_state *out, const char *job, double seconds);

/* run_lock.c */
typedef struct run_lock run_lock;

/** Take the lock of the existing folder `run_dir`, and start a thread that updates its heartbeat
 * six times in `watch_seconds` (0: 60). Removes unfinished files of killed processes in the folder
 * and in its lock/.
 *
 * Errors: BP_ERR_BUSY it is held; BP_ERR_FORMAT it is invalid; BP_ERR_CREATE, BP_ERR_DENIED,
 * BP_ERR_IO, BP_ERR_SYSTEM. *out is NULL then. */
bp_err run_lock_take(run_lock **out, const char *run_dir, double watch_seconds);
/** Who holds the folder or held it last, for readers; changes nothing.
 *
 * Owns:   *heartbeat, the path of its counter's file, is the caller's, bp_free().
 * Errors: BP_ERR_INPUT it was never held; BP_ERR_FORMAT the lock is invalid; BP_ERR_DENIED,
 *         BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_lock_read(const char *run_dir, run_owner *out, char **heartbeat);
/** Checks on disk that the lock is still this job's.
 *
 * Errors: BP_ERR_BUSY another job has taken it, or the lock was removed, so that another job may;
 *         BP_ERR_IO the run folder was removed or renamed: both are permanent (run_lock_is_lost).
 *         BP_ERR_FORMAT, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM unknown, perhaps temporarily. */
bp_err run_lock_check(run_lock *lock);
bool run_lock_is_own(run_lock *lock);
/** Did the heartbeat thread or run_lock_check find it lost? Costs one load. */
bool run_lock_is_lost(const run_lock *lock);
/** Free the 64 KiB that the lock reserves on disk, so that the exit state can be written to a full
 * disk. */
void run_lock_free_space(const run_lock *lock);
/** Stop the heartbeat and mark the lock as free. Always frees `lock`. Errors: BP_ERR_IO others will
 * find it held by a dead process. */
bp_err run_lock_release(run_lock **lock);
