/* The facts of many ranks' hosts, gathered by doctor, as rows of its report. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "run/probe/probe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SLOW        0.7  /* of the median speed: a slow host */
#define FEW_FILES   1024 /* a rank opens corpora, checkpoints and sockets to its peers */
#define NAMES_SHOWN 8

static const char *const LEVELS[] = {"ok", "note", "warn", "fail"};

void bp_probe_add(json_t *rows, bp_probe_level level, const char *check, const char *remedy,
                  const char *format, ...)
{
    char text[1024];
    va_list list;
    json_t *row;

    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    row = json_pack("{s:s, s:s, s:s}", "check", check, "level", LEVELS[level], "text", text);
    if (row && remedy && level >= BP_PROBE_WARN)
        (void)json_object_set_new(row, "remedy", bp_json_string(remedy));
    (void)json_array_append_new(rows, row);
}

/* Ranks are listed by host: one entry for each, in order of its first rank. */
typedef struct host_list {
    const bp_probe_host *ranks;
    int size, count;
    int *first;   /* [count]: the host's first rank */
    int *host_of; /* [size]: the place of a rank's host in `first` */
} host_list;

static int ranks_on(const host_list *list, int host)
{
    int count = 0;

    for (int r = 0; r < list->size; r++)
        count += list->host_of[r] == host;
    return count;
}

static const bp_probe_host *of_host(const host_list *list, int host)
{
    return &list->ranks[list->first[host]];
}

static void check_places(json_t *rows, const host_list *list)
{
    int most = 0, least = list->size;

    for (int h = 0; h < list->count; h++) {
        int here = ranks_on(list, h);

        most = here > most ? here : most;
        least = here < least ? here : least;
    }
    bp_probe_add(rows, most > least + 1 ? BP_PROBE_WARN : BP_PROBE_OK, "ranks",
                 "give each host the same number of ranks: the fullest one sets the pace",
                 most == least ? "%d on %d host%s, %d each" : "%d on %d host%s, up to %d each",
                 list->size, list->count, list->count == 1 ? "" : "s", most);
}

/* Cores that several ranks of a host may use; *unbound if all share one set. */
static int shared_cpus(const host_list *list, int host, bool *unbound)
{
    const bp_probe_host *first = of_host(list, host);
    int shared = 0;

    *unbound = true;
    for (int k = 0; k < BP_PROBE_CPUS / 64; k++) {
        uint64_t seen = 0, twice = 0;

        for (int r = 0; r < list->size; r++)
            if (list->host_of[r] == host) {
                *unbound = *unbound && list->ranks[r].cpus[k] == first->cpus[k];
                twice |= seen & list->ranks[r].cpus[k];
                seen |= list->ranks[r].cpus[k];
            }
        shared += __builtin_popcountll(twice);
    }
    return shared;
}

static bool check_threads(json_t *rows, const host_list *list)
{
    static const char remedy[] =
        "bind a rank to as many cores as it has threads: mpirun --map-by slot:PE=N, or srun "
        "--cpus-per-task=N and OMP_NUM_THREADS=N";

    for (int r = 0; r < list->size; r++) {
        const bp_probe_host *rank = &list->ranks[r];

        if (rank->threads <= rank->cpu_count)
            continue;
        bp_probe_add(rows, BP_PROBE_WARN, "binding", remedy,
                     "rank %d on %s may use %d core%s, and has %d threads", r, rank->host,
                     rank->cpu_count, rank->cpu_count == 1 ? "" : "s", rank->threads);
        return false;
    }
    return true;
}

static bool check_overlap(json_t *rows, const host_list *list)
{
    for (int h = 0; h < list->count; h++) {
        const bp_probe_host *host = of_host(list, h);
        int here = ranks_on(list, h), threads = 0, shared;
        bool unbound;

        if (here == 1)
            continue;
        for (int r = 0; r < list->size; r++)
            threads += list->host_of[r] == h ? list->ranks[r].threads : 0;
        shared = shared_cpus(list, h, &unbound);
        if (shared > 0 && !unbound) {
            bp_probe_add(rows, BP_PROBE_WARN, "binding",
                         "let the launcher bind each rank to cores of its own",
                         "%d cores of %s are given to more than one rank", shared, host->host);
            return false;
        }
        if (shared > 0 && threads > host->cpu_count) {
            bp_probe_add(rows, BP_PROBE_WARN, "binding",
                         "start fewer ranks a host, or give each fewer threads (OMP_NUM_THREADS)",
                         "%d ranks with %d threads together share %d core%s of %s", here, threads,
                         host->cpu_count, host->cpu_count == 1 ? "" : "s", host->host);
            return false;
        }
    }
    return true;
}

