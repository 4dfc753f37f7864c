/* The CPU of this process, and its share: affinity mask, and the quota of its control group. */
#include "base/process/cores.h"
#include "math/math.h"
#include "math/threads.h"
#include "math/threads_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 1024

/* The text after "PREFIX...:" in the first line of a file that begins so; false if there is no
 * such line.
 */
static bool find_line(const char *path, const char *prefix, char *out, size_t out_bytes)
{
    char line[LINE_BYTES];
    FILE *file = fopen(path, "r");
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, prefix, strlen(prefix)) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, ": \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, out_bytes, "%s", value);
        found = true;
    }
    if (file)
        (void)fclose(file); /* only read from */
    return found;
}

const char *bp_math_cpu(void)
{
    static char name[LINE_BYTES];

    if (name[0] == '\0' && !find_line("/proc/cpuinfo", "model name", name, sizeof name))
        snprintf(name, sizeof name, "unknown");
    return name;
}

/* Cores that the quota in one cpu.max ("max 100000" or "150000 100000") amounts to, rounded up; 0:
 * no quota. */
static int quota_of(const char *path)
{
    double quota = 0, period = 0;
    FILE *file = fopen(path, "r");
    int fields = file ? fscanf(file, "%lf %lf", &quota, &period) : 0;

    if (file)
        (void)fclose(file);
    if (fields != 2 || quota <= 0 || period <= 0)
        return 0;
    int cores = (int)(quota / period + 0.999);
    return cores > 1 ? cores : 1;
}

/* The least quota of this process's control group (version 2) and those above it; 0: no quota. */
static int group_quota(void)
{
    char group[LINE_BYTES], path[LINE_BYTES + 64];
    int least = 0;

    if (!find_line("/proc/self/cgroup", "0:", group, sizeof group))
        return 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        int cores = quota_of(path);
        if (cores > 0 && (least == 0 || cores < least))
            least = cores;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

int bp_math_cores(void)
{
    int cores = bp_cores_count(bp_cores_of_process()), quota = group_quota();

    if (quota > 0 && quota < cores)
        cores = quota;
    return cores > 0 ? cores : 1;
}

int bp_core_slurm_cpus(const char *list)
{
    long least = 0;

    while (list && *list) {
        char *end;
        long cpus = strtol(list, &end, 10);

        if (end == list || cpus <= 0 || cpus > BP_CORES_MOST)
            return 0;
        least = least == 0 || cpus < least ? cpus : least;
        list = strchr(end, ',');
        list = list ? list + 1 : NULL;
    }
    return (int)least;
}

int bp_math_cores_of_job(void)
{
    bp_cores host;
    int units, cores = bp_cores_allowed(&units), quota = group_quota();
    int slurm = bp_core_slurm_cpus(getenv("SLURM_JOB_CPUS_PER_NODE"));

    if (cores > 0 && slurm > 0 && bp_cores_of_host(&host) && slurm <= bp_cores_count(&host))
        cores = (slurm * cores + units - 1) / units; /* its CPUs may be hardware threads */
    return quota > 0 && quota < cores ? quota : cores;
}
