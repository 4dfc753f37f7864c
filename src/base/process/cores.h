/* The cores, which hwloc finds (as the kernel counts them: hardware threads) that this process was
 * given, and those that a thread is bound to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BP_CORES_MOST 4096

typedef struct bp_cores { /* a set */
    uint64_t words[BP_CORES_MOST / 64];
} bp_cores;

bool bp_cores_has(const bp_cores *set, int core);
void bp_cores_add(bp_cores *set, int core);
int bp_cores_count(const bp_cores *set);

/** The affinity mask of this process at the first call, which the caller of bp_cores_bind makes
 * before any thread is bound. Empty if unknown. */
const bp_cores *bp_cores_of_process(void);
/** All online cores of this host, whatever the launcher or control group excludes. False if
 * unknown. */
bool bp_cores_of_host(bp_cores *out);

/** Cores of this host that the control group allows, whatever the launcher has bound this process
 * to: physical cores with at least one allowed hardware thread. *units: the allowed hardware
 * threads. 0 if unknown. */
int bp_cores_allowed(int *units);

/** Bind the calling thread to these cores. If the system refuses, its mask is unchanged.
 */
void bp_cores_bind(const bp_cores *cores);
/** The calling thread may run on all cores of the process again: called at the start of every
 * helper thread, which inherits its creator's binding. Does nothing in a process that has bound no
 * thread. */
void bp_cores_widen(void);
/** The calling helper thread yields cores to compute threads: it may run on all cores of the
 * process, so on an idle one if there is any, at low priority and without the real-time policy of
 * its creator. Best effort. */
void bp_cores_step_aside(void);

/** The cores of `mask` as hwloc orders them: by package and physical core, the second hardware
 * threads of a physical core next to the first, or left out if there are enough first ones for
 * `threads`. out[bp_cores_count(mask)]; returns how many. */
int bp_cores_in_order(int *out, const bp_cores *mask, int threads);

/** Bytes of all third-level caches of this host; 0 if unknown. */
double bp_cores_cache_bytes(void);
