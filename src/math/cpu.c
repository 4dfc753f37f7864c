/* The CPU this process runs on, and how much of it: affinity mask, and the quota of its control
 * group. */
#include "base/cores.h"
#include "math/gemm/bf16_gemm_priv.h"
#include "math/gemm/linear_priv.h"
#include "math/math.h"
#include "math/threads.h"
#include "math/threads_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES   1024
#define LARGE_FLOATS (8 << 20) /* sums that a last-level cache of a few cores does not hold */

/* The text after "PREFIX...:" in the first line of a file that begins so; false when there is none.
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

/* The least quota of this process's control group (version 2) and those above it; 0: none. */
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

/* Sums that come from memory and go back there: oneDNN 2.6.3 has 0.58 to 0.76 of the peak on Zen
 * 4, ours 0.76 to 0.87, which is 1.15 to 1.4 times as much for GPT-2's vocabulary and a tensor
 * rank's share of it, and 1.05 to 1.15 where the outputs are whole blocks of 64. Smaller sums: 0.95
 * to 1.15, too little to leave the library (bench_gemm prints all of these). Neither rows nor
 * threads decide: they would change bits. */
bool bp_cpu_owns_gradient(int64_t outs, int64_t ins)
{
    return outs * ins >= LARGE_FLOATS;
}

#if defined(__x86_64__)
#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA           18

/* Linux gives a process the tile registers when it asks for them, as oneDNN does where it looks for
 * AMX: asking twice does no harm. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

bool bp_cpu_has_tiles(void)
{
    const char *isa = bp_gemm_isa();

    return isa && strcmp(isa, "amx") == 0 && may_use_tiles();
}

/* With AMX our own kernels: oneDNN 2.6.3 leaves two thirds of the tiles idle (0.30 of their peak
 * over the products of a GPT-2 step). Without, the library's: on Zen 4 both are near the peak of
 * AVX512_BF16. From Sapphire Rapids on, Intel's VDPBF16PS does half the products a cycle that a
 * float32 FMA does (measured: 84 against 155 GFLOP/s a core), so that AMX put aside float32 is the
 * faster; Cooper Lake's and AMD's do twice as many. */
bp_bf16_form bp_cpu_bf16_form(void)
{
    bool slow = __builtin_cpu_is("intel") && !__builtin_cpu_is("cooperlake");

    return bp_cpu_has_tiles() ? BP_BF16_OWN : slow ? BP_BF16_ROUNDED : BP_BF16_MIXED;
}

const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    if (!bp_gemm_has_bf16() || bp_cpu_bf16_form() == BP_BF16_ROUNDED)
        return NULL;
    return bp_cpu_has_tiles() ? &bp_bf16_kernel_amx : &bp_bf16_kernel_avx512;
}
#else
bool bp_cpu_has_tiles(void)
{
    return false;
}

const bp_bf16_kernel *bp_bf16_kernel_here(void)
{
    return NULL;
}

bp_bf16_form bp_cpu_bf16_form(void)
{
    return BP_BF16_NATIVE;
}
#endif
