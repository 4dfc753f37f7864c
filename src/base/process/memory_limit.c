/* How much memory this node has for the job: available memory, control group, Slurm, run.memory. */
#include "base/process/memory_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define NO_LIMIT   ((int64_t)1 << 60) /* version 1 writes a number near 2^63 for "none" */
#define MIB        ((int64_t)1 << 20)

/* The files of a control group: version 2 and version 1. `use` includes the page cache, which is
 * reclaimed when memory is short; in version 1 lines named total_... include the groups below. */
typedef struct group_files {
    const char *folder, *limit, *use, *idle_cache, *active_cache;
} group_files;
static const group_files VERSION_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file ", "active_file "};
static const group_files VERSION_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file ",
                                      "total_active_file "};

/* The number after `name` at the start of a line of a file; -1 if there is no such line. */
static int64_t read_named(const char *path, const char *name)
{
    char line[256];
    int64_t value = -1;
    FILE *file = fopen(path, "r");

    while (file && value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), " %" SCNd64, &value) != 1)
            value = -1; /* "max" */
    if (file)
        (void)fclose(file); /* only read from */
    return value;
}

/* The number in a file of the group at `path`; -1 if there is no number. */
static int64_t read_group(const char *root, const group_files *files, const char *path,
                          const char *name, const char *line)
{
    char full[2 * PATH_BYTES];

    (void)snprintf(full, sizeof full, "%s%s%s/%s", root, files->folder, path, name);
    return read_named(full, line);
}

/* The path of this process's group, without a '/' at its end: version 2 ("0::/a/b"), or version
 * 1's memory controller ("4:memory:/a/b"). */
static bool find_group(const char *root, bool version_1, char path[PATH_BYTES])
{
    char line[PATH_BYTES];
    bool found = false;
    FILE *file;

    (void)snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    file = fopen(line, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group;

        if (!controllers || !(group = strchr(controllers + 1, ':')))
            continue;
        *group++ = '\0';
        found = version_1 ? strcmp(controllers, ":memory") == 0 : strncmp(line, "0:", 3) == 0;
        if (found)
            (void)snprintf(path, PATH_BYTES, "%.*s", (int)strcspn(group, "\n"), group);
    }
    if (file)
        (void)fclose(file); /* only read from */
    size_t length = found ? strlen(path) : 0;
    if (length > 0 && path[length - 1] == '/')
        path[length - 1] = '\0';
    return found;
}

/* What a group lets the job hold: the least of it and of those above it. */
typedef struct group_limit {
    int64_t limit; /* -1: no limit */
    int64_t left;  /* of the group, with the memory that the job holds already */
} group_limit;

static void look_at_group(group_limit *out, const char *root, const group_files *files,
                          const char *path, int64_t held)
{
    int64_t limit = read_group(root, files, path, files->limit, "");
    int64_t use = read_group(root, files, path, files->use, "");
    int64_t idle = read_group(root, files, path, "memory.stat", files->idle_cache);
    int64_t active = read_group(root, files, path, "memory.stat", files->active_cache);
    int64_t others = use - held - (idle > 0 ? idle : 0) - (active > 0 ? active : 0);

    if (limit < 0 || limit >= NO_LIMIT)
        return;
    int64_t left = limit - (others > 0 ? others : 0);
    if (out->limit < 0 || limit < out->limit)
        out->limit = limit;
    if (out->left < 0 || left < out->left)
        out->left = left > 0 ? left : 0;
}

static group_limit find_group_limit(const char *root, int64_t held)
{
    group_limit out = {-1, -1};

    for (int version = 1; version <= 2; version++) {
        const group_files *files = version == 1 ? &VERSION_1 : &VERSION_2;
        char path[PATH_BYTES], *slash;

        if (!find_group(root, version == 1, path))
            continue;
        do { /* in a container the path may be the host's, but the container's own root exists */
            look_at_group(&out, root, files, path, held);
            slash = strrchr(path, '/');
            if (slash)
                *slash = '\0';
        } while (slash);
    }
    return out;
}

/* The memory that a Slurm job was given on this node; -1 if unknown, or if it was given all (0). */
static int64_t slurm_bytes(const char **from)
{
    const char *node = getenv("SLURM_MEM_PER_NODE"), *cpu = getenv("SLURM_MEM_PER_CPU");
    const char *cpus = getenv("SLURM_CPUS_ON_NODE");
    int64_t mib = -1;

    if (!getenv("SLURM_JOB_ID"))
        return -1;
    if (node) {
        mib = strtoll(node, NULL, 10);
        *from = "SLURM_MEM_PER_NODE";
    } else if (cpu && cpus) {
        mib = strtoll(cpu, NULL, 10) * strtoll(cpus, NULL, 10);
        *from = "SLURM_MEM_PER_CPU x SLURM_CPUS_ON_NODE";
    }
    return mib > 0 && mib < NO_LIMIT / MIB ? mib * MIB : -1;
}

static void take_least(bp_memory_limit *least, int64_t bytes, const char *from, bool changes)
{
    if (bytes < 0 || (least->bytes >= 0 && least->bytes <= bytes))
        return;
    least->bytes = bytes;
    least->changes = changes;
    (void)snprintf(least->from, sizeof least->from, "%s", from);
}

bp_memory_limit bp_memory_limit_read(const char *root, int64_t held_bytes)
{
    bp_memory_limit least = {.bytes = -1};
    char path[PATH_BYTES];
    const char *from = "";

    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    int64_t kib = read_named(path, "MemAvailable:");
    take_least(&least, kib < 0 ? -1 : kib * 1024 + held_bytes, "MemAvailable of /proc/meminfo",
               true);
    group_limit group = find_group_limit(root, held_bytes);
    take_least(&least, group.left, "the memory limit of the control group", true);
    int64_t slurm = slurm_bytes(&from);
    take_least(&least, slurm, from, false);
    return least;
}

int64_t bp_memory_group_bytes(const char *root)
{
    return find_group_limit(root, 0).limit;
}
