/* How much memory a job may use on this node. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct bp_memory_limit {
    int64_t bytes;  /* -1: not known */
    char from[128]; /* what sets it: "MemAvailable of /proc/meminfo" */
    bool changes;   /* depends on other processes: it may grow at any moment */
} bp_memory_limit;

/** The most that the processes of a job may hold together on this node: the least of
 * - MemAvailable of /proc/meminfo, plus what these processes hold already;
 * - the limits of this process's control group and those above it (versions 2 and 1), less what
 *   other processes hold there (except for the page cache, which is reclaimable);
 * - in a Slurm job, the memory that it asked for: SLURM_MEM_PER_NODE, or SLURM_MEM_PER_CPU times
 *   SLURM_CPUS_ON_NODE.
 *
 * root: precedes each path; "" for the system, a tree of files for tests. held_bytes: what the
 * job's processes on this node hold now. Local. */
bp_memory_limit bp_memory_limit_read(const char *root, int64_t held_bytes);

/** The least limit of this process's control group and those above it; -1 if unlimited. */
int64_t bp_memory_group_bytes(const char *root);
