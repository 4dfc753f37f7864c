/* What this bench runs on: hosts, CPUs, caches, memory, libraries. */
#include "bench/bench_priv.h"

#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/node_memory.h"
#include "run/probe.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_SHARE 0.9 /* of what is free, that ranks may take */

static bool read_line(const char *path, char *out, int bytes)
{
    FILE *file = fopen(path, "r");
    bool read = file != NULL && fgets(out, bytes, file) != NULL;

    if (file)
        (void)fclose(file); /* only read from */
    return read;
}

/* Members of a list such as "0-7,64-71". */
static int count_of(const char *list)
{
    int count = 0;

    for (const char *at = list; *at != '\0' && *at != '\n';) {
        char *end;
        long first = strtol(at, &end, 10), last = first;

        if (end == at)
            break;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        count += (int)(last - first + 1);
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

double bench_cache_bytes(void)
{
    static const char FOLDER[] = "/sys/devices/system/cpu";
    DIR *folder = opendir(FOLDER);
    double bytes = 0;

    /* each processor's share of its third-level cache, added up */
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char path[512], size[64], sharers[1024];

        if (strncmp(entry->d_name, "cpu", 3) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%.64s/cache/index3/size", FOLDER, entry->d_name);
        if (!read_line(path, size, sizeof size))
            continue;
        (void)snprintf(path, sizeof path, "%s/%.64s/cache/index3/shared_cpu_list", FOLDER,
                       entry->d_name);
        int count = read_line(path, sharers, sizeof sharers) ? count_of(sharers) : 0;
        if (count > 0)
            bytes += 1024.0 * strtod(size, NULL) / count; /* "32768K" */
    }
    if (folder)
        (void)closedir(folder);
    return bytes;
}

static int most_int(int value, MPI_Comm comm)
{
    return (int)bp_all_max_int(value, comm);
}

/* Computing ranks of the fullest host, and what each rank may take of the tightest. */
void bench_find_room(bench *self, const bp_planned_world *plan)
{
    const bp_mesh *mesh = self->mesh;
    int64_t has = bp_node_memory_has(mesh->world, self->config);
    MPI_Comm node;
    int ranks;

    BP_MPI_WAIT("comm_split",
                MPI_Comm_split_type(mesh->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    ranks = (int)bp_all_sum_int(mesh->computes, node);
    BP_MPI(MPI_Comm_free(&node));
    if (plan)
        ranks = ((int)bench_ranks(self) + plan->nodes - 1) / plan->nodes;
    self->node_ranks = most_int(ranks, mesh->world);
    double each = MEMORY_SHARE * (double)(has > 0 ? has : 0) / (ranks > 0 ? ranks : 1);
    self->rank_bytes = -(double)bp_all_max_int(-(int64_t)each, mesh->world);
}

static json_t *hosts_json(const bench *self)
{
    json_t *hosts = json_array();

    for (int r = 0; r < self->mesh->size; r++)
        if (r == 0 || strcmp(self->hosts[r], self->hosts[r - 1]) != 0) {
            bool known = false;
            for (size_t k = 0; k < json_array_size(hosts); k++)
                known = known ||
                        strcmp(json_string_value(json_array_get(hosts, k)), self->hosts[r]) == 0;
            if (!known)
                (void)json_array_append_new(hosts, json_string(self->hosts[r]));
        }
    return hosts;
}

static json_t *machine_json(const bench *self, const bp_probe_host *host, int cores)
{
    const bp_mesh *mesh = self->mesh;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    BP_MPI(MPI_Get_library_version(library, &length));
    library[strcspn(library, ",\n")] = '\0';
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:o, s:I, s:I, s:I}",
                     "cpu", bp_math_cpu(), "features", host->features, "math_library",
                     bp_math_library(), "mpi", library, "bf16", (int)self->bf16, "ranks",
                     mesh->size - mesh->dedicated, "threads", bp_math_threads(), "cores", cores,
                     "ranks_a_host", self->node_ranks, "host_cpus", host->host_cpus, "hosts",
                     hosts_json(self), "memory_bytes", (json_int_t)host->memory_bytes,
                     "free_bytes_a_rank", (json_int_t)self->rank_bytes, "cache_bytes",
                     (json_int_t)bench_cache_bytes());
}

bp_err bench_find_machine(bench *self)
{
    const bp_mesh *mesh = self->mesh;
    char host[BENCH_HOST_BYTES] = "";
    bp_probe_host probe;
    int cores;

    self->hosts = bp_alloc("bench.hosts", mesh->size, sizeof *self->hosts);
    if (bp_all_max_int(self->hosts == NULL, mesh->world) != 0)
        return bp_agree(mesh->world, bp_fail_memory("names of hosts", mesh->size, sizeof host));
    bp_host_name(host, sizeof host);
    BP_MPI_WAIT("all_gather", MPI_Allgather(host, sizeof host, MPI_CHAR, self->hosts, sizeof host,
                                            MPI_CHAR, mesh->world));
    bp_probe_host_read(&probe);
    bench_find_room(self, NULL);
    self->bf16 = bp_all_max_int(!bp_math_has_bf16(), mesh->world) == 0;
    cores = -most_int(-bp_math_cores(), mesh->world);
    if (mesh->coordinates)
        bench_put(self->result, "machine", machine_json(self, &probe, cores));
    return BP_OK;
}
