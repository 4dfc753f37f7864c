#include "base/cores.h"

#include "base/err.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
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

/* "0-3,8" */
static bool read_list(bp_cores *out, const char *path)
{
    FILE *file = fopen(path, "r");
    char text[4096] = "", *at = text;
    bool got = file && fgets(text, sizeof text, file) != NULL;

    memset(out, 0, sizeof *out);
    if (file)
        (void)fclose(file); /* only read from */
    while (got && *at >= '0' && *at <= '9') {
        long first = strtol(at, &at, 10), last = first;
        if (*at == '-')
            last = strtol(at + 1, &at, 10);
        for (long core = first; core <= last && core < BP_CORES_MOST; core++)
            bp_cores_add(out, (int)core);
        at += *at == ',';
    }
    return got;
}

bool bp_cores_of_host(bp_cores *out)
{
    return read_list(out, "/sys/devices/system/cpu/online");
}

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
    (void)sched_setaffinity(0, bytes, set); /* refused: the thread stays where it may run */
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

static int read_number(int core, const char *name)
{
    char path[128];
    int number = 0;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", core, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &number) != 1 || number < 0)
        number = 0;
    (void)fclose(file); /* only read from */
    return number;
}

bp_core_place bp_core_place_of(int core)
{
    bp_core_place place = {read_number(core, "physical_package_id"), read_number(core, "core_id"),
                           0};
    char path[128];
    bp_cores parts;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             core);
    if (read_list(&parts, path))
        for (int k = 0; k < core; k++)
            place.part += bp_cores_has(&parts, k);
    return place;
}