/* Warns if ranks x threads leave at least one idle core per rank on a host. */
static bool check_idle(json_t *rows, const host_list *list)
{
    for (int h = 0; h < list->count; h++) {
        const bp_probe_host *host = of_host(list, h);
        int here = ranks_on(list, h), threads = 0, each = host->job_cores / here;
        bool bound = false;
        char *remedy;

        for (int r = 0; r < list->size; r++)
            if (list->host_of[r] == h) {
                threads += list->ranks[r].threads;
                bound = bound || list->ranks[r].cpu_count < each;
            }
        if (host->job_cores < threads + here)
            continue;
        remedy = bound ? bp_sprintf("let the launcher give each rank more: mpirun --bind-to none, "
                                    "or --map-by slot:PE=%d, srun --cpus-per-task=%d; or start "
                                    "more ranks",
                                    each, each)
                       : bp_sprintf("set OMP_NUM_THREADS=%d or math.threads=%d, or start more "
                                    "ranks",
                                    each, each);
        bp_probe_add(rows, BP_PROBE_WARN, "binding", remedy,
                     "%d of %d cores of %s are idle: %d rank%s with %d thread%s%s",
                     host->job_cores - threads, host->job_cores, host->host, here,
                     here == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
                     here == 1 ? "" : " together");
        bp_free(remedy);
        return false;
    }
    return true;
}

/* Names of the hosts for which `differs` holds. */
static void add_name(bp_buffer *names, int *shown, const char *name)
{
    if ((*shown)++ < NAMES_SHOWN)
        bp_buffer_printf(names, "%s%s", *shown > 1 ? ", " : "", name);
    else if (*shown == NAMES_SHOWN + 1)
        bp_buffer_printf(names, " ...");
}

static void check_cpus(json_t *rows, const host_list *list)
{
    const bp_probe_host *first = of_host(list, 0);
    bp_buffer others = {0};
    int shown = 0;

    for (int h = 1; h < list->count; h++) {
        const bp_probe_host *host = of_host(list, h);

        if (strcmp(host->cpu, first->cpu) != 0 || strcmp(host->features, first->features) != 0)
            add_name(&others, &shown, host->host);
    }
    if (shown > 0)
        bp_probe_add(rows, BP_PROBE_WARN, "cpu",
                     "ask for hosts of one kind (sbatch --constraint=...): other kinds give other "
                     "bits, and the slowest sets the pace",
                     "%s has %s (%s), others are of another kind: %s", first->host, first->cpu,
                     first->features, others.data);
    else
        bp_probe_add(rows, BP_PROBE_OK, "cpu", NULL, "%s (%s)", first->cpu,
                     first->features[0] != '\0' ? first->features : "no vector features known");
    bp_buffer_clear(&others);
}

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void check_memory(json_t *rows, const host_list *list)
{
    double least = INFINITY;
    const bp_probe_host *tightest = of_host(list, 0);
    char group[64] = "";

    for (int r = 0; r < list->size; r++) {
        const bp_probe_host *rank = &list->ranks[r];
        int64_t bytes = rank->group_bytes > 0 && rank->group_bytes < rank->memory_bytes
                            ? rank->group_bytes
                            : rank->memory_bytes;
        double share = (double)bytes / ranks_on(list, list->host_of[r]);

        if (share < least) {
            least = share;
            tightest = rank;
        }
    }
    if (tightest->group_bytes > 0 && tightest->group_bytes < tightest->memory_bytes)
        (void)snprintf(group, sizeof group, "; the control group allows %.1f",
                       gib(tightest->group_bytes));
    bp_probe_add(rows, BP_PROBE_OK, "memory", NULL,
                 "%s has %.1f GiB%s: %.1f GiB a rank (bagpipe JOB CONFIG --plan shows the need)",
                 tightest->host, gib(tightest->memory_bytes), group, least / (1 << 30));
}

