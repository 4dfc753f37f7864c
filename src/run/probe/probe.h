/* Properties of a job's machine: the hosts of its ranks, and the file system of its run folder. For
 * `bagpipe doctor`; not used in a run. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include <mpi.h>
#include <stdint.h>

#define BP_PROBE_CPUS       2048 /* most CPUs of a host that are tracked */
#define BP_PROBE_NAME_BYTES 64

/** One rank's host as this process sees it. Plain data: sent as bytes. -1: no limit, or not
 * known. */
typedef struct bp_probe_host {
    char host[BP_PROBE_NAME_BYTES];
    char cpu[BP_PROBE_NAME_BYTES];      /* "model name" */
    char features[BP_PROBE_NAME_BYTES]; /* "avx512 avx512_bf16 amx_bf16": what changes bits, or
                                           speed */
    uint64_t cpus[BP_PROBE_CPUS / 64];  /* that this process may use */
    int cpu_count, host_cpus, threads;  /* threads as a job here would take */
    int job_cores; /* physical cores of the host that the job might use; 0: not known */
    int64_t memory_bytes, group_bytes;        /* of the host; limit of the control group */
    int64_t files, file_bytes, address_bytes; /* ulimits */
    double flops, copy_bytes;                 /* per second; 0: not measured */
} bp_probe_host;

/** All but threads, job_cores, flops and copy_bytes. Local. */
void bp_probe_host_read(bp_probe_host *out);
/** Bytes a second that this process copies in memory, measured for `seconds`. Local. */
double bp_probe_copy_speed(double seconds);

/** Rows of the report: {"check", "level" ("ok", "note", "warn", "fail"), "text", "remedy"}. */
typedef enum bp_probe_level {
    BP_PROBE_OK,
    BP_PROBE_NOTE,
    BP_PROBE_WARN,
    BP_PROBE_FAIL
} bp_probe_level;
void bp_probe_add(json_t *rows, bp_probe_level level, const char *check, const char *remedy,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/** Compares all ranks' hosts; returns the number of hosts. Local, pure.
 *
 * Shapes: ranks[size]. */
int bp_probe_check_hosts(json_t *rows, const bp_probe_host *ranks, int size);

/** Notes on Open MPI's segments of shared memory and session folders on this host that are this
 * user's, and that no process uses. Local. */
void bp_probe_leftovers(json_t *rows);

/* ---- the run folder ---- */

/** The folder that would be written to: `path`, or its nearest existing parent. Free with
 * bp_free(). Local. */
char *bp_probe_existing(const char *path);

/** Make a hidden folder in `folder` for tests; remove it with bp_dir_remove. Local.
 *
 * Owns:   *out, its path, is the caller's, bp_free(); NULL on failure.
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO it can't be made; BP_ERR_SYSTEM. */
bp_err bp_probe_ground(char **out, const char *folder);

/** Test in `ground` the file operations of a run: write, fsync, rename, symbolic link. Local.
 *
 * Errors: if a required operation fails: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM;
 * its row is added. */
bp_err bp_probe_files(json_t *rows, const char *ground);

/** Kind of file system, free space and inodes. checkpoint_bytes: of one checkpoint
 * (0: not known), of which `keep` and one more must fit. Local.
 *
 * Errors: BP_ERR_IO no space for one. */
bp_err bp_probe_disk(json_t *rows, const char *folder, int64_t checkpoint_bytes, int64_t keep);

/** Checks for some seconds, like the start of a job, that every rank sees what rank 0 makes in
 * `ground`.
 *
 * Collective: over `comm`; ground equal on all ranks.
 * Errors:     BP_ERR_IO a rank does not see it, with its host, or nothing can be made: the same on
 *             all ranks. */
bp_err bp_probe_shared(MPI_Comm comm, const char *ground);
