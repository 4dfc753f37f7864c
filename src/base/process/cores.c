/* Which cores this process may use (its affinity mask), their layout (hwloc), and the binding of
 * threads. */
#include "base/process/cores.h"

#include "base/err.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE 19

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bp_cores own;
static atomic_bool bound; /* some thread is, or was */

bool bp_cores_has(const bp_cores *set, int core)
{
    return core >= 0 && core < BP_CORES_MOST && (set->words[core / 64] >> core % 64 & 1) != 0;
}

void bp_cores_add(bp_cores *set, int core)
{
    BP_ASSERT(core >= 0 && core < BP_CORES_MOST);
    set->words[core / 64] |= UINT64_C(1) << core % 64;
}

int bp_cores_count(const bp_cores *set)
{
    int count = 0;

    for (int k = 0; k < BP_CORES_MOST / 64; k++)
        count += __builtin_popcountll(set->words[k]);
    return count;
}

static void read_own(void)
{
    cpu_set_t *set = CPU_ALLOC(BP_CORES_MOST);
    size_t bytes = CPU_ALLOC_SIZE(BP_CORES_MOST);

    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (int core = 0; core < BP_CORES_MOST; core++)
            if (CPU_ISSET_S(core, bytes, set))
                bp_cores_add(&own, core);
    CPU_FREE(set);
}

const bp_cores *bp_cores_of_process(void)
{
    int status = pthread_once(&once, read_own);

    BP_ASSERT(status == 0);
    return &own;
}

/* ---- the host's topology ---- */

static pthread_once_t topology_once = PTHREAD_ONCE_INIT;
static hwloc_topology_t topology; /* NULL: unknown on this host; kept to the end */

static void load_topology(void)
{
    if (hwloc_topology_init(&topology) != 0)
        topology = NULL;
    else if (hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
             hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        topology = NULL;
    }
}

static int objects_of(hwloc_obj_type_t type)
{
    BP_CHECK(pthread_once(&topology_once, load_topology) == 0);
    return !topology ? 0 : hwloc_get_nbobjs_by_type(topology, type);
}

bool bp_cores_of_host(bp_cores *out)
{
    int count = objects_of(HWLOC_OBJ_PU);

    memset(out, 0, sizeof *out);
    for (int k = 0; k < count; k++) {
        unsigned core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)k)->os_index;
        if (core < BP_CORES_MOST)
            bp_cores_add(out, (int)core);
    }
    return count > 0;
}

int bp_cores_allowed(int *units)
{
    int count = objects_of(HWLOC_OBJ_PU), cores = 0;

    *units = 0;
    for (int k = 0; k < count; k++) {
        hwloc_obj_t unit = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)k);
        if (!hwloc_bitmap_isset(hwloc_topology_get_allowed_cpuset(topology), unit->os_index))
            continue;
        ++*units;
        cores += unit->sibling_rank == 0;
    }
    return cores > 0 ? cores : *units; /* of some cores, only the second hardware threads */
}

int bp_cores_in_order(int *out, const bp_cores *mask, int threads)
{
    bp_cores left = *mask, seconds = {{0}};
    int units = objects_of(HWLOC_OBJ_PU), count = 0, firsts = 0;

    for (int k = 0; k < units; k++) {
        hwloc_obj_t unit = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)k);
        int core = (int)unit->os_index;
        if (!bp_cores_has(&left, core))
            continue;
        left.words[core / 64] &= ~(UINT64_C(1) << core % 64);
        if (unit->sibling_rank > 0)
            bp_cores_add(&seconds, core);
        out[count++] = core;
    }
    for (int core = 0; core < BP_CORES_MOST; core++) /* that the topology does not know */
        if (bp_cores_has(&left, core))
            out[count++] = core;
    firsts = count - bp_cores_count(&seconds);
    if (firsts < threads)
        return count;
    for (int k = 0, to = 0; k < count; k++)
        if (!bp_cores_has(&seconds, out[k]))
            out[to++] = out[k];
    return firsts;
}

double bp_cores_cache_bytes(void)
{
    int count = objects_of(HWLOC_OBJ_L3CACHE);
    double bytes = 0;

    for (int k = 0; k < count; k++)
        bytes += (double)hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, (unsigned)k)
                     ->attr->cache.size;
    return bytes;
}

/* ---- binding ---- */

static void set_mask(const bp_cores *cores)
{
    cpu_set_t *set = CPU_ALLOC(BP_CORES_MOST);
    size_t bytes = CPU_ALLOC_SIZE(BP_CORES_MOST);

    if (!set)
        return;
    CPU_ZERO_S(bytes, set);
    for (int core = 0; core < BP_CORES_MOST; core++)
        if (bp_cores_has(cores, core))
            CPU_SET_S(core, bytes, set);
    (void)sched_setaffinity(0, bytes, set); /* on failure the thread keeps its mask */
    CPU_FREE(set);
}

void bp_cores_bind(const bp_cores *cores)
{
    atomic_store(&bound, true);
    set_mask(cores);
}

void bp_cores_widen(void)
{
    if (atomic_load(&bound))
        set_mask(bp_cores_of_process());
}

void bp_cores_step_aside(void)
{
    struct sched_param none = {.sched_priority = 0};

    bp_cores_widen();
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
}