static void check_limits(json_t *rows, const host_list *list)
{
    bool fine = true;

    for (int h = 0; h < list->count && fine; h++) {
        const bp_probe_host *host = of_host(list, h);

        fine = (host->files < 0 || host->files >= FEW_FILES) && host->file_bytes < 0 &&
               host->address_bytes < 0;
        if (host->file_bytes >= 0)
            bp_probe_add(rows, BP_PROBE_WARN, "limits", "raise it: ulimit -f unlimited",
                         "on %s no file may be larger than %.3f GiB", host->host,
                         gib(host->file_bytes));
        if (host->files >= 0 && host->files < FEW_FILES)
            bp_probe_add(rows, BP_PROBE_WARN, "limits", "raise it: ulimit -n 4096",
                         "on %s a process may open only %lld files", host->host,
                         (long long)host->files);
        if (host->address_bytes >= 0)
            bp_probe_add(rows, BP_PROBE_WARN, "limits", "raise it: ulimit -v unlimited",
                         "on %s a process may have only %.1f GiB of addresses, of which MPI and "
                         "threads take more than they use",
                         host->host, gib(host->address_bytes));
    }
    if (fine)
        bp_probe_add(rows, BP_PROBE_OK, "limits", NULL, "%lld open files, files of any size",
                     (long long)of_host(list, 0)->files);
}

/* ---- slow hosts ---- */

/* A host is as fast as its ranks are on average. */
static void check_speed(json_t *rows, const host_list *list, bool copies)
{
    const char *check = copies ? "memory speed" : "gemm speed", *unit = copies ? "GB/s" : "GFLOP/s";
    double *speeds = bp_alloc("probe", list->count, sizeof *speeds);
    double *sorted = bp_alloc("probe", list->count, sizeof *sorted), median;
    bp_buffer slow = {0};
    int shown = 0;

    for (int r = 0; r < list->size; r++)
        speeds[list->host_of[r]] += copies ? list->ranks[r].copy_bytes : list->ranks[r].flops;
    for (int h = 0; h < list->count; h++)
        sorted[h] = speeds[h] /= ranks_on(list, h);
    bp_sort_reals(sorted, list->count);
    median = sorted[list->count / 2];
    for (int h = 0; h < list->count; h++)
        if (speeds[h] < SLOW * median) {
            char *text = bp_sprintf("%s (%.4g)", of_host(list, h)->host, speeds[h] / 1e9);

            add_name(&slow, &shown, text);
            bp_free(text);
        }
    if (!(median > 0))
        bp_probe_add(rows, BP_PROBE_NOTE, check, NULL, "it can't be measured in this build");
    else if (shown > 0)
        bp_probe_add(rows, BP_PROBE_WARN, check,
                     "leave them out (sbatch --exclude=...), or see what else runs there: the "
                     "slowest host sets the pace",
                     "%.4g %s a rank; slow host%s: %s", median / 1e9, unit, shown == 1 ? "" : "s",
                     slow.data);
    else
        bp_probe_add(rows, BP_PROBE_OK, check, NULL, "%.4g %s a rank, all ranks at once",
                     median / 1e9, unit);
    bp_buffer_clear(&slow);
    bp_free(sorted);
    bp_free(speeds);
}

int bp_probe_check_hosts(json_t *rows, const bp_probe_host *ranks, int size)
{
    host_list list = {.ranks = ranks, .size = size};

    list.first = bp_alloc("probe", size, sizeof *list.first);
    list.host_of = bp_alloc("probe", size, sizeof *list.host_of);
    for (int r = 0; r < size; r++) {
        int h = 0;

        while (h < list.count && strcmp(of_host(&list, h)->host, ranks[r].host) != 0)
            h++;
        if (h == list.count)
            list.first[list.count++] = r;
        list.host_of[r] = h;
    }
    check_places(rows, &list);
    if (check_threads(rows, &list) && check_overlap(rows, &list) && check_idle(rows, &list))
        bp_probe_add(rows, BP_PROBE_OK, "binding", NULL,
                     "a rank may use %d of %d core%s, and has %d thread%s", ranks->cpu_count,
                     ranks->host_cpus, ranks->host_cpus == 1 ? "" : "s", ranks->threads,
                     ranks->threads == 1 ? "" : "s");
    check_cpus(rows, &list);
    check_memory(rows, &list);
    check_limits(rows, &list);
    check_speed(rows, &list, false);
    check_speed(rows, &list, true);
    bp_free(list.first);
    bp_free(list.host_of);
    return list.count;
}
