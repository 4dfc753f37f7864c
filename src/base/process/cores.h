/* The cores, which hwloc finds (as the kernel counts them: hardware threads) that this process was
 * given, and those that a thread is bound to. */
#ifndef BP_BASE_CORES_H
#define BP_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#define BP_CORES_MOST 4096

typedef struct bp_cores { /* a set */
    uint64_t words[BP_CORES_MOST / 64];
} bp_cores;

bool bp_cores_has(const bp_cores *set, int core);
void bp_cores_add(bp_cores *set, int core);
int bp_cores_count(const bp_cores *set);

/** The affinity mask that this process had when this was asked first: before any thread of it was
 * bound, which the caller of bp_cores_bind sees to. Empty where the system does not say. */
const bp_cores *bp_cores_of_process(void);
/** All that this host has running: those that no launcher or control group has left out. False:
 * it does not say. */
bool bp_cores_of_host(bp_cores *out);

/** Cores of this host that the control group allows, whatever the launcher has bound this process
 * to: physical ones, of whose hardware threads some are allowed. *units: those hardware threads. 0:
 * the system does not say. */
int bp_cores_allowed(int *units);

/** Bind the calling thread to these cores. What the system refuses leaves it where it may run now.
 */
void bp_cores_bind(const bp_cores *cores);
/** The calling thread may run on all cores of the process again: at the start of every helper
 * thread, which has its creator's binding. Nothing happens in a process that has bound none. */
void bp_cores_widen(void);
/** The calling helper thread leaves the cores to those that compute: it takes one of the process's
 * that is idle, if there is any, and never has the priority of a creator that runs in real time.
 * Where the system does not allow that it works as it is. */
void bp_cores_step_aside(void);

/** The cores of `mask` as hwloc orders them: by package and physical core, the second hardware
 * threads of a physical core beside the first, or, where there is a first one for each of
 * `threads`, left out. out[bp_cores_count(mask)]; returns how many. */
int bp_cores_in_order(int *out, const bp_cores *mask, int threads);

/** Bytes of all third-level caches of this host; 0: not known. */
double bp_cores_cache_bytes(void);

#endif
