/* This process's host: processors, memory, limits. The first of doctor's three steps. Called by
 * jobs/doctor.c and bench/machine.c. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/cores.h"
#include "base/process/memory_limit.h"
#include "run/probe/probe.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_LIMIT ((int64_t)1 << 22)
#define COPY_BYTES ((int64_t)32 << 20) /* larger than a rank's own caches */

/* The value after "KEY ... :" of the first such line of a /proc file, or "". */
static void find_value(char *out, size_t out_bytes, const char *path, const char *key)
{
    char *text = NULL, *line;
    size_t bytes;

    out[0] = '\0';
    if (bp_file_read(path, TEXT_LIMIT, &text, &bytes) != BP_OK)
        return;
    line = strncmp(text, key, strlen(key)) == 0 ? text : strstr(text, key);
    if (line && (line = strchr(line, ':'))) {
        line += 1 + strspn(line + 1, " \t");
        (void)snprintf(out, out_bytes, "%.*s", (int)strcspn(line, "\n"), line);
    }
    bp_free(text);
}

/* Flags that decide which kernels run: hosts that differ in them give other bits. */
static void read_features(bp_probe_host *out)
{
    static const char *const wanted[] = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"};
    char *flags = bp_alloc("probe", 16384, 1);
    size_t used = 0;

    flags[0] = ' '; /* and one after the last word, so that words are found whole */
    find_value(flags + 1, 16000, "/proc/cpuinfo", "flags");
    flags[strlen(flags)] = ' ';
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
        char word[32];

        (void)snprintf(word, sizeof word, " %s ", wanted[k]);
        if (strstr(flags, word))
            used += (size_t)snprintf(out->features + used, sizeof out->features - used, "%s%s",
                                     used > 0 ? " " : "", wanted[k]);
    }
    bp_free(flags);
}

static int64_t limit_of(int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return -1;
    return (int64_t)limit.rlim_cur;
}

void bp_probe_host_read(bp_probe_host *out)
{
    const bp_cores *cores = bp_cores_of_process();
    char memory[64];

    memset(out, 0, sizeof *out); /* sent as bytes, padding included */
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        (void)snprintf(out->host, sizeof out->host, "unknown");
    find_value(out->cpu, sizeof out->cpu, "/proc/cpuinfo", "model name");
    read_features(out);
    out->host_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    out->cpu_count = bp_cores_count(cores);
    memcpy(out->cpus, cores->words, sizeof out->cpus);
    find_value(memory, sizeof memory, "/proc/meminfo", "MemTotal");
    out->memory_bytes = strtoll(memory, NULL, 10) * 1024;
    out->group_bytes = bp_memory_group_bytes("");
    out->files = limit_of(RLIMIT_NOFILE);
    out->file_bytes = limit_of(RLIMIT_FSIZE);
    out->address_bytes = limit_of(RLIMIT_AS);
}

double bp_probe_copy_speed(double seconds)
{
    char *from = bp_alloc("probe", COPY_BYTES, 1), *to = bp_alloc("probe", COPY_BYTES, 1);
    double began, now, bytes = 0;

    memset(from, 1, (size_t)COPY_BYTES);
    memcpy(to, from, (size_t)COPY_BYTES); /* pages are there */
    began = now = bp_clock_now();
    while (now - began < seconds) {
        from[0]++; /* else nothing would have to be copied again */
        memcpy(to, from, (size_t)COPY_BYTES);
        bytes += 2 * (double)COPY_BYTES; /* read and written */
        now = bp_clock_now();
    }
    bp_free(from);
    bp_free(to);
    return bytes / (now - began);
}

/* ---- left by killed ranks: Open MPI's shared memory and session folders ---- */

#define MAPS_BYTES ((int64_t)1 << 26)
#define SEGMENTS   "/dev/shm/"
#define SEGMENT    "vader_segment."
#define SESSION    "pid."

/* The lines of all processes' maps that name a segment. */
static void find_mapped(bp_buffer *out)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        char path[300], *text = NULL;
        size_t length;

        (void)snprintf(path, sizeof path, "/proc/%s/maps", entry->d_name);
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
            bp_file_read(path, MAPS_BYTES, &text, &length) != BP_OK)
            continue; /* no process, gone, or another user's */
        for (char *at = text; (at = strstr(at, SEGMENTS SEGMENT)); at++)
            bp_buffer_printf(out, "%.*s\n", (int)strcspn(at, " \n"), at);
        bp_free(text);
    }
    if (folder)
        (void)closedir(folder);
}

static void check_segments(json_t *rows)
{
    bp_buffer mapped = {0};
    char **names = NULL;
    int64_t bytes = 0, all = 0, count = 0;

    find_mapped(&mapped);
    (void)bp_dir_list(SEGMENTS, &names, &all);
    for (int64_t k = 0; k < all; k++) {
        char *line = bp_sprintf(SEGMENTS "%s\n", names[k]);
        struct stat facts;

        if (strncmp(names[k], SEGMENT, strlen(SEGMENT)) == 0 &&
            lstat(bp_path_in(SEGMENTS, names[k]).text, &facts) == 0 && facts.st_uid == getuid() &&
            (mapped.bytes == 0 || !strstr(mapped.data, line))) {
            count++;
            bytes += (int64_t)facts.st_blocks * 512;
        }
        bp_free(line);
    }
    bp_names_free(&names, all);
    bp_buffer_clear(&mapped);
    if (count > 0)
        bp_probe_add(rows, BP_PROBE_NOTE, "leftover segments",
                     "while none of your MPI programs runs here: rm " SEGMENTS SEGMENT "*",
                     "%d of Open MPI that no process uses, %.1f MiB of memory: " SEGMENTS SEGMENT
                     "*",
                     (int)count, (double)bytes / (1 << 20));
}

/* TMPDIR/ompi.HOST.UID/pid.N, where N is mpirun's process. */
static void check_sessions(json_t *rows)
{
    const char *temporary = getenv("TMPDIR");
    char host[256] = "", path[1024], **names = NULL;
    int64_t all = 0;
    int count = 0;

    (void)gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    (void)snprintf(path, sizeof path, "%.600s/ompi.%s.%ld", temporary ? temporary : "/tmp", host,
                   (long)getuid());
    (void)bp_dir_list(path, &names, &all);
    for (int64_t k = 0; k < all; k++) {
        long process = strncmp(names[k], SESSION, strlen(SESSION)) == 0
                           ? strtol(names[k] + strlen(SESSION), NULL, 10)
                           : 0;

        count += process > 0 && kill((pid_t)process, 0) != 0 && errno == ESRCH;
    }
    bp_names_free(&names, all);
    if (count > 0)
        bp_probe_add(rows, BP_PROBE_NOTE, "leftover sessions",
                     "while none of your MPI programs runs here, remove that folder",
                     "%d of Open MPI whose mpirun is gone: %s", count, path);
}

void bp_probe_leftovers(json_t *rows)
{
    check_segments(rows);
    check_sessions(rows);
}
